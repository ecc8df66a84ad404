"""Joining the other workers, and leaving them: where a world is made and where it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from reparto import strategies
from reparto.comm import (
    CountingGroup,
    GlooGroup,
    Group,
    NcclGroup,
    RoutedGroup,
    ThrottledGroup,
    Wire,
    host_group,
    own_address,
)
from reparto.runtime import _patches, _settling, _tensors
from reparto.runtime._current import current, enter, outside
from reparto.runtime._world import World
from reparto.spec import Line, Options, StepRecord, StrategyConfig, from_json

__all__ = ["join", "leave"]


def join(
    *,
    rank: int,
    world_size: int,
    strategy: StrategyConfig,
    options: Options,
    device: str = "cpu",
    master: tuple[str, int] = ("127.0.0.1", 0),
    listen_fd: int | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> World:
    """Meet the other workers and wrap torch; every worker calls it once."""
    world = World(rank=rank, size=world_size, options=options, on_step=on_step, on_note=on_note)
    kind = strategies.from_spec(strategy)
    if world_size > 1:
        store = TCPStore(
            master[0],
            master[1],
            world_size,
            rank == 0,
            timeout=timedelta(seconds=120),
            wait_for_workers=False,
            master_listen_fd=listen_fd if rank == 0 else None,
        )
        wire = _wire(rank)
        data = CountingGroup(_on(wire, _group(store, rank, world_size, device, master, "data")))
        place = _place(kind, data, store, own_address(*master), device, world)
        ordered = CountingGroup(
            _on(wire, _group(store, place, world_size, device, master, "gradients"))
        )
        world.data, world.groups = data, [data, ordered]
        data.waiting = world.waiting
        world.strategy = kind.build(ordered)
        world.strategy.outside, world.strategy.tell = outside, world.note
        world.strategy.waiting = world.waiting
        world.use(kind)
        world.stopping.store = store
    else:
        world.strategy = strategies.Single.Config().build(None)  # type: ignore[arg-type]
    if options.precision == "float64":
        from reparto.runtime._promote import promote

        promote(world.note)
    if options.precision == "float32":
        from reparto.runtime._promote import leave_out_autocast

        leave_out_autocast(world.note)
    _patches.install(current, tracking=world_size > 1)
    if world_size > 1 and _looks_after_state(world.strategy):
        _settling.install(current)
    if options.steps is not None or (options.samples is not None and not options.losses):
        _patches.install_gradients(current)  # steps made by hand count too
    if options.losses or options.stops_early:
        _patches.install_losses(current)
    if options.record:
        torch.backends.cudnn.deterministic = True
        _patches.install_recording(current)
        if rank == 0:
            from reparto.runtime._record import Recorder

            world.recorder = Recorder(Path(options.record))
    enter(world)
    _seed(world)
    world.began = time.perf_counter()
    return world


def _looks_after_state(strategy: strategies.Strategy) -> bool:
    """Whether it must be asked before anybody looks at parameters or at an optimizer's state."""
    own, base = type(strategy), strategies.Strategy
    return own.settle is not base.settle or own.gather_state is not base.gather_state


def _wire(rank: int) -> Wire | None:
    """The line that this worker plays, if it plays one; see `Host.line`."""
    line = os.environ.get("REPARTO_LINE")
    return Wire(from_json(Line, line), seed=rank) if line else None


def _on(wire: Wire | None, group: Group) -> Group:
    return group if wire is None else ThrottledGroup(group, wire)


def _group(
    store: Store, rank: int, size: int, device: str, master: tuple[str, int], name: str
) -> Group:
    address = own_address(*master)
    carrier: Group = GlooGroup(store, rank=rank, size=size, address=address, name=name)
    is_one_host = os.environ.get("LOCAL_WORLD_SIZE") == str(size)
    if is_one_host and os.environ.get("REPARTO_SHARED_MEMORY") != "0":
        carrier = host_group(carrier, store, name=name)
    if device != "cuda" or not _has_own_gpu(PrefixStore(name, store), rank, size):
        return carrier  # gloo carries tensors of GPUs as well, by way of main memory
    return RoutedGroup(carrier, NcclGroup(store, rank=rank, size=size, name=f"{name}-gpu"))


