"""Views, joins and indices: where the batch goes when dimensions move about."""

import numpy as np
import torch
import torch.nn.functional as F
from tests.runtime.cases import case, kept, table, written

VIEWS = {
    "view by the size": kept("s:b,4,3", lambda x: (x.view(x.size(0), -1), x.view(x.size(0), 12))),
    "view by a free size": kept("s:b,4,3", lambda x: (x.view(-1, 12), x.view(-1, 2, 6), x.reshape(-1, 4, 3))),
    "view as a tuple": kept("s:b,4,3", lambda x: (x.view((-1, 12)), x.reshape([x.size(0), 12]), x.view(x.shape[0], *x.shape[1:]))),
    "view by shape": kept("s:b,4,3", lambda x: x.view(x.shape) + x.reshape(x.size())),
    "view_as": kept("s:b,12 s:b,4,3", lambda x, y: (x.view_as(y), y.reshape_as(x))),
    "view_as across the batch": case("s:b,4 s:4,b@1", lambda x, y: x.reshape_as(y)),
    "view_as a replicated one": case("s:b,12 S:b,4,3", lambda x, y: (x.view_as(y), y.view_as(x))),
    "batch with time": kept("s:b,4,3", lambda x: (x.view(-1, 3), x.reshape(x.size(0) * 4, 3), x.flatten(0, 1))),
    "batch with time and back": kept("s:b,4,3", lambda x: x.view(-1, 3).view(x.size(0), 4, 3) * x.view(-1, 3).view(-1, 4, 3)),
    "time with batch": kept("s:4,b,3@1", lambda x: (x.view(-1, 3), x.reshape(4 * x.size(1), 3), x.flatten(0, 1))),
    "time with batch and back": kept("s:4,b,3@1", lambda x: (x.view(-1, 3).view(4, -1, 3), x.reshape(-1, 3).view(4, x.size(1), 3))),
    "time with batch, turned": case("s:4,b,3@1", lambda x: (x.transpose(0, 1).reshape(-1, 3), x.permute(1, 2, 0).reshape(x.size(1), -1))),
    "everything in a row": kept("s:b,4,3", lambda x: (x.view(-1), x.flatten(), x.reshape(-1), x.ravel())),
    "everything in a row, batch inside": kept("s:4,b,3@1", lambda x: (x.reshape(-1), x.flatten())),
    "across the batch": case("s:b,4", lambda x: (x.reshape(4, -1), x.reshape(2, -1), x.view(1, -1))),
    "a batch in front": kept("s:b,4", lambda x: (x.view(1, -1, 4), x.reshape(1, x.size(0), 2, 2))),
    "heads": kept("s:b,5,6", lambda x: x.view(x.size(0), 5, 2, 3).transpose(1, 2).contiguous().view(x.size(0) * 2, 5, 3)),
    "heads and back": kept("s:b,5,6", lambda x: x.view(x.size(0), -1, 2, 3).transpose(1, 2).transpose(1, 2).reshape(x.size(0), -1, 6)),
    "heads with the batch second": kept("s:5,b,6@1", lambda x: x.reshape(5, x.size(1) * 2, 3).transpose(0, 1)),
    "patches": kept("s:b,3,4,4", lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).reshape(x.size(0), 3, -1, 4).transpose(1, 2).flatten(2)),
    "flatten": kept("s:b,4,3,2", lambda x: (x.flatten(1), torch.flatten(x, 1, 2), x.flatten(start_dim=2), x.flatten(-2))),
    "unflatten": kept("s:b,12", lambda x: (x.unflatten(1, (4, 3)), x.unflatten(-1, (-1, 6)), torch.unflatten(x, 1, (2, 6)))),
    "unflatten the batch": case("s:2b,3", lambda x: (x.unflatten(0, (-1, 2)), x.unflatten(0, (2, -1)))),
    "permute": kept("s:b,4,3", lambda x: (x.permute(1, 0, 2), x.permute(2, 1, 0), torch.permute(x, (0, 2, 1)), x.permute(-1, 0, 1))),
    "transpose": kept("s:b,4,3", lambda x: (x.transpose(0, 1), x.transpose(-1, -2), torch.transpose(x, 0, 2), x.swapaxes(0, 1))),
    "t": kept("s:b,4", lambda x: (x.t(), x.T, x.mT, torch.t(x), x.H, x.T.T)),
    "mT of three": kept("s:b,4,3", lambda x: (x.mT, x.mT.mT)),
    "movedim": kept("s:b,4,3", lambda x: (x.movedim(0, 2), x.movedim((0, 1), (1, 2)), torch.moveaxis(x, 1, 0))),
    "squeeze": kept("s:b,1,4,1", lambda x: (x.squeeze(1), x.squeeze(-1), x.squeeze(2), x.squeeze((1, 3)), torch.squeeze(x, 1)), [(2, 7), (3, 2)]),
    "squeeze all": case("s:b,1,4,1", lambda x: (x.squeeze(), x.squeeze(0), torch.squeeze(x))),
    "squeeze a column": case("s:b,1", lambda x: (x.squeeze(), x.squeeze(1), x.squeeze(-1), x.squeeze().sum())),
    "unsqueeze": kept("s:b,4", lambda x: (x.unsqueeze(0), x.unsqueeze(1), x.unsqueeze(-1), x[None], x[:, None], x[..., None])),
    "expand": kept("s:b,1,4", lambda x: (x.expand(-1, 3, 4), x.expand(x.size(0), 3, -1), x.expand(2, -1, 3, 4), x.expand((x.size(0), 3, 4)))),
    "expand a batch of one": case("s:1,4", lambda x: (x.expand(5, 4), x.expand(5, -1), x.broadcast_to((3, 4)))),
    "expand as": kept("s:b,1 s:b,4", lambda x, y: (x.expand_as(y), torch.broadcast_to(x, y.shape))),
    "expand a parameter": case("P:1,1,4 s:b,3,4", lambda w, x: torch.cat([w.expand(x.size(0), -1, -1), x], 1)),
    "repeat": case("s:b,2,4", lambda x: (x.repeat(1, 3, 1), x.repeat(2, 1, 1), x.repeat(2, 1, 1, 1), x.tile((1, 1, 2)), x.tile(2))),
    "repeat a parameter": case("P:4 s:b,4", lambda w, x: w.repeat(x.size(0), 1) * x),
    "repeat interleaved": case("s:b,2", lambda x: (x.repeat_interleave(3, 0), x.repeat_interleave(2, dim=1), x.repeat_interleave(2), x.repeat_interleave(torch.arange(2), dim=1))),
    "broadcast": case("s:b,1 s:b,4", lambda x, y: torch.broadcast_tensors(x, y)),
    "complex": case("s:b,4,2", lambda x: (torch.view_as_complex(x * 1).abs(),)),
    "bits": case("n:b,4", lambda x: x.view(torch.int64)),
    "as strided": case("n:b,4", lambda x: x.as_strided((2, 2), (1, 1))),
    "meshgrid": case("s:b S:3", lambda x, y: torch.meshgrid(x, y, indexing="ij")),
}  # fmt: skip


