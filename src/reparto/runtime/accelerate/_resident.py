"""Data that lies in memory as a whole is cut on the device: the same batches in the same order.

torch's own loader takes a thousand items one by one and puts them together again, which for small
models takes longer than the training. Where a data set is nothing but tensors, and batches are
put together as torch does it, a batch is the same as the rows of those tensors, taken at once.
The random numbers that decide the order are drawn as torch draws them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from reparto.runtime.accelerate._ahead import Ahead, order_of, seed_of
from reparto.runtime.accelerate._found import is_foreign


class Rows:
    """Cuts rows out of data, as a call of a tape.

    Args:
        tensors: All data, on the device.
    """

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.__name__ = "rows"

    def __call__(self, index: Tensor) -> list[Tensor]:
        return [torch.index_select(tensor, 0, index) for tensor in self.tensors]

    def refresh(self, sources: tuple[Tensor, ...]) -> None:
        """Copy again, from the data of the script, what may have changed unseen."""
        for mine, theirs in zip(self.tensors, sources, strict=True):
            if is_foreign(theirs):
                mine.copy_(theirs)


class Places(Protocol):
    """Who brings data to the device and cuts it there.

    Attributes:
        ahead: Draws orders ahead; None where they are drawn when they are needed.
    """

    ahead: Ahead | None

    def flush(self) -> None:
        """Draw what is still to be drawn before an order is."""

    def pass_begins(self) -> None:
        """A loader starts over."""

    def placed(self, tensors: tuple[Tensor, ...]) -> Rows | None:
        """Data on the device; None where they do not fit."""

    def unseen(self) -> AbstractContextManager[None]:
        """What is read inside is read by us, not by the script."""

    def cut(self, rows: Rows, batches: list[Tensor], place: int, size: int) -> Any:
        """A batch: one of a list of indices, of which its size is known."""


class Resident:
    """Batches of one pass.

    Args:
        loader: The script's.
        places: Where its data lie.
        data: All of them.
        rows: Which rows of the data its items are; None for all, in order.
    """

    def __init__(
        self, loader: DataLoader[Any], places: Places, data: Rows, rows: Tensor | None
    ) -> None:
        self._loader, self._places, self._data, self._rows = loader, places, data, rows
        self._device = data.tensors[0].device
        self._batches: Iterator[tuple[list[Tensor], int, int]] | None = None
        # The seed of workers that the loader would have started: drawn, so that what comes after
        # it is drawn as alone.
        torch.empty((), dtype=torch.int64).random_(generator=loader.generator)

    def __iter__(self) -> Resident:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._batches is None:
            with torch._C.DisableTorchFunction():
                self._batches = self._indices()
        return self._places.cut(self._data, *next(self._batches))

    def _indices(self) -> Iterator[tuple[list[Tensor], int, int]]:
        sampler = self._loader.batch_sampler
        assert sampler is not None
        order = _order(sampler, self._places.ahead)
        if order is not None:
            assert isinstance(sampler, BatchSampler)
            batches, sizes = _cut(self._placed(order), sampler.batch_size, sampler.drop_last)
            return zip(itertools.repeat(batches), itertools.count(), sizes)
        return self._each(iter(sampler))

    def _each(self, sampler: Iterator[Any]) -> Iterator[tuple[list[Tensor], int, int]]:
        total = len(self._loader.dataset)  # type: ignore[arg-type]
        while True:
            with torch._C.DisableTorchFunction():
                with self._places.unseen():  # which rows are loaded is our business
                    batch = next(sampler, None)
                if batch is None:
                    return
                index = self._placed(_indices(batch, total))
                size = len(index)
            yield [index], 0, size

    def _placed(self, indices: Tensor) -> Tensor:
        indices = indices if self._rows is None else self._rows[indices]
        return indices.to(self._device, non_blocking=True)


def _order(sampler: Any, ahead: Ahead | None) -> Tensor | None:
    """The order of a whole pass, drawn as torch's own samplers do it; None for others."""
    if type(sampler) is not BatchSampler:
        return None
    order = sampler.sampler
    if type(order) is SequentialSampler:
        return torch.arange(len(order))
    if type(order) is not RandomSampler or order.replacement or order.generator is not None:
        return None
    total = len(order.data_source)
    if order.num_samples != total:
        return None
    if ahead is None:
        return order_of(seed_of(), total)
    found = ahead.order(seed_of(), total)
    ahead.foresee(total)
    return found


def _cut(order: Tensor, size: int, drop_last: bool) -> tuple[list[Tensor], list[int]]:
    """An order in batches, with their sizes."""
    num_full, rest = divmod(len(order), size)
    rest = 0 if drop_last else rest
    if not num_full + rest:
        return [], []
    batches = order[: num_full * size + rest].split(size)
    return list(batches), [size] * num_full + [rest] * (rest > 0)


def _indices(given: Iterable[Any], total: int) -> Tensor:
    """Indices as those of rows, counted from the end where they are negative.

    Raises:
        IndexError: If there is no such row; on a GPU that would be found out too late.
    """
    found = [int(index) for index in given]
    if found and not (-total <= min(found) and max(found) < total):
        raise IndexError(f"index out of range: there are {total} rows")
    return torch.as_tensor([index + total if index < 0 else index for index in found])


def data_of(loader: DataLoader[Any]) -> tuple[tuple[Tensor, ...], Tensor | None] | None:
    """The tensors that a loader's items are rows of, and which rows; None where they are not."""
    if type(loader) is not DataLoader or loader.collate_fn is not default_collate:
        return None
    if loader.batch_sampler is None or loader._iterator is not None:
        return None
    dataset, rows = loader.dataset, None
    while type(dataset) is Subset:
        inner = _indices(dataset.indices, len(dataset.dataset))  # type: ignore[arg-type]
        rows = inner if rows is None else inner[rows]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or not dataset.tensors:
        return None
    if any(type(tensor) is not Tensor for tensor in dataset.tensors):
        return None
    if any(tensor.requires_grad or tensor.layout != torch.strided for tensor in dataset.tensors):
        return None
    return dataset.tensors, rows


def iterating(places: Places, original: Any) -> Callable[[DataLoader[Any]], Any]:
    """``DataLoader.__iter__`` for data that lies in memory.

    Args:
        places: Where data lie.
        original: As torch does it.
    """

    def __iter__(self: DataLoader[Any]) -> Any:
        places.flush()
        places.pass_begins()
        with torch._C.DisableTorchFunction():
            found = data_of(self)
            data = None if found is None else places.placed(found[0])
            if found is None or data is None:
                return original(self)
            return Resident(self, places, data, found[1])

    return __iter__
