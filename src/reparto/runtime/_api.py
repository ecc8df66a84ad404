"""The few functions that a converted script calls, or that a person writes by hand."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from reparto.runtime._current import current
from reparto.runtime._join import join
from reparto.runtime._loader import shard_batch, shard_tensor, shared_loader
from reparto.runtime._regions import makes_batches
from reparto.runtime._tensors import Tracked
from reparto.runtime._world import World
from reparto.spec import Options, StrategyConfig

T = TypeVar("T")


def init(strategy: str = "all-reduce", **settings: Any) -> None:
    """Join the other workers; with one worker, or when already joined, nothing happens.

    Under ``reparto run`` the worker has joined before the script starts. Under ``torchrun`` the
    usual environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) tells where the others are, and
    from here on only worker 0 prints and writes files. Call it first: what comes before is done by
    every worker in its own way.

    Args:
        strategy: How workers agree: a kind that ``reparto strategies`` lists.
        **settings: Of the strategy.

    Example:
        >>> import reparto
        >>> reparto.init()
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if current() is not None or size == 1 or _is_spawned():
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # torchrun's own store listens on MASTER_PORT, so ours stands beside it.
    port = int(os.environ["MASTER_PORT"]) + 1
    world = join(
        rank=int(os.environ["RANK"]),
        world_size=size,
        strategy=StrategyConfig(kind=strategy, settings=settings),
        options=Options(),
        device=device,
        master=(os.environ["MASTER_ADDR"], port),
    )
    if int(os.environ["RANK"]) > 0:
        _stay_silent()
    world.data.barrier().wait()  # what worker 0 writes from here on is new to all others


def _is_spawned() -> bool:
    """Whether this is a child of the script's (a loader's worker), which imports it once more."""
    is_beginning = getattr(multiprocessing.current_process(), "_inheriting", False)
    return is_beginning or multiprocessing.parent_process() is not None


def _stay_silent() -> None:
    """Print and write for this worker alone, as every worker but the first does."""
    from reparto.runtime._files import Overlay, cutoff_ns, mute_trackers

    folder = tempfile.mkdtemp(prefix="reparto-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    mute_trackers(os.environ, folder)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    Overlay(folder, cutoff_ns()).install()


def prepare(*objects: Any) -> Any:
    """Make models, optimizers and loaders ready to be shared out.

    A loader yields this worker's rows of the same global batches in the same order. Models and
    optimizers are watched; anything else comes back as it is. Safe to call twice.

    Args:
        *objects: In any order.

    Returns:
        The object, or a tuple of them in the same order.

    Example:
        >>> model, optimizer, loader = reparto.prepare(model, optimizer, loader)
    """
    init()
    world = current()
    prepared = tuple(_prepared(world, one) for one in objects)
    return prepared[0] if len(prepared) == 1 else prepared


def _prepared(world: World | None, one: Any) -> Any:
    if world is None or world.size == 1:
        return one
    if isinstance(one, DataLoader):
        return shared_loader(world, one)
    if isinstance(one, torch.optim.Optimizer):
        world.gradients.owner_of(one)
    return one


def shard(value: T, dim: int | None = None) -> T:
    """Share out tensors that follow the batch.

    Args:
        value: A replicated tensor; a tuple, list or dict of tensors; or an iterable of batches,
            whose tensors are then shared out one batch at a time. Anything else comes back as
            it is, as does everything when there is one worker.
        dim: The dimension of the batch. It matters for speed only, never for the result.

    Example:
        >>> x = reparto.shard(data[i : i + 64])
    """
    world = current()
    if world is None or world.size == 1:
        if world is not None and isinstance(value, Tensor) and value.dim():
            world.last_batch = value.shape[dim or 0]
        elif world is not None and isinstance(value, (tuple, list, dict)):
            world.saw_batch(value)
        return value
    frame = sys._getframe(1)
    site = (frame.f_code, frame.f_lasti)
    if isinstance(value, Tracked):
        return value
    makes_batches(world)
    if isinstance(value, Tensor):
        return shard_tensor(world, value, dim or 0, site)  # type: ignore[return-value]
    if isinstance(value, (tuple, list, dict)):
        if isinstance(value, (tuple, list)) and not _is_batch(value):
            return value
        return shard_batch(world, value, dim, site)  # type: ignore[no-any-return]
    if isinstance(value, DataLoader):
        return shared_loader(world, value)  # type: ignore[return-value]
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        if type(value).__module__.startswith(("numpy", "pandas")):
            return value
        return _Batches(world, value, dim, site)  # type: ignore[return-value]
    return value


def _is_batch(value: Any) -> bool:
    return any(isinstance(part, (Tensor, tuple, list, dict)) for part in value)


class _Batches:
    """An iterable of batches whose tensors are shared out as they come."""

    def __init__(self, world: World, batches: Any, dim: int | None, site: Any) -> None:
        self.world, self.batches, self.dim, self.site = world, batches, dim, site
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            yield shard_batch(self.world, batch, self.dim, self.site)

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self)
        return next(self._iterator)

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)


def agree(value: T) -> T:
    """Worker 0's value, on every worker.

    For decisions on what differs between machines: clocks, files, random numbers of other
    libraries. Every worker must come here.

    Example:
        >>> if reparto.agree(time.time() - began > limit_s):
        ...     break
    """
    world = current()
    if world is None or world.size == 1:
        return value
    payload = bytearray(pickle.dumps(value) if world.rank == 0 else b"")
    length = world.data.share(torch.tensor([len(payload)], dtype=torch.int64))
    if world.rank != 0:
        payload = bytearray(int(length[0]))
    data = world.data.share(torch.frombuffer(payload, dtype=torch.uint8))
    result: T = pickle.loads(bytes(data.tolist()))
    return result


def later(tensor: Any, into: Any = 0) -> Any:
    """The number of a tensor that nothing waits for: ``tensor.item()``, when it is there.

    In an accelerated run on a GPU the result stands for the number until somebody wants it;
    anywhere else it is the number.

    Args:
        tensor: A tensor with one element.
        into: What it is added or appended to: only a plain number or a list can wait for it.

    Example:
        >>> total += reparto.later(loss, total)  # doctest: +SKIP
    """
    world = current()
    if world is None or world.accelerator is None:
        return tensor.item()
    return world.accelerator.later(tensor, into)


def now(value: T) -> T:
    """The numbers for which what `later` returned stands: of a sum, of all of a list.

    Example:
        >>> total = reparto.now(total)  # doctest: +SKIP
    """
    world = current()
    if world is None or world.accelerator is None:
        return value
    return world.accelerator.now(value)  # type: ignore[no-any-return]


def barrier() -> None:
    """Wait for every worker."""
    world = current()
    if world is not None and world.size > 1:
        world.data.barrier().wait()


def rank() -> int:
    """The number of this worker."""
    world = current()
    return world.rank if world is not None else 0


def world_size() -> int:
    """The number of workers."""
    world = current()
    return world.size if world is not None else 1


def is_main() -> bool:
    """Whether this is worker 0, the one whose output is shown and whose files are kept."""
    return rank() == 0
