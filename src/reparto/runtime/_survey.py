"""A survey: what computing and talking cost, measured on the workers that would do it.

    script begins, on every worker for itself, in a world that plays two workers:
    phase  its members step on slices of several sizes, the others wait    all phases in turn
    all    some steps more, for the memory that they take
    all    measure the links between hosts
    phase  its members time what talking costs them, and what strategies cost besides
    leave

Each worker computes its slice as it would among others, but nobody is waited for: what others
would have said is made up (`EchoGroup`). What comes out of the training is of no use, and is
thrown away.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from reparto import strategies
from reparto.comm import CountingGroup, EchoGroup, Group
from reparto.runtime import _local_costs, _span
from reparto.runtime._balance import Balance, Pass, shared_out
from reparto.runtime._current import outside
from reparto.runtime._gradients import Owner
from reparto.runtime._layout import Split
from reparto.runtime._scale import Scale, resident_bytes
from reparto.runtime._world import World
from reparto.spec import (
    Exchange,
    Link,
    LocalCost,
    Options,
    Phase,
    Profile,
    Rehearsal,
    SliceTime,
    SurveyRequest,
    WorkerProfile,
    WorkerSurvey,
)

T = TypeVar("T")

#: The first steps set up everything.
WARM_UP = 2
#: A slice's time is the median of so many steps at least, and at most.
FEWEST, MOST = 2, 12
#: A slice is not the whole batch where two are played: this much of it.
NEARLY_ALL = 0.9999


class Still(strategies.Strategy):
    """Agrees with an echo; the gradients stay."""

    def gradients_needed(
        self, parameters: strategies.ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Everyone has sent the same."""
        return [rider * self.group.size() for rider in riders]