@table(VIEWS)
def test_views(case):
    case.run()


def rounds(x):
    """Forth and back: what was put end to end is taken apart again."""
    both = torch.cat([x, x * 2])
    one, two = both.chunk(2)
    three, four = both.split(x.size(0))
    five, six = torch.split(both, both.size(0) // 2)
    return one * two, three - four, five + six


JOINS = {
    "cat": kept("s:b,4 s:b,2", lambda x, y: (torch.cat([x, y], 1), torch.cat((y, x), dim=-1), torch.concat([x, x], dim=1))),
    "cat a replicated one": kept("s:b,4 P:b,2", lambda x, y: torch.cat([x, y], 1)),
    "cat batches": kept("s:b,4 s:b,4", lambda x, y: (torch.cat([x, y]), torch.cat([x, y, x], 0).t(), torch.cat([x, y]).view(-1, 2, 2))),
    "cat batches and merge": case("s:b,3,2 s:b,3,2", lambda x, y: (torch.cat([x, y]).flatten(0, 1), torch.cat([x.flatten(0, 1), y.flatten(0, 1)]))),
    "cat batches of time first": kept("s:3,b,2@1", lambda x: (torch.cat([x, x], 1), torch.cat([x.view(-1, 2), x.view(-1, 2)]))),
    "cat unequal batches": case("s:b,4 S:3,4", lambda x, y: (torch.cat([x, y]), torch.cat([y, x, x]))),
    "cat and take apart": kept("s:b,4", rounds),
    "cat and compute": case("s:b,4 P:4,3", lambda x, w: (torch.cat([x, -x]) @ w).softmax(1).mean(0)),
    "cat and compare": case("s:b,4", lambda x: (lambda z: (z @ z.t()).logsumexp(1).mean())(F.normalize(torch.cat([x, x * x]), dim=1))),
    "cat empty": case("s:b,4", lambda x: torch.cat([torch.tensor([]), x])),
    "cat sums": case("s:b,4", lambda x: torch.cat([x.sum(0), x.mean(0)])),
    "stack": kept("s:b,4 s:b,4", lambda x, y: (torch.stack([x, y]), torch.stack([x, y], 1), torch.stack((y, x), dim=-1))),
    "stack a replicated one": kept("s:b,4 P:b,4", lambda x, y: torch.stack([x, y], 1)),
    "stack rows": case("s:b,4", lambda x: torch.stack([row * 2 for row in x])),
    "stacks": case("s:b,4 s:b,4", lambda x, y: (torch.hstack([x, y]), torch.vstack([x, y]), torch.column_stack([x, y]))),
    "split": kept("s:b,4", lambda x: (x.split(2, 1), x.chunk(2, dim=1), torch.split(x, [1, 3], dim=1), x.tensor_split(3, 1), x.split([2, 2], -1))),
    "split the batch": case("s:b,4", lambda x: (x.split(2), x.chunk(2), torch.split(x, 3, 0))),
    "unbind": kept("s:b,4", lambda x: (x.unbind(1), x.t().unbind(0), torch.unbind(x, dim=-1))),
    "unbind the batch": case("s:b,4", lambda x: x.unbind()),
    "narrow": kept("s:b,4", lambda x: (x.narrow(1, 1, 2), torch.narrow(x, -1, 0, 3), x.select(1, 2), torch.select(x, 1, 0))),
    "narrow the batch": case("s:b,4", lambda x: (x.narrow(0, 0, 1), x.select(0, 0))),
    "windows": kept("s:b,6", lambda x: (x.unfold(1, 3, 2), x.unfold(-1, 2, 1))),
    "pad": kept("s:b,2,4", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 1), value=3.0), F.pad(x, (1, 1), "reflect"), F.pad(x, [1, 1], mode="circular"))),
    "pad the batch": case("s:b,4", lambda x: F.pad(x, (0, 0, 1, 2))),
    "block diagonal": case("s:b,2", lambda x: torch.block_diag(x, x)),
}  # fmt: skip


