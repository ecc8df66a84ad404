"""Graph convolutional network on one graph, full batch, with train and test masks (nodes are coupled)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)

# stochastic block model: 3 communities of 29 nodes
labels = torch.arange(3).repeat_interleave(29)
n = len(labels)
prob = torch.where(labels[:, None] == labels[None, :], 0.2, 0.02)
adj = (torch.rand(n, n) < prob).float().triu(1)
adj = adj + adj.t() + torch.eye(n)
d_inv_sqrt = adj.sum(1).pow(-0.5)
adj = d_inv_sqrt[:, None] * adj * d_inv_sqrt[None, :]
features = torch.randn(n, 8) + 0.8 * F.one_hot(labels, 8)

idx = torch.randperm(n)
idx_train, idx_val, idx_test = idx[:20], idx[20:45], idx[45:]


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, input, adj):
        return adj @ (input @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


model = GCN(8, 16, 3, 0.3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def accuracy(output, labels):
    return output.argmax(1).eq(labels).double().mean()


for epoch in range(40):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()

    if (epoch + 1) % 10 == 0:
        model.eval()
        output = model(features, adj)
        loss_val = F.nll_loss(output[idx_val], labels[idx_val])
        print('Epoch: {:04d}'.format(epoch + 1), 'loss_train: {:.4f}'.format(loss_train.item()),
              'loss_val: {:.4f}'.format(loss_val.item()),
              'acc_val: {:.4f}'.format(accuracy(output[idx_val], labels[idx_val]).item()))

model.eval()
print("test accuracy", accuracy(model(features, adj)[idx_test], labels[idx_test]).item())
