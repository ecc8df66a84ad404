"""Joining the other workers, and leaving them: where a world is made and where it ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from reparto import strategies
from reparto.comm import (
    CountingGroup,
    Group,
)
from reparto.runtime import _patches, _settling, _tensors
from reparto.runtime._capture import has_engine
from reparto.runtime._current import current, enter, outside
from reparto.runtime._meeting import Meeting
from reparto.runtime._world import World
from reparto.spec import (
    Options,
    Phase,
    StepRecord,
    StrategyConfig,
    WorkerSurvey,
)

#: A server may have nothing to do for so long: workers may evaluate for hours.
IDLE_S = 30 * 24 * 3600.0

__all__ = ["Served", "end_survey", "join", "leave"]


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
    on_found: Callable[[WorkerSurvey], None] = lambda found: None,
    accelerate: str = "",
) -> World:
    """Meet the other workers and wrap torch; every worker calls it once.

    Raises:
        Served: This worker has served the others, and their job is over.
    """
    meeting = Meeting(rank, world_size, device, master, listen_fd)
    world: World
    if options.survey is not None:
        world = _surveyed(meeting, options, on_note, on_found)
    else:
        kind = strategies.from_spec(strategy)
        num_serving = kind.num_serving if world_size > 1 else 0
        if num_serving:
            kind.check(world_size)
            os.environ["WORLD_SIZE"] = str(world_size - num_serving)
        if rank >= world_size - num_serving:
            _serve(meeting, kind)
        world = World(
            rank=rank,
            size=world_size - num_serving,
            options=options,
            on_step=on_step,
            on_note=on_note,
        )
        _meet(world, meeting, kind)
    if options.precision == "float64":
        from reparto.runtime._promote import promote

        promote(world.note)
    if options.precision == "float32":
        from reparto.runtime._promote import leave_out_autocast

        leave_out_autocast(world.note)
    _patches.install(current, tracking=world.size > 1)
    is_played = bool(accelerate) and has_engine(device)  # it sees all that is listened to here
    if world.size > 1 and _looks_after_state(world.strategy):
        _settling.install(current)
    is_counted = options.steps is not None or (options.samples is not None and not options.losses)
    if is_counted and not is_played:
        _patches.install_gradients(current)  # steps made by hand count too
    if options.batch_rows is not None or options.memory_bytes is not None:
        from reparto.runtime._batch_rows import BatchRows

        world.batch_rows = BatchRows(world)
        world.batch_rows.install()
    if (options.losses or options.stops_early) and not is_played:
        _patches.install_losses(current)
    if options.record:
        torch.backends.cudnn.deterministic = True
        if not is_played:
            _patches.install_recording(current)
        if rank == 0:
            from reparto.runtime._record import Recorder

            world.recorder = Recorder(Path(options.record))
    enter(world)
    _seed(world)
    if accelerate and world.size == 1 and options.survey is None:
        from reparto.runtime.accelerate import Accelerator

        world.accelerator = Accelerator(
            torch.device(device), world, is_relaxed=accelerate == "relaxed"
        )
        world.accelerator.install()
    if world.data is not None:
        world.data.barrier().wait()  # who was here early has not waited for the script
        world.waiting.seconds = 0.0
    world.began = time.perf_counter()
    return world


def _meet(world: World, meeting: Meeting, kind: strategies.Config) -> None:
    """Give a world its groups and its strategy."""
    if world.size == 1:
        world.strategy = strategies.Single.Config().build(None)  # type: ignore[arg-type]
        return
    data = CountingGroup(meeting.group("data", size=world.size))
    place = _place(kind, data, meeting, world)
    ordered = CountingGroup(meeting.group("gradients", place, world.size))
    world.data, world.groups = data, [data, ordered]
    data.waiting = world.waiting
    if kind.num_serving:
        everyone = CountingGroup(meeting.group("everyone", timeout_s=IDLE_S))
        world.groups.append(everyone)
        world.strategy = kind.build_served(ordered, everyone)
    else:
        world.strategy = kind.build(ordered)
    world.strategy.outside, world.strategy.tell = outside, world.note
    world.strategy.waiting = world.waiting
    world.use(kind)
    world.stopping.store = meeting.store


class Served(SystemExit):
    """A worker that runs no script has done its duty.

    Args:
        summary: What it reports.
    """

    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__(0)
        self.summary = summary


def _serve(meeting: Meeting, kind: strategies.Config) -> NoReturn:
    """Serve those who run the script; they say when it is over, not a signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    everyone = CountingGroup(meeting.group("everyone", timeout_s=IDLE_S))
    kind.serve(everyone)
    raise Served({"bytes_sent": everyone.bytes_sent, "wire_bytes": everyone.wire_bytes})


def _surveyed(
    meeting: Meeting,
    options: Options,
    on_note: Callable[[str], None] | None,
    on_found: Callable[[WorkerSurvey], None],
) -> World:
    """A world in which costs are measured, see `_survey`."""
    from reparto.runtime._survey import Surveyor, SurveyWorld

    request = options.survey
    assert request is not None
    if not request.phases:
        alone = Surveyor(0, [meeting.host_name], None, request, on_found)
        return SurveyWorld(alone, options=options, is_alone=True, on_note=on_note)

    def talk(phase: Phase, name: str) -> Group:
        members = phase.members
        name = f"survey-{len(members)}-{name}"
        return meeting.group(name, members.index(meeting.rank), len(members))

    group = meeting.group("survey")
    surveyor = Surveyor(meeting.rank, meeting.hosts(), group, request, on_found, talk)
    return SurveyWorld(surveyor, options=options, is_alone=False, on_note=on_note)


def _looks_after_state(strategy: strategies.Strategy) -> bool:
    """Whether it must be asked before anybody looks at parameters or at an optimizer's state."""
    own, base = type(strategy), strategies.Strategy
    return own.settle is not base.settle or own.gather_state is not base.gather_state


def _place(config: strategies.Config, data: Group, meeting: Meeting, world: World) -> int:
    """This worker's place in the strategy's group, by the measured links."""
    rank = meeting.rank
    if not isinstance(config, strategies.Shared) or config.topology == "given":
        return rank
    if meeting.is_one_host or config.num_serving:
        return rank
    hosts = meeting.hosts()
    if meeting.device == "cuda" or len(set(hosts)) < config.least_hosts:
        return rank  # NCCL looks for a ring of its own
    from reparto.measure.links import measure_links

    costs = strategies.costs_of(measure_links(data, hosts), hosts)
    order = config.order(costs)
    if order != sorted(order):
        told = " ".join(map(str, order))
        world.note(f"links were measured: workers stand in the order {told}")
    return order.index(rank)


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
    if world.accelerator is not None:
        world.accelerator.uninstall()
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
        "batch_rows": world.batch_rows.most if world.batch_rows is not None else 0,
        "notes": _notes(world),
    }
    enter(None)
    _patches.uninstall()
    return summary


def end_survey(world: World) -> None:
    """The script has ended, on request or before all was measured."""
    from reparto.runtime._survey import SurveyWorld

    if isinstance(world, SurveyWorld) and not world.surveyor.is_over:
        world.surveyor.script_ended()


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
    notes = [] if world.accelerator is None else world.accelerator.told()
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