class Surveyor:
    """Runs the phases of a survey, step by step.

    Args:
        rank: Of this worker, among all.
        hosts: Of every worker.
        group: All workers; None for a worker that is alone.
        request: What to measure.
        on_found: Told what was measured, in the end.
        talk: Makes a group of a phase's members, by a name; collective over these.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[str],
        group: Group | None,
        request: SurveyRequest,
        on_found: Callable[[WorkerSurvey], None],
        talk: Callable[[Phase, str], Group] | None = None,
    ) -> None:
        self.rank, self.hosts, self.group = rank, hosts, group
        self.request, self.on_found = request, on_found
        self.world: SurveyWorld | None = None
        self.links: tuple[Link, ...] = ()
        self.exchanges: list[Exchange] = []
        self.workers: list[WorkerProfile] = []
        self.costs: list[LocalCost] = []
        self.rehearsals: list[Rehearsal] = []
        self._talk = talk
        self._phase = -1
        self._began = 0.0
        self._times: dict[tuple[bool, int], list[SliceTime]] = defaultdict(list)
        self._startup_s = 0.0
        self._batch_rows = 0
        self._num_steps: int | None = None
        self._idle_bytes = resident_bytes()
        self._scale: Scale | None = None
        self._owners: list[Owner] = []
        self.may_be_apart = True
        self.is_over = False

    # While the script steps.

    def fractions(self) -> list[float]:
        """The slices that are tried in this phase, as parts of a batch."""
        if not self.request.phases:
            return [1.0]
        phases = self.request.phases
        size = len(phases[min(max(self._phase, 0), len(phases) - 1)].members)
        if size == 1:
            return [NEARLY_ALL, 0.5]
        return [NEARLY_ALL, 1 / size, 0.5 / size]

    def modes(self) -> tuple[bool, ...]:
        """Whether replicas are apart: as they are together, and as they are apart, in turn."""
        return (False, True) if self.request.phases and self.may_be_apart else (False,)

    def stepped(self, times: SliceTime) -> None:
        """A step has ended; at the end of the last phase, leave."""
        assert self.world is not None
        self._batch_rows = max(self._batch_rows, self.world.last_batch)
        if self.world.num_steps == 1:
            self._startup_s = time.perf_counter() - self.world.began
            self._num_steps = _span.steps_of_script()
        if self.world.num_steps <= WARM_UP:
            return
        if self._phase < 0:
            self._next_phase()
            return
        if self._scale is not None:
            self._scale.weigh(times.rows)
            if self._scale.num_weighed > len(self.fractions()):
                self._leave()
            return
        self._times[not times.apart, times.rows].append(times)
        if self._has_enough():
            self._close_phase()
            self._next_phase()

    def _has_enough(self) -> bool:
        phases = self.request.phases
        is_alone = bool(phases) and len(phases[self._phase].members) == 1
        limit_s = self.request.seconds / (2 if is_alone else 1)  # the plain script was timed, too
        is_late = time.perf_counter() - self._began > limit_s
        wanted, kinds = FEWEST if is_late else MOST, len(self.fractions()) * len(self.modes())
        counts = [len(found) for found in self._times.values()]
        # The last batch of a pass may be smaller, and two slices of a small one may be alike.
        return sum(n >= wanted for n in counts) >= kinds or sum(counts) >= 2 * kinds * wanted

    def _next_phase(self) -> None:
        """Begin the next phase that this worker computes in; wait while others do."""
        phases = self.request.phases
        self._times.clear()
        while True:
            self._phase += 1
            self._meet()
            if self._phase >= max(1, len(phases)):
                if not self.request.weighs:
                    self._leave()
                self._scale = Scale(self._idle_bytes)
                return
            if not phases or self.rank in phases[self._phase].members:
                break
        if phases:
            self._set_threads(phases[self._phase])
        self._began = time.perf_counter()

    def _close_phase(self) -> None:
        size = len(self.request.phases[self._phase].members) if self.request.phases else 1
        often = [found for _, found in sorted(self._times.items()) if len(found) >= FEWEST]
        slices = tuple(map(_median, often or list(self._times.values())))
        host = self.hosts[self.rank]
        self.workers.append(
            WorkerProfile(rank=self.rank, host=host, num_workers=size, slices=slices)
        )

    def _meet(self) -> None:
        if self.group is not None:
            self.group.barrier().wait()

    # In the end.

    def script_ended(self) -> None:
        """The script was over before the survey was: tell what is known; collective."""
        assert self.world is not None
        self._num_steps = self.world.num_steps
        if self._times:
            self._close_phase()
        while self._phase < max(1, len(self.request.phases)):
            self._phase += 1
            self._meet()
        self._leave()

    def _leave(self) -> None:
        world = self.world
        assert world is not None
        profile = self._profile(world)
        self._owners = [owner for owner in world.gradients.owners if owner.tensors]
        self._measure_talking(profile)
        self._tell(profile)
        if self.group is not None and self.request.total_s:
            with outside():  # steps that are played are not the script's
                self._rehearse(profile)
        self.is_over = True
        raise SystemExit(0)

    def _tell(self, profile: Profile) -> None:
        alone = None if self.request.phases or not self.workers else self.workers[0].slices[-1]
        self.on_found(
            WorkerSurvey(
                rank=self.rank,
                profile=profile,
                alone=alone,
                workers=tuple(self.workers) if self.request.phases else (),
                links=self.links if self.rank == 0 else (),
                exchanges=tuple(self.exchanges),
                costs=tuple(self.costs),
                rehearsals=tuple(self.rehearsals),
                num_steps=self._num_steps,
                startup_s=self._startup_s,
            )
        )

    def _measure_talking(self, profile: Profile) -> None:
        """Links, operations over the members of each phase, strategies' own costs; collective."""
        from reparto.measure.exchanges import measure_exchanges
        from reparto.measure.links import measure_links

        if self.group is None or self._talk is None or self.world is None:
            return
        with self.world.gradients.unseen():
            if len(set(self.hosts)) > 1:
                self.links = measure_links(self.group, self.hosts)
            for phase in self.request.phases:
                size = len(phase.members)
                if self.rank in phase.members and size > 1:
                    largest = _local_costs.largest_payloads(self.request.candidates, profile, size)
                    self.exchanges += measure_exchanges(self._talk(phase, "talk"), largest)
                self._meet()
            # They hardly depend on how many there are: those of the most will do for fewer.
            most = max((len(phase.members) for phase in self.request.phases), default=1)
            if most > 1:
                self.costs += _local_costs.measure(self.world, self.request.candidates, most)
            self._meet()

    def _rehearse(self, profile: Profile) -> None:
        """Play the candidates over the members of each phase, the most first; collective."""
        from reparto.runtime._rehearsal import Stage

        assert self._talk is not None and self.world is not None
        phases = sorted(self.request.phases, key=lambda phase: -len(phase.members))
        wanted = [phase for phase in phases if len(phase.members) > 1]
        rate = min((link.rate_bits_per_s for link in self.links), default=None)
        end = self.world.began + self.request.total_s
        for number, phase in enumerate(wanted):
            now = time.perf_counter()
            until = now + max(0.0, end - now) / (len(wanted) - number)
            if self.rank in phase.members:
                self._set_threads(phase)
                size = len(phase.members)
                known = [one.slices for one in self.workers if one.num_workers == size]
                names = itertools.count()

                def fresh(phase: Phase = phase, names: Iterator[int] = names) -> Group:
                    assert self._talk is not None
                    return self._talk(phase, f"{next(names)}")

                mine = known[0] if known else ()  # a short script was over before
                stage = Stage(fresh(), mine, profile, self._owners, rate, fresh)
                found = stage.play(self.request.candidates, until)
                self.rehearsals += found if stage.group.rank() == 0 else ()
            self._tell(profile)  # again, with more
            self._meet()

    def _set_threads(self, phase: Phase) -> None:
        if phase.threads:
            torch.set_num_threads(phase.threads)

    def _profile(self, world: World) -> Profile:
        tensors = [t for owner in world.gradients.owners for t in owner.tensors if t.requires_grad]
        whole = self.workers[0].slices[-1] if self.workers else None
        base_bytes, row_bytes = self._scale.fit() if self._scale is not None else (0, 0.0)
        return Profile(
            num_parameters=sum(t.numel() for t in tensors),
            gradient_bytes=sum(t.numel() * t.element_size() for t in tensors),
            step_s={one.rows: one.step_s for one in self.workers[0].slices if not one.apart}
            if whole
            else {},
            forward_fraction=whole.forward_s / whole.step_s if whole else 1 / 3,
            shapes=tuple(tuple(t.shape) for t in tensors),
            batch_rows=self._batch_rows,
            base_bytes=base_bytes,
            row_bytes=row_bytes,
            loads_whole=world.num_whole_loads > 0,
            load_s=world.whole_load_s / max(1, world.num_whole_loads) if world.loads_all else 0.0,
        )


