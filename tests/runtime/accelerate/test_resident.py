"""Data that lie in memory as a whole: the batches of torch's loader, in its order."""

import pytest
import torch
from tests.runtime.accelerate.trained import accelerated
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from reparto.runtime.accelerate._resident import Resident

X = torch.arange(46.0).reshape(23, 2)
DATA = TensorDataset(X, torch.arange(23))


def seeded():
    return torch.Generator().manual_seed(5)


LOADERS = {
    "in order": lambda: DataLoader(DATA, 5),
    "shuffled": lambda: DataLoader(DATA, 5, shuffle=True),
    "dropping the last": lambda: DataLoader(DATA, 5, shuffle=True, drop_last=True),
    "larger than the data": lambda: DataLoader(DATA, 50, shuffle=True, drop_last=True),
    "one row at a time": lambda: DataLoader(DATA),
    "with a generator": lambda: DataLoader(DATA, 5, shuffle=True, generator=seeded()),
    "of a subset": lambda: DataLoader(Subset(DATA, [7, 3, 3, -1, 20]), 2, shuffle=True),
    "of a subset's subset": lambda: DataLoader(Subset(Subset(DATA, range(3, 20)), [2, 9, 4]), 2),
    "of a random part": lambda: DataLoader(random_split(DATA, [15, 8])[1], 3, shuffle=True),
    "with a batch sampler": lambda: DataLoader(
        DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 4, drop_last=True)
    ),
    "with its own batches": lambda: DataLoader(DATA, batch_sampler=[[1, 2], [22], [5, 5, 5]]),
    "with replacement": lambda: DataLoader(
        DATA, 5, sampler=RandomSampler(DATA, replacement=True, num_samples=30)
    ),
    "a part of the order": lambda: DataLoader(DATA, 5, sampler=RandomSampler(DATA, num_samples=9)),
    "weighted": lambda: DataLoader(DATA, 5, sampler=WeightedRandomSampler([1.0] * 23, 12)),
    "a sampler in order": lambda: DataLoader(DATA, 5, sampler=SequentialSampler(DATA)),
}


def passes(make):
    """Three passes, what is drawn between and after them, and an early end."""
    torch.manual_seed(11)
    loader, found = make(), []
    for epoch in range(3):
        found.append(torch.rand(()))
        for number, batch in enumerate(loader):
            found += batch
            if epoch == 1 and number == 1:
                break
    return [*found, torch.rand(()), len(loader)]


@pytest.mark.parametrize("name", LOADERS)
def test_batches_and_random_state_are_those_of_torch(name):
    alone = passes(LOADERS[name])
    with accelerated():
        iterator = iter(LOADERS[name]())
        assert type(iterator) is Resident
        assert len(iterator) == len(LOADERS[name]())
        found = passes(LOADERS[name])
    assert len(found) == len(alone) > 3
    for one, two in zip(alone, found, strict=True):
        if isinstance(one, torch.Tensor):
            assert (one.dtype, one.shape) == (two.dtype, two.shape)
            assert torch.equal(one, two)
        else:
            assert one == two


class Doubled(TensorDataset):
    def __getitem__(self, index):
        return tuple(2 * one for one in super().__getitem__(index))


class Sub(torch.Tensor):
    """A tensor of a kind of its own."""


OTHERS = {
    "a data set of the user's": lambda: DataLoader(Doubled(X), 5),
    "a collate function": lambda: DataLoader(DATA, 5, collate_fn=lambda rows: len(rows)),
    "no batches": lambda: DataLoader(DATA, batch_size=None),
    "tensors of a kind of their own": lambda: DataLoader(TensorDataset(X.as_subclass(Sub)), 5),
    "data that need gradients": lambda: DataLoader(TensorDataset(X.clone().requires_grad_()), 5),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_data_are_loaded_by_torch(name):
    with accelerated():
        assert type(iter(OTHERS[name]())) is not Resident


def test_data_that_were_changed_are_seen_in_the_next_pass():
    x = X.clone()
    loader = DataLoader(TensorDataset(x), 23)
    with accelerated():
        first = next(iter(loader))[0]
        x.mul_(2)
        assert torch.equal(next(iter(loader))[0], 2 * first)
