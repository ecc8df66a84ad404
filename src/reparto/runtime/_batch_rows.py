"""Batches of another size than the script's, to see what memory they take (``fit-batch``).

    script's batch sampler   0 1 2 3 │ 4 5 6 7 │ 8 9            what it says
    training loader          0 1 2 3 4 5 │ 6 7 8 9 0 1 │ …      with six rows: as many batches

There are as many batches in a pass as before, so that loops, schedulers and accumulation go on as
they are written; when the samples are used up, they come once more. Loaders that are read without
gradients, for an evaluation, are left alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from reparto.runtime import _patches

if TYPE_CHECKING:
    from reparto.runtime._world import World


class BatchRows:
    """Looks at the batches of training loaders, and gives them another size.

    Args:
        world: Whose loaders; its options say how many rows a batch gets.

    Attributes:
        most: The most rows of a batch so far.
        held_bytes: The most that loader processes hold ready for the script.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rows = world.options.batch_rows
        self._has_told = False
        self.most = self.held_bytes = 0

    def install(self) -> None:
        """Look at loaders, from now on."""
        _patches.replace(DataLoader, "__iter__", self._iter)
        loading = torch.utils.data.dataloader._BaseDataLoaderIter
        _patches.replace(loading, "__next__", self._next)

    def _iter(self, original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:
            sampler = loader.batch_sampler
            is_known = sampler is None or isinstance(sampler, _Batches)
            if torch.is_grad_enabled() and not is_known:
                # By way of object: a loader that is made does not let itself be changed.
                object.__setattr__(loader, "batch_sampler", _Batches(self, sampler))
            return original(loader)

        return __iter__

    def _next(self, original: Any) -> Any:
        def __next__(batches: Any) -> Any:
            batch = original(batches)
            if batches._num_workers > 0:
                ahead = batches._num_workers * batches._prefetch_factor
                self.held_bytes = max(self.held_bytes, ahead * _num_bytes(batch))
            return batch

        return __next__

    def resized(self, sampler: Any) -> Iterator[list[Any]]:
        """One pass over a batch sampler, in batches of the size that is wanted."""
        rows = self._rows
        samples = self._endless(sampler)
        for batch in sampler:
            # What yields no lists is drawn by a collation of its own, and is left alone.
            if rows is not None and isinstance(batch, (list, tuple)):
                batch = list(itertools.islice(samples, rows))
            if isinstance(batch, (list, tuple)):
                self.most = max(self.most, len(batch))
            yield batch

    def _endless(self, sampler: Any) -> Iterator[Any]:
        for number in itertools.count(1):
            num_samples = 0
            for batch in sampler:
                num_samples += len(batch)
                yield from batch
            if number == 1 and num_samples < (self._rows or 0) and not self._has_told:
                self._has_told = True
                self._world.note(
                    f"a pass has {num_samples} samples, fewer than a batch of {self._rows} rows: "
                    "they are repeated, since only memory is measured"
                )


class _Batches:
    """A batch sampler in place of the script's own."""

    def __init__(self, wanted: BatchRows, sampler: Any) -> None:
        self._wanted, self._sampler = wanted, sampler

    def __iter__(self) -> Iterator[Any]:
        if not torch.is_grad_enabled():
            return iter(self._sampler)
        return self._wanted.resized(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _num_bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.nbytes
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return sum(map(_num_bytes, value)) if isinstance(value, (tuple, list)) else 0
