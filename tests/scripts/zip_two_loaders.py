"""Domain adaptation: zip of a source loader and a target loader, gradient reversal."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.alpha * grad_output, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 16), nn.ReLU())
        self.label = nn.Linear(16, 2)
        self.domain = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x, alpha):
        f = self.features(x)
        return self.label(f), self.domain(GradReverse.apply(f, alpha))


def blobs(n, shift):
    y = torch.randint(0, 2, (n,))
    centers = torch.tensor([[-1.5, 0.0], [1.5, 0.0]])
    return centers[y] + 0.6 * torch.randn(n, 2) + shift, y


src_x, src_y = blobs(190, torch.tensor([0.0, 0.0]))
tgt_x, tgt_y = blobs(150, torch.tensor([0.4, 1.0]))

# the two loaders do not have the same length; zip stops at the shorter one
source_loader = DataLoader(TensorDataset(src_x, src_y), batch_size=26, shuffle=True)
target_loader = DataLoader(TensorDataset(tgt_x, tgt_y), batch_size=21, shuffle=True)

model = DANN()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(5):
    model.train()
    label_loss_sum = domain_loss_sum = 0.0
    n_iter = 0
    for (xs, ys), (xt, _) in zip(source_loader, target_loader):
        alpha = 0.1
        class_out, dom_s = model(xs, alpha)
        _, dom_t = model(xt, alpha)

        err_label = F.cross_entropy(class_out, ys)
        err_s = F.cross_entropy(dom_s, torch.zeros(len(xs), dtype=torch.long))
        err_t = F.cross_entropy(dom_t, torch.ones(len(xt), dtype=torch.long))
        err = err_label + err_s + err_t

        opt.zero_grad()
        err.backward()
        opt.step()
        label_loss_sum += err_label.item()
        domain_loss_sum += (err_s + err_t).item()
        n_iter += 1

    model.eval()
    with torch.no_grad():
        acc = (model(tgt_x, 0.0)[0].argmax(1) == tgt_y).float().mean()
    print(f"epoch {epoch} label {label_loss_sum / n_iter:.4f} domain {domain_loss_sum / n_iter:.4f} "
          f"target acc {acc:.3f}")
