"""Losses: each worker's term, with the divisor of the global batch."""

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.cases import SIZES, Case, case, table
from torch import nn

PAIRS = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "soft margin": lambda x, y, **k: F.soft_margin_loss(x, y.detach().sign(), **k),
    "poisson": lambda x, y, **k: F.poisson_nll_loss(x, y.abs(), **k),
    "hinge": lambda x, y, **k: F.hinge_embedding_loss(x, y.sign(), **k),
    "bce": lambda x, y, **k: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), **k),
    "bce with logits": lambda x, y, **k: F.binary_cross_entropy_with_logits(x, y.sigmoid(), **k),
    "kl": lambda x, y, **k: F.kl_div(x.log_softmax(-1), y.softmax(-1), **k),
    "kl in logs": lambda x, y, **k: F.kl_div(
        x.log_softmax(-1), y.log_softmax(-1), log_target=True, **k
    ),
    "gaussian": lambda x, y, **k: F.gaussian_nll_loss(x, y, (x * y).square() + 0.1, **k),
    "multilabel": lambda x, y, **k: F.multilabel_soft_margin_loss(x, (y > 0).double(), **k),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_losses_of_two_tensors(name, reduction):
    sizes = [(2, 7), (4, 3)]
    for given in ("s:b,4 s:b,4", "s:b,4 P:b,4"):
        Case(given, lambda x, y: PAIRS[name](x, y, reduction=reduction), sizes).run()
    if name not in ("multilabel",):
        for given in ("s:b s:b", "s:3,b,2@1 s:3,b,2@1"):
            Case(given, lambda x, y: PAIRS[name](x, y, reduction=reduction), sizes[:1]).run()


CLASSES = {
    "cross entropy": case("s:b,4 i4:b", lambda x, y: (F.cross_entropy(x, y), F.cross_entropy(x, y, reduction="sum"), F.cross_entropy(x, y, reduction="none"))),
    "replicated targets": case("s:b,4 I4:b", F.cross_entropy),
    "replicated scores": case("P:b,4 i4:b", F.cross_entropy),
    "nll": case("s:b,4 i4:b", lambda x, y: F.nll_loss(x.log_softmax(1), y)),
    "modules": case("s:b,4 i4:b", lambda x, y: (nn.CrossEntropyLoss()(x, y), nn.NLLLoss(reduction="sum")(x.log_softmax(1), y))),
    "weights": case("s:b,4 i4:b U:4", lambda x, y, w: [F.cross_entropy(x, y, w.detach(), reduction=r) for r in ("mean", "sum", "none")]),
    "ignored": case("s:b,4 i4:b", lambda x, y: [F.cross_entropy(x, y, ignore_index=2, reduction=r) for r in ("mean", "sum", "none")]),
    "ignored beyond the classes": case("s:b,4 i4:b U:4", lambda x, y, w: F.cross_entropy(x, y.masked_fill(y == 1, 255), weight=w.detach(), ignore_index=255)),
    "ignored on one side": case("s:b,4", lambda x: F.cross_entropy(x, torch.arange(x.size(0)).sub(1).clamp(0, 1), ignore_index=1)),
    "ignored but the first": case("s:b,4", lambda x: F.cross_entropy(x, torch.arange(x.size(0)).clamp(max=1), ignore_index=1)),
    "all ignored": case("s:b,4 P:4", lambda x, w: F.cross_entropy(x * w, torch.full((x.size(0),), -100))),
    "all ignored and another": case("s:b,4 P:4", lambda x, w: F.cross_entropy(x * w, torch.full((x.size(0),), -100)) + x.mean()),
    "smoothed": case("s:b,4 i4:b U:4", lambda x, y, w: (F.cross_entropy(x, y, label_smoothing=0.1), F.cross_entropy(x, y, w.detach(), label_smoothing=0.2, ignore_index=0))),
    "probabilities": case("s:b,4 s:b,4", lambda x, y: [F.cross_entropy(x, y.softmax(1), reduction=r) for r in ("mean", "sum", "none")]),
    "weighted probabilities": case("s:b,4 s:b,4 U:4", lambda x, y, w: F.cross_entropy(x, y.softmax(1), w.detach(), label_smoothing=0.1)),
    "images": case("s:b,4,3,2 i4:b,3,2", lambda x, y: (F.cross_entropy(x, y), F.cross_entropy(x, y, ignore_index=1), F.cross_entropy(x, y, reduction="none"))),
    "image probabilities": case("s:b,4,3 s:b,4,3", lambda x, y: F.cross_entropy(x, y.softmax(1))),
    "tokens": case("s:b,5,4 i4:b,5", lambda x, y: (F.cross_entropy(x.view(-1, 4), y.view(-1)), F.cross_entropy(x.transpose(1, 2), y, ignore_index=0))),
    "tokens, time first": case("s:5,b,4@1 i4:5,b@1", lambda x, y: (F.cross_entropy(x.view(-1, 4), y.view(-1)), F.cross_entropy(x.reshape(-1, 4), y.reshape(-1), ignore_index=3, reduction="sum"))),
    "views end to end": case("s:b,4 i4:b", lambda x, y: F.cross_entropy(torch.cat([x, x * 2]), torch.cat([y, y]))),
    "one sample": case("s:4", lambda x: F.cross_entropy(x, torch.tensor(2))),
    "classes shared out": case("s:b,4@1 i4:b", F.cross_entropy),
    "two losses": case("s:b,4 i4:b i4:b", lambda x, y, z: 0.3 * F.cross_entropy(x, y, ignore_index=0) + 0.7 * F.cross_entropy(x, z, ignore_index=1)),
    "scaled": case("s:b,4 i4:b", lambda x, y: F.cross_entropy(x, y, ignore_index=0) / 4),
    "scaled by a parameter": case("s:b,4 i4:b P:", lambda x, y, s: F.cross_entropy(x, y, ignore_index=0) * (-s).exp() + s),
    "rooted": case("s:b,4 i4:b", lambda x, y: (F.cross_entropy(x, y, ignore_index=0) + 1).sqrt()),
    "old arguments": case("s:b,4 i4:b", lambda x, y: (F.cross_entropy(x, y, size_average=False), F.cross_entropy(x, y, reduce=False))),
    "multi margin": case("s:b,4 i4:b U:4", lambda x, y, w: [F.multi_margin_loss(x, y, weight=w.detach(), reduction=r) for r in ("mean", "sum", "none")]),
    "multilabel margin": case("s:b,4 i4:b,4", lambda x, y: [F.multilabel_margin_loss(x, y.sort(1, descending=True).values, reduction=r) for r in ("mean", "sum", "none")]),
}  # fmt: skip


