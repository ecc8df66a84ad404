"""Loaders: the same global batches in the same order, of which each worker loads its rows.

Indices are sliced before loading where that cannot be told from slicing afterwards: a data set
whose items are the same however often they are asked for, stacked by torch's own collation into
tensors. In all other cases (random augmentation, collation that pads or mixes, iterable data
sets, batches with strings in them) every worker loads the whole batch and keeps its rows. Where
each worker takes a batch of its own (``batch=worker``), it loads that one alone if nothing draws,
however batches are collated.
"""

from __future__ import annotations

import itertools
import os
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from reparto.errors import DisagreementError, RefusedError
from reparto.runtime._draws import random_state, restore_state, same_state
from reparto.runtime._layout import Placement, Split
from reparto.runtime._tensors import Shard, shard

if TYPE_CHECKING:
    from reparto.runtime._world import World


class _RowsOfBatches:
    """A batch sampler that passes on this worker's rows and remembers how they were split."""

    def __init__(self, world: World, sampler: Any) -> None:
        self.world, self.sampler = world, sampler
        self.splits: deque[tuple[Split, int]] = deque()

    def __iter__(self) -> Iterator[list[Any]]:
        # A fresh queue for each pass; filled as batches are drawn, maybe ahead of time: how far
        # ahead differs between workers, so what they must agree on is only told when it is used.
        splits: deque[tuple[Split, int]] = deque()
        self.splits = splits
        batches = iter(self.sampler)
        begun = self.world.balance.new_pass()

        def rows() -> Iterator[list[Any]]:
            while together := list(itertools.islice(batches, self.world.batches_a_step)):
                batch = [index for one in together for index in one]
                split = begun.next_split(len(batch))
                splits.append((split, _hash(batch)))
                start = 0 if split.is_ghost(self.world.rank) else split.start(self.world.rank)
                yield _spoiled(self.world, batch[start : start + split.rows(self.world.rank)])

        return rows()

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.world.batches_a_step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)


class _OwnBatches(_RowsOfBatches):
    """A batch sampler that passes on one batch of as many as there are workers: this worker's."""

    def __iter__(self) -> Iterator[list[Any]]:
        splits: deque[tuple[Split, int]] = deque()
        self.splits = splits
        batches, world = iter(self.sampler), self.world

        def own() -> Iterator[list[Any]]:
            while together := [list(b) for b in itertools.islice(batches, world.batches_a_step)]:
                counts = [len(one) for one in together]
                split = Split(sum(counts), (*counts, *[0] * (world.size - len(counts))))
                splits.append((split, _hash([index for one in together for index in one])))
                yield together[world.rank] if world.rank < len(together) else together[0][:1]

        return own()


def _spoiled(world: World, rows: list[Any]) -> list[Any]:
    """Spoil a batch on purpose, for the tests of ``verify``; otherwise leave it alone."""
    if world.rank == 0 and len(rows) > 1:
        if world.options.sabotage == "doubled-sample":
            return [rows[0], rows[0], *rows[2:]]
        if world.options.sabotage == "dropped-sample":
            return [*rows[:-1], rows[0]]  # the last one is not trained on
    return rows


def _hash(batch: list[Any]) -> int:
    """The same number on every worker that was given the same indices."""
    if set(map(type, batch)) == {int}:  # by far the most common, and quick to tell
        return hash(tuple(batch))
    return hash(tuple(map(_hashable, batch)))


def _hashable(value: Any) -> Any:
    return int(value) if isinstance(value, (Tensor, np.integer)) else value


