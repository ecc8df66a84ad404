"""Loaders: the same global batches in the same order, however a worker comes by its rows."""

import random
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import reparto
from reparto.runtime._current import current
from reparto.runtime._tensors import Shard, whole
from reparto.spec import StrategyConfig
from reparto.testing import run_workers

X = torch.arange(46.0, dtype=torch.float64).view(23, 2)
Y = torch.arange(23) % 5


class Items(Dataset):
    """Items made by a function of the index."""

    def __init__(self, make, size=23):
        self.make, self.size = make, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.make(index)


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, 23, step):
            yield X[index], Y[index]


Pair = namedtuple("Pair", "x y")


class Own(DataLoader):
    """A loader with a way of its own, written as a generator."""

    def __iter__(self):
        for batch in super().__iter__():
            yield [part * 2 for part in batch]


def padded(items):
    longest = max(len(x) for x, _ in items)
    rows = [torch.nn.functional.pad(x, (0, longest - len(x))) for x, _ in items]
    return torch.stack(rows), torch.tensor([y for _, y in items])


def time_first(items):
    return torch.stack([x for x, _ in items], 1), torch.tensor([y for _, y in items])


def noisy(index):
    return X[index] + torch.rand(2), random.random(), np.random.rand(2)


def pairs(x=X, y=Y):
    return TensorDataset(x, y)


def by_length():
    order = sorted(range(23), key=lambda index: index % 7)
    return [order[at : at + 4] for at in range(0, 23, 4)]


LOADERS = {
    "in order": lambda: DataLoader(pairs(), batch_size=5),
    "shuffled": lambda: DataLoader(pairs(), batch_size=5, shuffle=True),
    "one by one": lambda: DataLoader(pairs(), batch_size=1, shuffle=True),
    "drop last": lambda: DataLoader(pairs(), batch_size=4, shuffle=True, drop_last=True),
    "all at once": lambda: DataLoader(pairs(), batch_size=100),
    "own generator": lambda: DataLoader(pairs(), 5, shuffle=True, generator=torch.Generator().manual_seed(9)),
    "no batches": lambda: DataLoader(pairs(), batch_size=None),
    "weighted": lambda: DataLoader(pairs(), 5, sampler=WeightedRandomSampler(torch.arange(1.0, 24), 17)),
    "with replacement": lambda: DataLoader(pairs(), 5, sampler=RandomSampler(pairs(), replacement=True)),
    "subset sampler": lambda: DataLoader(pairs(), 3, sampler=SubsetRandomSampler(range(3, 17))),
    "list as sampler": lambda: DataLoader(pairs(), 3, sampler=[5, 1, 2, 9, 8, 7, 3]),
    "batch sampler": lambda: DataLoader(pairs(), batch_sampler=BatchSampler(SequentialSampler(pairs()), 6, False)),
    "list of batches": lambda: DataLoader(pairs(), batch_sampler=by_length()),
    "unequal batches": lambda: DataLoader(pairs(), batch_sampler=[[0], [1, 2], [3, 4, 5, 6, 7], [8]]),
    "subset": lambda: DataLoader(Subset(pairs(), [1, 4, 6, 8, 2]), 2, shuffle=True),
    "split": lambda: DataLoader(random_split(pairs(), [17, 6])[0], 4, shuffle=True),
    "concatenated": lambda: DataLoader(ConcatDataset([pairs(), pairs(X * 2, Y)]), 7, shuffle=True),
    "items": lambda: DataLoader(Items(lambda i: (X[i], int(Y[i]), float(i))), 5, shuffle=True),
    "arrays": lambda: DataLoader(Items(lambda i: (X[i].numpy(), np.float64(i), np.int64(i))), 5),
    "dictionaries": lambda: DataLoader(Items(lambda i: {"x": X[i], "y": {"z": Y[i]}}), 5, shuffle=True),
    "named": lambda: DataLoader(Items(lambda i: Pair(X[i], Y[i])), 5, shuffle=True),
    "single tensors": lambda: DataLoader(X, 5, shuffle=True),
    "strings": lambda: DataLoader(Items(lambda i: (X[i], f"item {i}")), 5, shuffle=True),
    "random items": lambda: DataLoader(Items(noisy), 5, shuffle=True),
    "padded": lambda: DataLoader(Items(lambda i: (X.flatten()[: i % 6 + 1], int(Y[i]))), 5, shuffle=True, collate_fn=padded),
    "time first": lambda: DataLoader(Items(lambda i: (X[i], int(Y[i]))), 5, collate_fn=time_first),
    "lists of tensors": lambda: DataLoader(pairs(), 5, collate_fn=lambda items: [list(one) for one in zip(*items, strict=True)]),
    "iterable": lambda: DataLoader(Stream(), 5),
    "iterable, dropping": lambda: DataLoader(Stream(), 5, drop_last=True),
    "chained": lambda: DataLoader(ChainDataset([Stream(), Stream()]), 6),
    "own way": lambda: Own(pairs(), 5, shuffle=True),
}  # fmt: skip