def _place(
    config: strategies.Config, data: Group, store: Store, address: str, device: str, world: World
) -> int:
    """This worker's place in the strategy's group, by the measured links."""
    rank, size = world.rank, world.size
    if not isinstance(config, strategies.Shared) or config.topology == "given":
        return rank
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
        return rank  # all on one host
    # Hosts that one machine plays have one address; their workers are told the name.
    store.set(f"address/{rank}", os.environ.get("REPARTO_HOST") or address)
    hosts = [store.get(f"address/{member}").decode() for member in range(size)]
    if device == "cuda" or len(set(hosts)) < config.least_hosts:
        return rank  # NCCL looks for a ring of its own
    from reparto.measure.links import measure_links

    costs = strategies.costs_of(measure_links(data, hosts), hosts)
    order = config.order(costs)
    if order != sorted(order):
        told = " ".join(map(str, order))
        world.note(f"links were measured: workers stand in the order {told}")
    return order.index(rank)


def _has_own_gpu(store: Store, rank: int, size: int) -> bool:
    """Whether no two workers use the same GPU, which NCCL refuses to carry."""
    mine = torch.cuda.get_device_properties(torch.cuda.current_device())
    store.set(f"gpu/{rank}", str(mine.uuid))
    return len({store.get(f"gpu/{member}") for member in range(size)}) == size


def _seed(world: World) -> None:
    if world.size == 1 and not world.options.shared_draws:
        return  # one worker is the script itself, to the bit
    from reparto.runtime._seeds import share_randomness

    given = iter(world.options.seeds)

    def agree(value: int) -> int:
        if world.gradients.quiet:
            return value  # inside a loader each worker makes its own rows
        value = next(given, value)
        if world.recorder is not None:
            world.recorder.seed(value)
        if world.size == 1:
            return value
        seed = torch.tensor([value & 0x7FFFFFFFFFFFFFFF], dtype=torch.int64)
        return int(torch._C.TensorBase.item(world.data.share(seed)))

    share_randomness(world.options.seed, agree)


def leave(world: World) -> dict[str, Any]:
    """End the run on this worker.

    Returns:
        What the worker reports: steps, samples, times, bytes, notes.
    """
    if world.recorder is not None or world.options.record:
        _record_state(world)
    world.settle()
    world.strategy.finish()
    summary = {
        "num_steps": world.num_steps,
        "num_samples": world.num_samples,
        "train_s": world.last_step - world.first_step,
        "final_loss": world.known_loss(),
        "bytes_sent": sum(group.bytes_sent for group in world.groups),
        "wire_bytes": world.wire_bytes,
        "waited_s": world.waiting.seconds,
        "notes": _notes(world),
    }
    enter(None)
    _patches.uninstall()
    return summary


def _record_state(world: World) -> None:
    tensors: dict[str, Tensor] = {}
    for owner in (*world.gradients.owners, world.gradients.loose):
        for index, tensor in enumerate(owner.tensors):
            tensors[f"{owner.name}.{index}"] = world.strategy.whole(tensor).detach()
    for position, module in enumerate(world.modules):
        for name, buffer in module.named_buffers():
            tensors[f"model{position}.{name}"] = _tensors.whole(world, buffer.detach())
    if world.recorder is not None:
        world.recorder.state(tensors)
        world.recorder.close()


#: Operations whose purpose it is to bring values to the script.
_READERS = frozenset("item tolist numpy __array__ __repr__ __format__ __float__ __int__".split())


def _notes(world: World) -> list[str]:
    notes = []
    often = {
        name: count
        for name, count in world.gathered_operations.items()
        if name not in _READERS and count >= max(2, world.num_steps // 2) and world.size > 1
    }
    if often:
        names = ", ".join(sorted(often))
        notes.append(f"ran on the whole batch on every worker: {names}")
    if world.draws.were_made():
        notes.append(
            "the model draws (dropout and the like): each worker did so for its own samples, so "
            "these numbers, and shuffles and initial values that come after them, are others "
            "than alone"
        )
    return notes