@table(CLASSES)
@pytest.mark.filterwarnings("ignore")
def test_losses_of_classes(case):
    case.run()


def ctc(reduction, **options):
    def loss(x, y):
        n = y.size(0)
        times = torch.full((n,), 6, dtype=torch.long)
        lengths = y[:, 0] + 1
        log_probs = x.log_softmax(2)
        return F.ctc_loss(log_probs, y + 1, times, lengths, reduction=reduction, **options)

    return loss


def ctc_of_tuples(x, y):
    n = len(y)
    return F.ctc_loss(x.log_softmax(2), y + 1, (6,) * n, (2,) * n)


def ctc_concatenated(x, y):
    n = len(y)
    return F.ctc_loss(x.log_softmax(2), (y + 1).flatten(), (6,) * n, (3,) * n)


DETAILS = {
    "bce weights": case("s:b,4 s:b,4 U:4", lambda x, y, w: (F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), w.detach()), F.binary_cross_entropy_with_logits(x, y.sigmoid(), w.detach()))),
    "bce weights of the batch": case("s:b,4 s:b,4 u:b,1", lambda x, y, w: (F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), w.detach().expand(-1, 4)), F.binary_cross_entropy_with_logits(x, y.sigmoid(), weight=w.detach()))),
    "bce positive weights": case("s:b,4 s:b,4 U:4", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=w.detach())),
    "bce positive weight": case("s:b s:b", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.tensor([3.0]))),
    "bce positive weights of the batch": case("s:b s:b U:b", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=w.detach())),
    "bce of a column": case("s:b,1 s:b", lambda x, y: F.binary_cross_entropy_with_logits(x.squeeze(1), y.sigmoid())),
    "mse weights": case("s:b,4 s:b,4 u:b,4", lambda x, y, w: [F.mse_loss(x, y, weight=w.detach(), reduction=r) for r in ("mean", "sum", "none")]),
    "l1 and huber weights": case("s:b,4 s:b,4 u:b,4", lambda x, y, w: (F.l1_loss(x, y, weight=w.detach()), F.huber_loss(x, y, weight=w.detach()))),
    "stretched": case("s:b,4 s:b,1", lambda x, y: F.mse_loss(x, y.expand_as(x))),
    "stretched by mistake": case("s:b,1 s:b", F.mse_loss),
    "stretched by mistake, replicated": case("s:b,1 P:b", F.mse_loss),
    "a replicated row": case("s:b,4 P:4", F.mse_loss),
    "arguments by position": case("s:b,4 s:b,4", lambda x, y: (F.smooth_l1_loss(x, y, None, None, "sum", 0.5), F.huber_loss(x, y, "sum", 0.5))),
    "kl batchmean": case("s:b,4 s:b,4", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean")),
    "kl batchmean of time": case("s:b,3,4 s:b,3,4", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean")),
    "kl batchmean, time first": case("s:3,b,4@1 s:3,b,4@1", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean")),
    "gaussian of one variance": case("s:b,4 s:b,4 u:b,1", lambda x, y, v: F.gaussian_nll_loss(x, y, v)),
    "gaussian of a variance a sample": case("s:b,4 s:b,4 u:b", lambda x, y, v: F.gaussian_nll_loss(x, y, v)),
    "gaussian of a replicated variance": case("s:b,4 s:b,4 U:b", lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True)),
    "gaussian of a number": case("s:b,4 s:b,4", lambda x, y: F.gaussian_nll_loss(x, y, torch.full((x.size(0), 4), 0.3))),
    "triplet": case("s:b,4 s:b,4 s:b,4", lambda a, p, n: [F.triplet_margin_loss(a, p, n, margin=2, swap=True, reduction=r) for r in ("mean", "sum", "none")]),
    "triplet by distance": case("s:b,4 s:b,4 s:b,4", lambda a, p, n: F.triplet_margin_with_distance_loss(a, p, n, distance_function=lambda u, v: 1 - F.cosine_similarity(u, v))),
    "cosine": case("s:b,4 s:b,4 i2:b", lambda x, y, t: [F.cosine_embedding_loss(x, y, t * 2 - 1, margin=0.1, reduction=r) for r in ("mean", "sum", "none")]),
    "cosine to a replicated sign": case("s:b,4 s:b,4", lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(x.size(0)))),
    "cosine to one sign": case("s:b,4 s:b,4", lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(1))),
    "ranking": case("s:b s:b", lambda x, y: (F.margin_ranking_loss(x, y, torch.ones_like(x), margin=0.5), F.margin_ranking_loss(x, y, torch.ones(1)))),
    "ctc": case("s:6,b,4@1 i3:b,3", ctc("mean"), SIZES),
    "ctc sum": case("s:6,b,4@1 i3:b,3", ctc("sum")),
    "ctc none": case("s:6,b,4@1 i3:b,3", ctc("none")),
    "ctc without infinity": case("s:2,b,4@1 i3:b,3", lambda x, y: F.ctc_loss(x.log_softmax(2), y + 1, torch.full((len(y),), 2), y[:, 0] + 1, zero_infinity=True)),
    "ctc of tuples": case("s:6,b,4@1 i3:b,3", ctc_of_tuples),
    "ctc concatenated": case("s:6,b,4@1 i3:b,3", ctc_concatenated),
    "ctc of batch first": case("s:b,6,4 i3:b,3", lambda x, y: ctc("mean")(x.transpose(0, 1), y)),
    "ctc cut along time": case("s:6,b,4@0 i3:b,3", ctc("mean")),
    "ctc of one": case("s:6,1,4@1", lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2]]), (6,), (2,))),
    "ctc of one without a batch": case("s:6,4", lambda x: F.ctc_loss(x.log_softmax(1), torch.tensor([1, 2]), torch.tensor(6), torch.tensor(2))),
}  # fmt: skip