def seen(value):
    """A batch as the script sees it, whole."""
    if isinstance(value, torch.Tensor):
        world = current()
        return (
            tuple(map(int, value.shape)),
            (value if world is None else whole(world, value)).tolist(),
        )
    if isinstance(value, dict):
        return {key: seen(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [seen(part) for part in value]
    return value


def drawn():
    return torch.rand(2).tolist(), random.random(), np.random.rand(2).tolist()


def epochs(make, number=2):
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    loader = reparto.prepare(make())
    batches = [[seen(batch) for batch in loader] for _ in range(number)]
    length = len(loader) if not isinstance(loader.dataset, IterableDataset) else 0
    return batches, drawn(), length


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("workers", [2, 4])
def test_batches_are_those_of_the_script_alone(name, workers):
    alone = epochs(LOADERS[name])
    for shared in run_workers(workers, lambda: epochs(LOADERS[name]), all_generators=True):
        assert shared == alone


PROCESSES = {
    "by index": lambda: DataLoader(pairs(), 5, shuffle=True, num_workers=2),
    "persistent": lambda: DataLoader(pairs(), 5, shuffle=True, num_workers=2, persistent_workers=True),
    "whole": lambda: DataLoader(Items(noisy), 5, shuffle=True, num_workers=2),
    "iterable": lambda: DataLoader(Stream(), 5, num_workers=2),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSES)
def test_batches_of_loader_processes(name):
    alone = epochs(PROCESSES[name])
    for shared in run_workers(2, lambda: epochs(PROCESSES[name]), all_generators=True):
        assert shared == alone


BY_INDEX = ("in order", "shuffled", "items", "arrays", "dictionaries", "named", "batch sampler")
BY_SLICE = ("strings", "random items", "padded", "iterable", "own way", "no batches")


@pytest.mark.parametrize("name", [*BY_INDEX, *BY_SLICE])
def test_rows_are_loaded_by_index_where_that_cannot_be_told(name):
    def function():
        loader = reparto.prepare(LOADERS[name]())
        next(iter(loader))
        return loader._reparto_by_index

    assert run_workers(2, function) == [name in BY_INDEX] * 2


def test_only_the_rows_of_a_worker_are_asked_for():
    def function():
        asked = []
        loader = reparto.prepare(DataLoader(Items(lambda i: (asked.append(i), X[i])[1]), 6))
        iterator = iter(loader)
        asked.clear()  # of the look whether items are the same each time
        next(iterator)
        return asked

    assert run_workers(3, function) == [[0, 1], [2, 3], [4, 5]]


def ways():
    """The ways in which scripts go through a loader."""
    torch.manual_seed(3)
    loader = reparto.prepare(DataLoader(pairs(), 5, shuffle=True))
    found = [seen(next(iter(loader)))]
    found += [(number, seen(x)) for number, (x, _) in enumerate(loader, 1)]
    found += [(seen(a), seen(b)) for (a, _), (b, _) in zip(loader, loader, strict=True)]
    iterator = iter(loader)
    for _ in range(7):
        try:
            x, y = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            x, y = next(iterator)
        found.append((seen(x), seen(y)))
    for x, _ in loader:
        found.append(seen(x))
        if len(found) % 3 == 0:
            break
    for x, _ in loader:
        found += [*[seen(z) for z, _ in loader][:1], seen(x)]
    found.append((len(loader), loader.batch_size, len(loader.dataset), loader.drop_last))
    found.append((len(loader.batch_sampler), loader.batch_sampler.batch_size, len(iter(loader))))
    return found, torch.rand(2).tolist()


def test_every_way_through_a_loader():
    alone = ways()
    for shared in run_workers(3, ways):
        assert shared == alone


def test_preparing_twice_is_preparing_once():
    def function():
        loader = DataLoader(pairs(), 5)
        once = reparto.prepare(loader)
        twice, number = reparto.prepare(once, 7)
        assert once is twice is loader and number == 7 and isinstance(twice, DataLoader)
        return [type(part) is Shard for part in next(iter(twice))]

    assert run_workers(2, function) == [[True, True]] * 2


def test_a_loader_that_is_cut_by_hand_is_not_cut_again():
    def function():
        loader = reparto.prepare(DataLoader(pairs(), 5))
        return [seen(reparto.shard(x)) for x, _ in reparto.shard(loader)]

    alone = function()
    assert run_workers(2, function) == [alone, alone]


CUTS = {
    "a tensor": lambda: reparto.shard(X),
    "along another dimension": lambda: reparto.shard(X, 1),
    "a dimension that it has not": lambda: reparto.shard(Y, 1),
    "a scalar": lambda: reparto.shard(torch.tensor(3.0)),
    "nothing": lambda: reparto.shard(X[:0]),
    "a tuple": lambda: reparto.shard((X, Y, "text", None, 3)),
    "a dictionary": lambda: reparto.shard({"x": X, "y": [Y, {"z": X}]}),
    "a generator": lambda: list(reparto.shard((X[i : i + 5], Y[i : i + 5]) for i in range(0, 23, 5))),
    "a list of batches": lambda: list(reparto.shard([(X[:5], Y[:5]), (X[5:], Y[5:])])),
    "the next one": lambda: next(reparto.shard(iter([X, Y]))),
    "numbers": lambda: reparto.shard([1, 2, 3]),
    "text": lambda: reparto.shard("text"),
    "an array": lambda: reparto.shard(X.numpy()).tolist(),
    "of one sample": lambda: reparto.shard(X[0]),
}  # fmt: skip


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_cutting_changes_nothing_that_can_be_seen(cut):
    alone = seen(cut())
    for shared in run_workers(3, lambda: seen(cut())):
        assert shared == alone


APART = StrategyConfig(kind="all-reduce", settings={"batch": "worker"})


def local_rows(batch):
    return [part.as_subclass(torch.Tensor).tolist() for part in batch]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_batch_each_is_loaded_by_its_worker_alone(workers):
    def loader_of(asked):
        def item(i):
            asked.append(i)
            return X.flatten()[: i % 6 + 1], int(Y[i])

        torch.manual_seed(3)
        return DataLoader(Items(item), 3, shuffle=True, collate_fn=padded)

    def function():
        asked = []
        loader = reparto.prepare(loader_of(asked))
        iterator = iter(loader)
        asked.clear()  # of the look whether items are the same each time
        return len(loader), [local_rows(batch) for batch in iterator], asked

    alone = [local_rows(batch) for batch in loader_of([])]  # eight, the last one short
    found = run_workers(workers, function, strategy=APART, all_generators=True)
    for rank, (length, batches, _) in enumerate(found):
        assert length == len(batches) == -(-len(alone) // workers)
        own = alone[rank::workers]
        assert batches[: len(own)] == own, "whole batches, padded as the script's are"
    num_ghosts = -len(alone) % workers
    assert sum(len(asked) for *_, asked in found) == 23 + num_ghosts


def test_where_collation_draws_all_batches_are_loaded_by_all():
    def mixed(items):
        order = torch.randperm(len(items))
        return torch.stack([items[i][0] for i in order]), torch.tensor([y for _, y in items])

    def function():
        loader = reparto.prepare(
            DataLoader(Items(lambda i: (X[i], int(Y[i]))), 5, collate_fn=mixed)
        )
        next(iter(loader))
        return loader._reparto_by_index

    assert run_workers(2, function, strategy=APART) == [False, False]