class SurveyWorld(World):
    """A world that plays two workers, or is alone, and times its steps.

    Args:
        surveyor: Told of each step.
        options: Of the run.
        is_alone: Whether the script runs as it is.
        on_note: Told what the user should know.
    """

    def __init__(
        self,
        surveyor: Surveyor,
        *,
        options: Options,
        is_alone: bool,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        echo = None if is_alone else CountingGroup(EchoGroup(2))
        size = 1 if is_alone else 2
        super().__init__(rank=0, size=size, data=echo, options=options, on_note=on_note)
        if echo is None:
            self.strategy = strategies.Single.Config().build(None)  # type: ignore[arg-type]
        else:
            self.strategy = Still(EchoGroup(2))
            self.balance = Cycle(self)
        self.surveyor = surveyor
        surveyor.world = self
        self._ended = self._cpu = 0.0
        self._echo, self._num_met = echo, 0
        self._backward_at: float | None = None
        self._update_at = 0.0

    def before_backward(self, roots: list[Any]) -> None:
        """The forward pass is over."""
        if self._backward_at is None:
            self._backward_at = _now()
        super().before_backward(roots)

    def optimizer_step(self, optimizer: Any, hooked: Any, args: Any, kwargs: Any) -> Any:
        """The backward pass is over."""
        self._update_at = _now()
        return super().optimizer_step(optimizer, hooked, args, kwargs)

    def refuse_by_hand(self) -> None:
        """The script updates parameters without an optimizer: replicas are never apart."""
        self.surveyor.may_be_apart = self.strategy.apart = False

    def stepped(self, owner: Owner) -> None:
        """A step may be over: time it, and see what is next."""
        before, apart = self.num_steps, self.strategy.apart
        super().stepped(owner)
        if self.num_steps > before:
            self._time(apart)

    def _time(self, apart: bool) -> None:
        now, cpu = _now(), time.process_time()
        begun = self._backward_at if self._backward_at is not None else self._update_at
        times = SliceTime(
            rows=max(1, round(self.share * self.last_batch)) if self.size > 1 else self.last_batch,
            forward_s=begun - self._ended,
            backward_s=max(0.0, self._update_at - begun),
            update_s=now - self._update_at,
            cpu_s=cpu - self._cpu,
            apart=apart,
            num_meetings=self._num_meetings(),
        )
        self.surveyor.stepped(times)
        self._ended, self._cpu, self._backward_at = _now(), time.process_time(), None

    def _num_meetings(self) -> int:
        """Since it was asked last."""
        before, self._num_met = self._num_met, self._echo.rounds if self._echo is not None else 0
        return self._num_met - before


class Cycle(Balance):
    """Slices of all sizes that are wanted, in turn."""

    world: SurveyWorld

    def __init__(self, world: SurveyWorld) -> None:
        super().__init__(world, "even")
        self._turn = 0

    def split(self, total: int) -> Split:
        """The slice that is due."""
        return self.due(total, self._turn)

    def due(self, total: int, turn: int) -> Split:
        """The slice of a turn."""
        fractions = self.world.surveyor.fractions()
        fraction = fractions[turn % len(fractions)]
        return shared_out(total, (fraction, 1 - fraction))

    def new_pass(self) -> Pass:
        """A pass over a loader."""
        return _CyclePass(self)

    def after_step(self) -> None:
        """The next one is due; when all were, the other mode."""
        self._turn += 1
        surveyor = self.world.surveyor
        modes = surveyor.modes()
        self.world.strategy.apart = modes[self._turn // len(surveyor.fractions()) % len(modes)]


class _CyclePass(Pass):
    def __init__(self, cycle: Cycle) -> None:
        super().__init__(cycle.weights)
        self._cycle = cycle

    def next_split(self, total: int) -> Split:
        self.num_drawn += 1
        return self._cycle.due(total, self.num_drawn)


def _median(found: Sequence[SliceTime]) -> SliceTime:
    def middle(what: Callable[[SliceTime], float]) -> float:
        return statistics.median(map(what, found))

    forward_s, backward_s = middle(lambda one: one.forward_s), middle(lambda one: one.backward_s)
    update_s = middle(lambda one: one.update_s)
    # Medians of parts do not add up to that of the whole: they are made to.
    times = middle(lambda one: one.step_s) / max(forward_s + backward_s + update_s, 1e-12)
    return SliceTime(
        rows=found[0].rows,
        forward_s=times * forward_s,
        backward_s=times * backward_s,
        update_s=times * update_s,
        cpu_s=middle(lambda one: one.cpu_s),
        apart=found[0].apart,
        num_meetings=middle(lambda one: one.num_meetings),
    )


def _now() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()