class _SharedIterator:
    """Marks the tensors of each batch as shared out."""

    def __init__(
        self,
        world: World,
        batches: Iterator[Any],
        splits: deque[tuple[Split, int]] | None,
        *,
        is_own: bool = False,
    ) -> None:
        self.world, self.batches, self.splits, self.is_own = world, batches, splits, is_own

    def __iter__(self) -> _SharedIterator:
        return self

    def __next__(self) -> Any:
        if self.splits is None:
            return self._cut()
        batch = next(self.batches)
        split, digest = self.splits.popleft()
        self.world.agreement.add(hash((digest, split.sizes)))
        if self.is_own and _num_samples(batch) != split.rows(self.world.rank):
            raise DisagreementError(
                "a batch has other rows than the items that it was made of",
                remedy="set REPARTO_WHOLE_BATCHES=1: every worker then loads whole batches",
            )
        return _marked(self.world, batch, split)

    def _cut(self) -> Any:
        """Whole batches were loaded: this worker's rows of one, or one of several."""
        world = self.world
        began = time.thread_time()
        together = list(itertools.islice(self.batches, world.batches_a_step))
        if torch.is_grad_enabled():  # not an evaluation
            world.whole_load_s += time.thread_time() - began
            world.num_whole_loads += len(together)
        if world.batches_a_step == 1 and together:
            return shard_batch(world, together[0])
        if not together:
            raise StopIteration
        counts = [_num_samples(one) for one in together]
        sizes = (*counts, *[0] * (world.size - len(counts)))
        _refuse_odd(together[0], counts[0])
        mine = together[world.rank] if world.rank < len(together) else _first_row(together[0])
        return _marked(world, mine, Split(sum(counts), sizes))

    def __len__(self) -> int:
        batches = len(self.batches)  # type: ignore[arg-type]
        return -(-batches // self.world.batches_a_step) if self.splits is None else batches


def shared_loader(world: World, loader: DataLoader[Any]) -> DataLoader[Any]:
    """Make a loader yield this worker's rows; the same object, of a subclass of its class."""
    if getattr(loader, "_reparto_shared", False):
        return loader
    kind = type(loader)

    def __iter__(self: Any) -> Any:
        if not torch.is_grad_enabled():
            world.settle()  # an evaluation
        if self._reparto_by_index is None:
            _choose(world, self)
        sampler = self.batch_sampler if self._reparto_by_index else None
        batches = kind.__iter__(self)
        if sampler is not None:
            _guard(self, batches)
        splits = sampler.splits if sampler is not None else None
        return _SharedIterator(world, batches, splits, is_own=isinstance(sampler, _OwnBatches))

    def __len__(self: Any) -> int:
        count = int(kind.__len__(self))
        if self._reparto_by_index:
            return count  # its sampler tells how many steps there are
        return -(-count // world.batches_a_step)

    body = {
        "__iter__": __iter__,
        "__len__": __len__,
        "_reparto_shared": True,
        "__module__": kind.__module__,
    }
    shared = type(kind.__name__, (kind,), body)
    object.__setattr__(loader, "__class__", shared)
    object.__setattr__(loader, "_reparto_by_index", None)
    object.__setattr__(loader, "_reparto_counter", itertools.count(1))
    return loader


#: So many batches are looked at for draws one by one, and after them one in so many: looking costs
#: a quarter of a millisecond.
GUARDED = 32


def _guard(loader: Any, batches: Any) -> None:
    """Stop when an item draws after all: workers that load different items would go apart."""
    fetcher = getattr(batches, "_dataset_fetcher", None)  # there is one in this process, or none
    if fetcher is None or type(loader.dataset) is TensorDataset:
        return
    fetch, counter = fetcher.fetch, loader._reparto_counter

    def guarded(indices: Any) -> Any:
        number = next(counter)
        if number > GUARDED and number % GUARDED:
            return fetch(indices)
        before = random_state()
        found = fetch(indices)
        if not same_state(before, random_state()):
            raise DisagreementError(
                "an item of the data set draws random numbers, though others do not",
                remedy="set REPARTO_WHOLE_BATCHES=1: every worker then loads whole batches",
            )
        return found

    fetcher.fetch = guarded


def _choose(world: World, loader: Any) -> None:
    with world.gradients.unseen():
        by_index = _can_slice_indices(loader)
        is_asked = world.batches_a_step > 1 or world.options.survey is not None
        is_own = is_asked and not by_index and _can_take_own(loader)
        world.loads_all |= torch.is_grad_enabled() and not (by_index or is_own)
        is_own = is_own and world.batches_a_step > 1
    object.__setattr__(loader, "_reparto_by_index", by_index or is_own)
    if by_index or is_own:
        _compare_data(world, loader.dataset)
        rows = (_OwnBatches if is_own else _RowsOfBatches)(world, loader.batch_sampler)
        object.__setattr__(loader, "batch_sampler", rows)
        if loader.num_workers > 1:  # ranks × loader processes should not outnumber the cores
            fewer = max(1, loader.num_workers // world.local_size)
            object.__setattr__(loader, "num_workers", fewer)


def _compare_data(world: World, dataset: Any) -> None:
    """Every worker must have the same items: each will load others of them."""
    with world.gradients.unseen():
        ends = (dataset[0], dataset[len(dataset) - 1])
        mine = torch.tensor([len(dataset), *map(_digest, ends)], dtype=torch.int64)
    theirs = world.data.gather_all(mine)
    for rank, one in enumerate(theirs):
        if not torch.equal(one, theirs[0]):
            raise DisagreementError(
                f"workers 0 and {rank} have different data: {type(dataset).__name__} of "
                f"{int(theirs[0][0])} and of {int(one[0])} items",
                remedy="seed whatever draws the data, sort listings of files, and call "
                "reparto.init() before the data is made",
            )


def _digest(item: Any) -> int:
    if isinstance(item, Mapping):
        item = list(item.values())
    if isinstance(item, (tuple, list)):
        return zlib.crc32(repr([_digest(part) for part in item]).encode())
    if isinstance(item, np.ndarray):
        return zlib.crc32(item.tobytes())  # its text leaves most of it out
    if isinstance(item, Tensor):
        whole = item.detach().cpu().contiguous().reshape(-1)
        return zlib.crc32(whole.view(torch.uint8).numpy().tobytes())
    return zlib.crc32(repr(item).encode())


def _can_take_own(loader: Any) -> bool:
    """Whether a worker may leave out the batches of others: nothing draws in making one."""
    if not _can_choose_indices(loader) or _mixes(loader.dataset):
        return False
    if not _is_steady(loader.dataset):
        return False
    before = random_state()
    try:
        few = [loader.dataset[index] for index in _some(len(loader.dataset), 8)]
        batch = loader.collate_fn(few)
        _refuse_odd(batch, len(few))
        return same_state(before, random_state()) and _num_samples(batch) == len(few)
    except Exception:  # whatever it makes of two items of ours, loading whole is right
        return False
    finally:
        restore_state(before)


def _can_choose_indices(loader: Any) -> bool:
    """Whether the loader asks a data set for items by index, as torch does it."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return False
    if os.environ.get("REPARTO_WHOLE_BATCHES") == "1" or loader._iterator is not None:
        return False
    return _makes_batches_as_torch_does(type(loader))


def _can_slice_indices(loader: Any) -> bool:
    if loader.collate_fn is not default_collate or not _can_choose_indices(loader):
        return False
    return not _mixes(loader.dataset) and _is_steady(loader.dataset)


def _mixes(dataset: Any) -> bool:
    """Whether a data set that is asked for several items at once may mix them."""
    by_list = hasattr(dataset, "__getitems__")
    return by_list and type(dataset).__module__ != "torch.utils.data.dataset"


def _makes_batches_as_torch_does(kind: Any) -> bool:
    """Whether no subclass of the script's own changes what a pass over the loader yields."""
    torchs = ("torch.utils.data.dataloader", "typing", "builtins")
    bases = [base for base in kind.__mro__ if base.__module__ not in torchs]
    own = [base for base in bases if "_reparto_shared" not in vars(base)]
    changed = ("__iter__", "_get_iterator", "_index_sampler")
    return not any(name in vars(base) for base in own for name in changed)


def _is_steady(dataset: Any) -> bool:
    """Whether an item is the same each time, and asking for it draws nothing."""
    before = random_state()
    try:
        first, second = dataset[0], dataset[0]
        for index in _some(len(dataset)):
            dataset[index]  # a rare class may be augmented, or one part of several
        return same_state(before, random_state()) and _same(first, second)
    except Exception:  # whatever a data set does with an index of ours, loading whole is right
        return False
    finally:
        restore_state(before)


def _some(length: int, count: int = 16) -> list[int]:
    return sorted({length * step // count for step in range(1, count)} | {length - 1})


def _same(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if isinstance(one, Tensor):
        return one.shape == two.shape and torch.equal(one, two)
    if isinstance(one, np.ndarray):
        return one.dtype.kind not in "SUO" and np.array_equal(one, two, equal_nan=False)
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
    # Strings and other objects are collated into lists, which cannot be marked as slices.
    return isinstance(one, (int, float, np.number)) and bool(one == two)


def _marked(world: World, value: Any, split: Split) -> Any:
    """Mark the tensors of a batch that was loaded by rows."""
    if isinstance(value, Tensor):
        world.saw_split(split)
        return shard(value, Placement(split, 0)) if value.dim() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_marked(world, part, split) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_marked(world, part, split) for part in value)
    if isinstance(value, Mapping):
        made = {key: _marked(world, part, split) for key, part in value.items()}
        return made if type(value) is dict else type(value)(made)  # type: ignore[call-arg]
    return value


def shard_batch(
    world: World, batch: Any, dim: int | None = None, site: Any = None, rows: int | None = None
) -> Any:
    """Share out the tensors of a replicated batch.

    Along which dimension changes nothing but the speed: ``dim`` if it is given, else the first,
    or the second where that is the one of as many rows as the batch has labels.
    """
    if isinstance(batch, Tensor):
        if isinstance(batch, Shard) or not batch.dim():
            return batch
        chosen = _dim_for(batch, rows) if dim is None else dim
        return batch if chosen is None else shard_tensor(world, batch, chosen, site)
    if isinstance(batch, (tuple, list, Mapping)) and rows is None:
        rows = _rows(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(shard_batch(world, part, dim, site, rows) for part in batch))
    if type(batch) in (tuple, list):
        return type(batch)(shard_batch(world, part, dim, site, rows) for part in batch)
    if type(batch) is dict:
        return {key: shard_batch(world, part, dim, site, rows) for key, part in batch.items()}
    held = getattr(batch, "data", None)
    if isinstance(batch, Mapping) and isinstance(held, dict):  # a tokenizer's BatchEncoding
        vars(batch)["data"] = shard_batch(world, held, dim, site, rows)
    return batch


def shard_tensor(world: World, tensor: Tensor, dim: int, site: Any = None) -> Tensor:
    """This worker's rows of a replicated tensor."""
    if not tensor.dim() or tensor.is_sparse:
        return tensor
    dim = dim % tensor.dim() if -tensor.dim() <= dim < tensor.dim() else 0
    dim = world.dim_of_site(site, dim, tensor.dim())
    total = tensor.shape[dim]
    if total == 0:
        return tensor
    place = world.place_for(total, dim)
    world.agreement.add(hash((tuple(tensor.shape), place.split.sizes)))
    world.saw_split(place.split)
    made = shard(world.rows_of(tensor, place), place, site)
    if site is not None:  # else it is a batch of a loader's, which nobody else holds
        made._data = tensor.detach()
    return made


def _dim_for(tensor: Tensor, rows: int | None) -> int | None:
    """Where a tensor of a batch has that many rows; a guess that only speed depends on."""
    if rows is None or tensor.shape[0] == rows:
        return 0
    return 1 if tensor.dim() > 1 and tensor.shape[1] == rows else None


def _num_samples(batch: Any) -> int:
    found = _rows(batch if isinstance(batch, (tuple, list, Mapping)) else [batch])
    if found is None:
        raise RefusedError(
            "a batch without tensors cannot be one worker's part of a step",
            remedy="leave batch=script, the default",
        )
    return found


def _refuse_odd(batch: Any, count: int) -> None:
    """Whole batches stand side by side only if every tensor has its samples first."""
    parts = batch.values() if isinstance(batch, Mapping) else batch
    for part in parts if isinstance(parts, (tuple, list)) or parts is not batch else [batch]:
        if isinstance(part, Tensor) and part.dim() and part.shape[0] != count:
            raise RefusedError(
                "batch=worker needs batches whose tensors have the samples as first dimension",
                remedy="leave batch=script, the default",
            )


def _first_row(value: Any) -> Any:
    """A batch of one row, for a worker that has none."""
    if isinstance(value, Tensor):
        return value[:1] if value.dim() else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_first_row, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(_first_row, value))
    if isinstance(value, Mapping):
        return {key: _first_row(part) for key, part in value.items()}
    return value


def _rows(batch: Any) -> int | None:
    """How many samples a batch seems to have: the length of its labels, or what most share."""
    parts = batch.values() if isinstance(batch, Mapping) else batch
    tensors = [part for part in parts if isinstance(part, Tensor) and part.dim()]
    labels = [tensor.shape[0] for tensor in tensors if tensor.dim() == 1]
    sizes = labels or [tensor.shape[0] for tensor in tensors]
    return max(sizes, key=sizes.count) if sizes else None
