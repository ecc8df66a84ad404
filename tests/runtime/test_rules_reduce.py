"""Reductions, with and without the batch among the dimensions; sorting; accumulating."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.runtime.cases import FEW, Case, case, kept, table

REDUCTIONS = {
    name: (lambda x, name=name, **options: getattr(torch, name)(x, **options))
    for name in "sum mean nansum prod amax amin logsumexp var std count_nonzero".split()
}
NO_KEEPDIM = ("count_nonzero",)
NEEDS_DIM = ("logsumexp",)
ONE_DIM = ("prod",)
DIMS = {
    "all": {},
    "the batch": {"dim": 0},
    "another": {"dim": 1},
    "the last, kept": {"dim": -1, "keepdim": True},
    "the batch, kept": {"dim": 0, "keepdim": True},
    "two": {"dim": (1, 2)},
    "two with the batch": {"dim": [0, -1]},
    "two, kept": {"dim": (0, 2), "keepdim": True},
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dims", DIMS)
def test_reductions(name, dims):
    options = DIMS[dims]
    if name in NEEDS_DIM and not options:
        pytest.skip("needs a dimension")
    if name in ONE_DIM and not isinstance(options.get("dim", 0), int):
        pytest.skip("takes one dimension")
    if name in NO_KEEPDIM and "keepdim" in options:
        pytest.skip("keeps no dimension")
    for given in ("u:b,3,2", "u:3,b,2@1", "u:2,3,b@2"):
        Case(given, lambda x: REDUCTIONS[name](x, **options), [(2, 5), (4, 3)]).run()


ARGUMENTS = {
    "sum by position": case("s:b,3,2", lambda x: (x.sum(0), x.sum((0, 1), True), x.sum(2, True))),
    "sum by axis": case("s:b,3,2", lambda x: (x.sum(axis=0), x.mean(axis=(1, 2), keepdims=True))),
    "sum of flags": case("m:b,3", lambda x: (x.sum(), x.sum(0), x.sum(1), x.sum(dim=0).float())),
    "sum in another type": case("i9:b,3", lambda x: (x.sum(dtype=torch.float32), x.sum(0, dtype=torch.float64))),
    "mean in another type": case("i9:b,3", lambda x: (x.mean(dtype=torch.float64), x.mean(0, dtype=torch.float64))),
    "keywords only": case("s:b,3", lambda x: (torch.sum(input=x, dim=0), torch.mean(input=x))),
    "sum of a list of rows": case("s:b,3", lambda x: sum(x)),
    "mean of no rows": case("s:b,3", lambda x: x[:0].sum(0)),
    "numpy's sum": case("n:b,3", lambda x: float(np.mean(x.numpy()))),
    "var by position": case("s:b,3,4", lambda x: (x.var(1), x.var(1, False), x.std(1, True, True), x.var((1, 2), False, True))),
    "var by keywords": case("s:b,3,4", lambda x: (x.var(dim=2, unbiased=False), x.std(dim=1, correction=0, keepdim=True))),
    "var over the batch": case("s:b,3", lambda x: (x.var(0, unbiased=False), x.std(unbiased=False), x.var((0, 1), correction=0))),
    "var_mean": case("s:b,3", lambda x: (torch.var_mean(x, 1), torch.std_mean(x, 1, False), torch.var_mean(x, 0, unbiased=False))),
    "norm": case("s:b,3", lambda x: (x.norm(), x.norm(2, 1), x.norm(dim=1), x.norm(p=1, dim=1, keepdim=True), torch.norm(x, dim=0))),
    "linalg norm": case("s:b,3", lambda x: (torch.linalg.norm(x, dim=1), torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, 1, dim=1), torch.linalg.norm(x))),
    "renorm": case("s:b,3", lambda x: F.normalize(x, dim=1) + F.normalize(x, p=1, dim=0) + F.normalize(x)),
    "normalize by keyword": kept("s:b,3,2", lambda x: F.normalize(x, dim=-1)),
    "max": case("s:b,3", lambda x: (x.max(), x.min(), x.max(1), x.min(0), torch.max(x, dim=1, keepdim=True))),
    "max of whole numbers": case("i9:b,3", lambda x: (x.max(), x.min(), x.amax(), x.max(0).values, x.amin(1))),
    "max of flags": case("m:b,3", lambda x: (x.max(), x.amin(), x.any(), x.all(), x.any(0), x.all(1, keepdim=True))),
    "max without gradient": case("n:b,3", lambda x: (x.max(), x.min(), x.amax(), x.max().item(), x.aminmax())),
    "max of one dimension": case("n:b", lambda x: (x.max(), x.argmax(), x.max(0), torch.max(-x))),
    "max of two": case("s:b,3 s:b,3", lambda x, y: (torch.max(x, y), torch.min(x, y), torch.max(x, other=y))),
    "max of a replicated one": case("s:b,3 P:3", lambda x, w: (torch.max(x, w), torch.min(w, x))),
    "max with no number": case("n:b,3", lambda x: (x.log().max(), x.log().min())),
    "argmax": case("s:b,3", lambda x: (x.argmax(), x.argmax(1), x.argmin(0), x.argmax(dim=-1, keepdim=True))),
    "median": case("s:b,3", lambda x: (x.median(), x.median(1), x.median(0), x.nanmedian(), torch.median(x, dim=1, keepdim=True))),
    "mode": case("i3:b,5", lambda x: (x.mode(1), x.mode(0), x.mode())),
    "kthvalue": case("s:b,3", lambda x: (x.kthvalue(2), x.kthvalue(2, 1), x.kthvalue(1, 0))),
    "quantile": case("s:b,3", lambda x: (x.quantile(0.3), x.quantile(0.3, 1), torch.quantile(x, torch.tensor([0.1, 0.5]), dim=1), torch.quantile(x, 0.2, dim=0, keepdim=True))),
    "nan": case("s:b,3", lambda x: (x.log().nanmean(), x.log().nansum(0), x.log().nanmean(1))),
    "topk": case("s:b,3", lambda x: (x.topk(2), x.topk(2, 1), torch.topk(x, 1, dim=0), x.flatten().topk(2), torch.topk(x, k=2, dim=-1, largest=False))),
    "sort": case("s:b,3", lambda x: (x.sort(), x.sort(1, True), x.sort(0), torch.sort(x, dim=1, descending=True), x.sort(descending=True, stable=True))),
    "argsort": case("s:b,3", lambda x: (x.argsort(), x.argsort(0), torch.argsort(x, dim=-1, descending=True), x.msort())),
    "accumulate": case("s:b,3", lambda x: (x.cumsum(1), x.cumsum(0), torch.cumprod(x, dim=1), x.cummax(1), x.logcumsumexp(-1))),
    "difference": case("s:b,3", lambda x: (x.diff(), x.diff(dim=0), torch.diff(x, n=2))),
    "softmax": case("s:b,3", lambda x: (x.softmax(1), F.softmax(x, dim=0), x.log_softmax(-1), F.softmin(x, 1), torch.softmax(x, dim=1, dtype=torch.float32))),
    "softmax of three": kept("s:b,3,2", lambda x: (F.softmax(x, dim=1), F.log_softmax(x, 2), torch.log_softmax(x, -1))),
    "flip": case("s:b,3,2", lambda x: (x.flip(1), x.flip(0), x.flip(1, 2), x.flip([0, 1]), torch.flip(x, dims=(2,)), x.fliplr())),
    "flip with the batch in the middle": case("s:3,b,2@1", lambda x: (x.flip(0, 2), x.flip(0, 1), x.flip(2, 1))),
    "roll": case("s:b,3", lambda x: (x.roll(1, 1), x.roll(1, 0), x.roll(1), torch.roll(x, shifts=(1, 2), dims=(0, 1)))),
    "unique": case("i3:b,2", lambda x: (x.unique(), torch.unique(x, return_counts=True), x.flatten().bincount(minlength=4))),
    "histogram": case("n:b", lambda x: torch.histc(x, bins=4)),
    "trace": case("s:b,b", lambda x: (x.trace(), x.diagonal(), x.diag(), x.tril(), x.triu(1), x.det())),
    "triangles": kept("s:b,3,3", lambda x: (x.tril(), x.triu(1), torch.tril(x, -1))),
    "glu": kept("s:b,4", lambda x: (F.glu(x), F.glu(x, 1))),
    "cross": case("s:b,3 s:b,3", lambda x, y: torch.cross(x, y, dim=1)),
    "distances": case("s:b,3 s:b,3", lambda x, y: (F.pairwise_distance(x, y), F.cosine_similarity(x, y), F.pairwise_distance(x, y, 1.0, 1e-6, True))),
    "similarity": kept("s:b,3 P:3", lambda x, w: (F.cosine_similarity(x, w, dim=-1), F.cosine_similarity(x, w.unsqueeze(0)))),
    "similarity of all pairs": case("s:b,3 s:b,3", lambda x, y: F.cosine_similarity(x[:, None], y[None], dim=-1)),
    "dist": case("s:b,3 s:b,3", lambda x, y: (torch.dist(x, y), F.pdist(x))),
}  # fmt: skip


@table(ARGUMENTS)
def test_arguments_of_reductions(case):
    case.run()


@pytest.mark.parametrize("given", ["s:b,3", "s:3,b@1", "s:b,2,3", "s:b"])
@pytest.mark.parametrize("centre", ["mean", "sum"])
def test_standardising_by_the_batch_needs_no_gather(given, centre):
    def standardised(x):
        mean = getattr(x, centre)(0, keepdim=True)
        scale = ((x - mean) ** 2).mean(0, keepdim=True)
        return (x - mean) / (scale + 1e-5).sqrt()

    Case(given, standardised, FEW).run()