@table(DETAILS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_details_of_losses(case):
    case.run()


HANDWRITTEN = {
    "squares": case("s:b,4 s:b,4", lambda x, y: ((x - y) ** 2).mean()),
    "sum over samples": case("s:b,4 s:b,4", lambda x, y: ((x - y) ** 2).sum() / x.shape[0]),
    "sum over samples by len": case("s:b,4 s:b,4", lambda x, y: (x - y).abs().sum(1).sum() / len(x)),
    "mean of sums": case("s:b,4", lambda x: x.pow(2).sum(dim=1).mean(dim=0)),
    "rmse": case("s:b,4 s:b,4", lambda x, y: torch.sqrt(((x - y) ** 2).mean() + 1e-8)),
    "rmsle": case("u:b u:b", lambda x, y: torch.sqrt(F.mse_loss(torch.log1p(x), torch.log1p(y)))),
    "masked mean": case("s:b,4 m:b,4", lambda x, m: (x * m).sum() / m.sum()),
    "masked mean, clamped": case("s:b,4 m:b,4", lambda x, m: (x.square() * m).sum() / m.sum().clamp(min=1)),
    "masked select": case("s:b,4 m:b,4", lambda x, m: x[m].square().mean()),
    "mean a sample": case("s:b,4 m:b,4", lambda x, m: ((x * m).sum(1) / m.sum(1).clamp(min=1)).mean()),
    "dice": case("s:b,5 m:b,5", lambda x, m: 1 - (2 * (x.sigmoid() * m).sum() + 1) / (x.sigmoid().sum() + m.sum() + 1)),
    "dice a sample": case("s:b,5 m:b,5", lambda x, m: (1 - (2 * (x.sigmoid() * m).sum(1) + 1) / (x.sigmoid().sum(1) + m.sum(1) + 1)).mean()),
    "iou": case("s:b,5 m:b,5", lambda x, m: (lambda i: i / (x.sigmoid().sum() + m.double().sum() - i + 1e-6))((x.sigmoid() * m).sum())),
    "focal": case("s:b,4 i4:b", lambda x, y: (lambda c: (0.25 * (1 - torch.exp(-c)) ** 2 * c).mean())(F.cross_entropy(x, y, reduction="none"))),
    "hard examples": case("s:b,4 i4:b", lambda x, y: F.cross_entropy(x, y, reduction="none").topk(max(1, len(y) // 2)).values.mean()),
    "weighted samples": case("s:b,4 i4:b u:b", lambda x, y, w: (F.cross_entropy(x, y, reduction="none") * w).sum() / w.sum()),
    "contrast": case("s:b,4", lambda z: F.cross_entropy(F.normalize(z, dim=1) @ F.normalize(z, dim=1).T / 0.1, torch.arange(z.size(0)))),
    "contrast both ways": case("s:b,4 s:b,4 P:", lambda x, y, s: (lambda l: (F.cross_entropy(l, torch.arange(len(x))) + F.cross_entropy(l.t(), torch.arange(len(x)))) / 2)(s.exp() * F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t())),
    "two views": case("s:b,4 s:b,4", lambda x, y: nt_xent(x, y)),
    "barlow": case("s:b,4 s:b,4", lambda x, y: barlow(x, y), [(2, 7), (3, 10), (4, 3)]),
    "vicreg": case("s:b,4 s:b,4", lambda x, y: vicreg(x, y), [(2, 7), (3, 10), (4, 3)]),
    "gram": case("s:b,3,2,2 P:b,3,2,2", lambda x, y: F.mse_loss(gram(x), gram(y))),
    "gram of all": case("s:b,3,2,2", lambda x: (lambda f: (f @ f.t() / f.numel()).square().sum())(x.view(x.size(0) * 3, 4))),
    "distances": case("s:b,4", lambda x: torch.cdist(x + 1e-3, x.detach()).triu(1).sum()),
    "pairs": case("s:b,4 i3:b", lambda x, y: (((x[:, None] - x[None]) ** 2).sum(-1) * (y[:, None] == y[None])).mean()),
    "pairs by class": case("s:b,4 i3:b", lambda x, y: (lambda d, s: (d * s).sum() / s.sum() - (d * ~s).mean())(torch.cdist(x, x.flip(0)), y[:, None] == y)),
    "centres": case("s:b,4 i3:b P:3,4", lambda x, y, c: ((x - c[y]) ** 2).sum() / 2 / x.size(0)),
    "prototypes": case("s:b,4 i3:b", lambda x, y: F.cross_entropy(-torch.cdist(x, torch.stack([x[y == k].mean(0) if (y == k).any() else x.mean(0) * 0 for k in range(3)])), y)),
    "vae": case("s:b,4 s:b,4 s:b,4", lambda x, m, v: F.binary_cross_entropy_with_logits(x, m.sigmoid(), reduction="sum") - 0.5 * torch.sum(1 + v - m.pow(2) - v.exp())),
    "vae a sample": case("s:b,4 s:b,4 s:b,4", lambda x, m, v: F.mse_loss(x, m) + 0.1 * torch.mean(-0.5 * torch.sum(1 + v - m**2 - v.exp(), dim=1), dim=0)),
    "hinges": case("s:b s:b", lambda r, f: torch.mean(F.relu(1 - r)) + torch.mean(F.relu(1 + f))),
    "relativistic": case("s:b s:b", lambda r, f: F.softplus(-(r - f.mean())).mean() + F.softplus(f - r.mean()).mean()),
    "penalties": case("s:b,4 P:4,3", lambda x, w: (x @ w).square().mean() + 0.1 * w.abs().sum() + 0.01 * w.norm()),
    "uncertainty": case("s:b,4 s:b,4 P:2", lambda x, y, s: sum(torch.exp(-s[k]) * t + s[k] for k, t in enumerate([F.mse_loss(x, y), F.l1_loss(x, y)]))),
    "quantiles": case("s:b s:b", lambda x, y: sum(torch.max(q * (y - x), (q - 1) * (y - x)).mean() for q in (0.1, 0.5, 0.9)) / 3),
    "correlation": case("s:b s:b", lambda x, y: (lambda a, b: (a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt().clamp(min=1e-9))(x - x.mean(), y - y.mean())),
    "r squared": case("s:b s:b", lambda x, y: 1 - ((y - x) ** 2).sum() / ((y - y.mean()) ** 2).sum().clamp(min=1e-9)),
    "moments": case("s:b,4 P:4", lambda x, m: (x.mean(0) - m).square().sum() + (x.var(0, unbiased=False) - 1).abs().sum()),
    "mmd": case("s:b,4 s:b,4", lambda x, y: sum(s * torch.exp(-torch.cdist(a, b) ** 2 / 2).mean() for a, b, s in ((x, x.detach() + 1e-3, 1), (y, y.detach() + 1e-3, 1), (x, y, -2)))),
    "dot products": case("s:b,4 s:b,4 s:b,3,4", lambda u, v, n: -(F.logsigmoid((u * v).sum(1)) + F.logsigmoid(-torch.bmm(n, u.unsqueeze(2)).squeeze(2)).sum(1)).mean()),
    "distillation": case("s:b,4 s:b,4 i4:b", lambda x, t, y: 0.7 * 4 * F.kl_div(F.log_softmax(x / 2, 1), F.softmax(t.detach() / 2, 1), reduction="batchmean") + 0.3 * F.cross_entropy(x, y)),
    "log sum": case("s:b,4", lambda x: (x.exp().sum(0).log().mean(), x.logsumexp(0).sum(), torch.logsumexp(x.flatten(), 0))),
    "total variation": case("s:b,3,4,4", lambda x: (x[..., 1:] - x[..., :-1]).abs().mean() + (x[:, :, 1:] - x[:, :, :-1]).abs().mean()),
    "loop over samples": case("s:b,4 i4:b", lambda x, y: sum(F.cross_entropy(x[i : i + 1], y[i : i + 1]) for i in range(len(x))) / len(x)),
    "loop over classes": case("s:b,4 i4:b", lambda x, y: torch.stack([x[:, c][y == c].sum() for c in range(4)]).mean()),
}  # fmt: skip


def nt_xent(x, y):
    z = F.normalize(torch.cat([x, y], dim=0), dim=1)
    n = x.size(0)
    scores = z @ z.t() / 0.5
    scores = scores.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    targets = torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)])
    return F.cross_entropy(scores, targets)


def barlow(x, y):
    x = (x - x.mean(0)) / (x.std(0) + 1e-3)
    y = (y - y.mean(0)) / (y.std(0) + 1e-3)
    c = x.T @ y / x.shape[0]
    return (c.diagonal() - 1).pow(2).sum() + 0.01 * (c - torch.diag(c.diagonal())).pow(2).sum()


def vicreg(x, y):
    def covariance(z):
        z = z - z.mean(dim=0)
        c = (z.T @ z) / (z.size(0) - 1)
        return (c.pow(2).sum() - c.diagonal().pow(2).sum()) / z.size(1)

    spread = F.relu(1 - torch.sqrt(x.var(dim=0) + 1e-4)).mean()
    return F.mse_loss(x, y) + spread + covariance(x) + covariance(y)


def gram(x):
    f = x.flatten(2)
    return torch.bmm(f, f.transpose(1, 2)) / f.size(2)


@table(HANDWRITTEN)
def test_losses_written_by_hand(case):
    case.run()