@table(JOINS)
def test_joins(case):
    case.run()


def picked(x, y):
    return x[torch.arange(x.size(0)), y], x[range(len(x)), y], x[np.arange(len(x)), y]


INDICES = {
    "kept": kept("s:b,4,3", lambda x: (x[:], x[:, 1], x[:, -1, :], x[..., 0], x[:, :2, 1:], x[:, ::2], x[0:])),
    "kept with new dimensions": kept("s:b,4", lambda x: (x[None], x[:, None], x[None, :, 2], x[..., None, 1])),
    "kept behind": kept("s:4,b,3@1", lambda x: (x[0], x[-1, :, 1:], x[1:3], x[:, :, 0], x[[0, 2]], x[None, 0])),
    "lists": kept("s:b,4", lambda x: (x[:, [0, 2]], x[:, torch.tensor([1, 3, 1])], x[:, np.array([0, 1])], x[:, [[0, 1], [2, 3]]])),
    "lists before the batch": kept("s:4,b,3@1", lambda x: (x[[0, 2]], x[torch.tensor([[0, 1], [1, 2]])], x[np.int64(1)], x[torch.tensor(2)])),
    "lists and numbers": case("s:4,b,3@1", lambda x: (x[[0, 2], :, 1], x[1, :, [0, 2]], x[[0, 1], :, [1, 2]])),
    "one row": case("s:b,4", lambda x: (x[0], x[-1], x[0, 1], x[0][2], x[0:1], x[len(x) - 1])),
    "slices of the batch": case("s:b,4", lambda x: (x[1:], x[:-1], x[::2], x[: x.size(0) // 2], x[:2, 1])),
    "a permuted batch": case("s:b,4", lambda x: (x[torch.arange(x.size(0)).flip(0)], x[list(range(len(x)))])),
    "a mask": case("s:b,4", lambda x: (x[x > 0], x[x[:, 0] > 0], x[(x > 0).all(1)].sum(), x[:, torch.tensor([True, False, True, True])])),
    "a replicated mask": case("s:b,4 M:b", lambda x, m: (x[m], x[~m].sum(0), x[m.nonzero().squeeze(1)])),
    "picked": kept("s:b,4 i4:b", picked),
    "picked by a replicated index": kept("s:b,4 I4:b", picked),
    "picked from three dimensions": kept("s:b,4,3 i4:b", lambda x, y: (x[torch.arange(len(x)), y], x[torch.arange(len(x)), y, 1:])),
    "picked by one column": case("s:b,4", lambda x: (x[torch.arange(len(x)), 1], x[torch.arange(len(x)), [1]])),
    "picked backwards": case("s:b,4 i4:b", lambda x, y: x[torch.arange(len(x)).flip(0), y]),
    "picked tokens": kept("s:b,3,4 i4:b,3", lambda x, y: x.view(-1, 4)[torch.arange(len(x) * 3), y.view(-1)]),
    "a table": kept("P:4,3 i4:b", lambda w, i: (w[i], w[i] * 2, w.t()[:, i], w[i, i % 3])),
    "a table by two": kept("P:4,3 i4:b,2", lambda w, i: (w[i], w[i][:, 0], w.unsqueeze(0)[:, i])),
    "a table by mixed": case("P:4,3 i3:b", lambda w, i: (w[0, i], w[torch.tensor([0]), i], w[i, 0])),
    "a buffer by time": kept("P:9,3 s:b,4,3", lambda w, x: x + w[: x.size(1)]),
    "own index": case("s:b,4 i4:b,2", lambda x, i: (x.gather(1, i), torch.gather(x, 1, i[:, :1]), x.gather(0, i[:1] * 0))),
    "gather time": kept("s:b,4,3 i4:b", lambda x, i: x.gather(1, i.view(-1, 1, 1).expand(-1, 1, 3)).squeeze(1)),
    "gather a replicated index": case("s:b,4 I4:b,2", lambda x, i: (x.gather(1, i), x.gather(1, i[:1]))),
    "gather from a replicated one": case("P:b,4 i4:b,2", lambda w, i: (w.gather(1, i), torch.take_along_dim(w, i, 1), torch.take(w, i))),
    "index_select": kept("s:b,4", lambda x: (x.index_select(1, torch.tensor([0, 2])), torch.index_select(x, -1, torch.tensor([1])))),
    "index_select rows": case("s:b,4 i3:b", lambda x, i: (x.index_select(0, torch.tensor([0])), x.new_ones(3, 2).index_select(0, i))),
    "index_select a table": kept("P:4,3 i4:b", lambda w, i: (w.index_select(0, i), torch.index_select(w.t(), 1, i))),
    "scatter": kept("n:b,4 i4:b,1 s:b,1", lambda x, i, v: (x.scatter(1, i, 1.0), x.scatter(1, i, v), x.scatter_add(1, i, v))),
    "scatter into zeros": kept("i4:b", lambda y: torch.zeros(y.size(0), 4).scatter_(1, y.unsqueeze(1), 1)),
    "scatter into fixed zeros": case("i4:b", lambda y: torch.zeros(len(y), 4).scatter_(1, y.unsqueeze(1), 1)),
    "scatter by class": case("s:b,3 i4:b", lambda x, y: (torch.zeros(4, 3).index_add(0, y, x), torch.zeros(4, 3).scatter_add(0, y[:, None].expand(-1, 3), x))),
    "scatter into some rows": case("n:b,4 i4:b,1", lambda x, i: x.scatter(1, i[:1], 1.0)),
    "masked select": case("s:b,4 m:b,4", lambda x, m: (x.masked_select(m), x[m])),
    "where": case("m:b,4", lambda m: (torch.where(m), m.nonzero(), m.nonzero(as_tuple=True))),
    "bucketize": kept("n:b,4 N:3", lambda x, e: torch.bucketize(x, e.sort().values)),
    "searchsorted": case("n:b,4 N:3", lambda x, e: torch.searchsorted(e.sort().values, x)),
}  # fmt: skip


@table(INDICES)
def test_indices(case):
    case.run()


def into(index):
    def write(x, *value):
        x[index] = value[0] if value else 5.0

    return write


def by_class(x, y):
    sums = torch.zeros(3, 4)
    for c in range(3):
        if (y == c).any():
            sums[c] = x[y == c].mean(0)
    return sums


def masked_words(x, m):
    labels = x.clone()
    labels[~m] = -100
    x[m] = 7
    return labels, x


SETS = {
    "a column": written("s:b,4", into((slice(None), 0))),
    "a column by a batch": written("s:b,4 s:b", into((slice(None), 1))),
    "a column by a replicated batch": written("s:b,4 P:b", into((slice(None), 1))),
    "columns by a row": written("s:b,4 P:2", into((slice(None), slice(1, 3)))),
    "columns by a batch": written("s:b,4 s:b,2", into((Ellipsis, slice(1, 3)))),
    "columns by a sum": written("s:b,4", lambda x: x.__setitem__((slice(None), 0), x.sum())),
    "everything": written("s:b,4 s:b,4", into(slice(None))),
    "everything by one row": written("s:b,4 P:1,4", into(Ellipsis)),
    "a row": written("s:b,4", into(0)),
    "a row by a row": written("s:b,4 P:4", into(-1)),
    "a number": written("s:b,4", into((0, 2))),
    "rows": written("s:b,4", into(slice(None, 2))),
    "rows of a replicated tensor": written("P:b,4 s:b,4", into(slice(None))),
    "a list": written("s:b,4", into((slice(None), [0, 2]))),
    "a mask": written("s:b,4 m:b,4", lambda x, m: x.__setitem__(m, 0.0)),
    "a mask of rows": written("s:b,4 m:b", lambda x, m: x.__setitem__(m, 0.0)),
    "a mask of rows by a row": written("s:b,4 m:b P:4", lambda x, m, w: x.__setitem__(m, w)),
    "a replicated mask": written("s:b,4 M:b,4", lambda x, m: x.__setitem__(m, 1.0)),
    "a mask by a batch": written("s:b,4 s:b,4", lambda x, y: x.__setitem__(x > 0, y[x > 0])),
    "picked": written("n:b,4 i4:b", lambda x, y: x.__setitem__((torch.arange(len(x)), y), 1.0)),
    "time before batch": written("s:3,b,2@1 s:b,2", into(0)),
    "time before batch by a row": written("s:3,b,2@1 P:2", into((slice(1, 3),))),
    "words": written("i9:b,4 m:b,4", masked_words),
    "iadd": written("s:b,4 s:b", lambda x, y: x.__setitem__((slice(None), 2), x[:, 2] + y)),
    "a loop over rows": written("n:b,4", lambda x: [x.__setitem__(i, x[i].flip(0)) for i in range(len(x))] and None),
    "rows of rows": written("n:b,4", lambda x: [row.mul_(2) for row in x] and x + 0),
    "chained": written("n:b,4", lambda x: (x[0].__setitem__(1, 9.0), x + 1)[1]),
    "by class": case("s:b,4 i3:b", by_class),
    "cutmix": written("n:b,2,4,4", lambda x: x.__setitem__((slice(None), slice(None), slice(0, 2)), x[torch.arange(len(x)).flip(0), :, 0:2])),
    "index_fill_": written("n:b,4", lambda x: x.index_fill_(1, torch.tensor([1]), 3.0)),
    "index_add_": written("n:b,4", lambda x: x.index_add_(0, torch.tensor([0]), torch.ones(1, 4))),
    "masked_scatter_": written("n:b,4 m:b,4", lambda x, m: x.masked_scatter_(m, torch.arange(99.0))),
    "fill_diagonal_": written("s:b,b", lambda x: x.fill_diagonal_(-1.0)),
}  # fmt: skip


@table(SETS)
def test_writing_by_index(case):
    case.run()
