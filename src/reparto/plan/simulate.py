"""A strategy on hosts that need not be there, simulated step by step. Pure, given a survey.

    Survey, measured or imagined ─┬─ who waits for each other ─► clocks, a vector   ─┐
                                  └─ who waits for a server   ─► events, on a heap  ─┴─► Simulation

What a step takes comes from `costs`: without jitter, stragglers and failures both tell the same.
Not part of the package's public list: it brings torch, since strategies tell their traffic
themselves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reparto import strategies
from reparto.errors import UsageError
from reparto.plan import costs
from reparto.plan._clocks import Clocks, Spent, Talk, Work
from reparto.plan._fabric import Fabric
from reparto.plan._noise import Noise, Trouble
from reparto.plan._packing import aside_cpu_s, packing_s
from reparto.plan._queue import Service, serve
from reparto.plan._speeds import paces
from reparto.spec import Milestone, Simulation, StrategyConfig, Survey, Traffic
from reparto.strategies._gossip import distances

#: Points of the curve.
MILESTONES = 100
#: Who had to make so many times the steps that were wanted never comes to an end.
MOST_TIMES = 20


def simulate(
    survey: Survey,
    strategy: StrategyConfig,
    num_workers: int,
    steps: int,
    *,
    label: str = "",
    stragglers: float = 0.0,
    straggler_slowdown: float = 4.0,
    jitter: float = 0.05,
    failures_per_hour: float = 0.0,
    restart_s: float = 30.0,
    checkpoint_every: int = 100,
    seed: int = 0,
) -> Simulation:
    """Simulate some steps of a strategy.

    Where workers wait for each other, a failure of one costs all of them `restart_s`, and the
    steps since the last checkpoint. Where they wait for a server only, it costs that worker its
    step, and it alone is away; servers do not fail.

    Args:
        survey: What was measured, or imagined.
        strategy: With its settings.
        num_workers: How many.
        steps: How many; of a strategy whose workers do not wait for each other, of each.
        label: As tables name it.
        stragglers: Share of the workers that crawl at any time, each for some fifty steps.
        straggler_slowdown: How many times as long a crawling worker computes.
        jitter: By how much a step's computing varies, as a part of it.
        failures_per_hour: Of one worker.
        restart_s: From a failure until training goes on.
        checkpoint_every: Steps between two checkpoints.
        seed: Of all that is drawn; the same one gives the same simulation.

    Raises:
        UsageError: If the settings do not suit so many workers, or something is no number that it
            could be.
    """
    trouble = Trouble(
        jitter=jitter,
        stragglers=stragglers,
        slowdown=straggler_slowdown,
        failures_per_hour=failures_per_hour,
        restart_s=restart_s,
        checkpoint_every=checkpoint_every,
        seed=seed,
    )
    _check(trouble, survey, num_workers, steps)
    expected = dataclasses.replace(survey, rehearsals=(), trials=())
    prediction = costs.predict(expected, strategy, num_workers, label)
    way = _way(survey, strategy, num_workers)
    course = way.served(steps, trouble) if way.is_served else way.together(steps, trouble)
    mean_s = course.total_s / len(course.ends) if course.ends else math.inf
    durations = np.diff([0.0, *course.ends]) if course.ends else np.array([math.inf])
    spent, all_s = course.spent, course.spent.total or 1.0
    batches = prediction.samples_a_step / max(1, survey.profile.batch_rows)
    script_steps = prediction.num_steps
    return Simulation(
        strategy=strategy,
        label=prediction.label,
        num_workers=num_workers,
        exact=prediction.exact,
        num_steps=steps,
        is_finished=len(course.ends) == steps,
        samples_a_step=prediction.samples_a_step,
        total_s=course.total_s,
        mean_s=mean_s,
        median_s=float(np.median(durations)),
        p95_s=float(np.quantile(durations, 0.95, method="higher")),
        longest_s=float(durations.max()),
        computing=spent.computing / all_s,
        packing=spent.packing / all_s,
        talking=spent.talking / all_s,
        waiting=spent.waiting / all_s,
        down=spent.down / all_s,
        num_failures=course.num_failures,
        steps_lost=course.steps_lost,
        wire_bytes=prediction.wire_bytes,
        speed_up=batches * survey.alone.step_s / mean_s,
        script_steps=script_steps,
        script_s=None if script_steps is None else survey.startup_s + script_steps * mean_s,
        curve=_curve(course.ends),
    )


@dataclass
class _Course:
    """What came of a simulation.

    Attributes:
        ends: When each step was done, for good.
        spent: By all workers, on what.
        total_s: Until the end.
        num_failures: Of workers.
        steps_lost: That had to be made again.
    """

    ends: Sequence[float]
    spent: Spent
    total_s: float
    num_failures: int = 0
    steps_lost: int = 0


@dataclass(frozen=True)
class _Way:
    """A strategy on so many workers, in seconds.

    Attributes:
        config: Of the strategy.
        work: What workers do who wait for each other.
        line_s: For which a server's line serves one worker.
        alone_s: What a server takes for a worker, if nobody else is there.
        is_served: Whether workers wait for a server only.
    """

    config: strategies.Config
    work: Work
    line_s: float = 0.0
    alone_s: float = 0.0
    is_served: bool = False

    def together(self, steps: int, trouble: Trouble) -> _Course:
        """Simulate workers that wait for each other."""
        size = len(self.work.compute_s)
        noise, clocks = Noise(trouble, size), Clocks(self.work)
        fails_at = noise.next_failure(0.0, size)
        course = _Course([], clocks.spent, 0.0)
        ends: list[float] = []
        saved = 0
        for factors in noise.steps():
            before, began = dataclasses.replace(clocks.spent), clocks.at
            clocks.step(len(ends), factors)
            if len(ends) == steps - 1:
                clocks.finish()
            now = float(clocks.at.max())
            if now <= fails_at:
                ends.append(now)
                saved = len(ends) if len(ends) % trouble.checkpoint_every == 0 else saved
            else:  # the step was not to be
                clocks.spent = before
                again = fails_at + trouble.restart_s
                clocks.spent.down += float((again - began).sum())
                clocks.at = np.full(size, again)
                clocks.drop()
                course.num_failures += 1
                course.steps_lost += len(ends) + 1 - saved
                del ends[saved:]
                fails_at = noise.next_failure(again, size)
            if len(ends) == steps or course.steps_lost > MOST_TIMES * steps:
                break
        course.ends, course.spent = ends, clocks.spent
        course.total_s = float(clocks.at.max())
        return course

    def served(self, steps: int, trouble: Trouble) -> _Course:
        """Simulate workers that wait for a server only."""
        size = len(self.work.compute_s)
        bound_for = getattr(self.config, "bound_for", None)
        service = Service(
            compute_s=self.work.compute_s,
            pack_s=self.work.pack_s,
            line_s=self.line_s,
            way_s=max(0.0, self.alone_s - self.line_s),
            bound=int(bound_for(size)) if bound_for is not None else 4 * size,
            restart_s=trouble.restart_s,
        )
        found = serve(service, Noise(trouble, size), steps)
        total_s = found.ends[-1] if len(found.ends) == steps else math.inf
        lost = found.num_failures
        return _Course(found.ends, found.spent, total_s, found.num_failures, lost)


def _way(survey: Survey, strategy: StrategyConfig, num_workers: int) -> _Way:
    config = strategies.from_spec(strategy)
    speeds = paces(survey, num_workers, apart=config.computes_apart)
    rows = costs.rows_of(config, speeds, survey.profile)
    factor = costs.calibration(survey, config.computes_apart, num_workers)
    compute_s = factor * np.array(costs.computing_s(config, survey, speeds, rows))
    slowest = int(compute_s.argmax())
    share = costs.cpu_share(speeds[slowest], rows[slowest])
    messages = costs.traffic_of(config, survey, num_workers)
    fabric = Fabric(survey.exchanges, survey.cluster.links)
    talks = tuple(_talks(messages, config, fabric, share, num_workers))
    gossip = config if isinstance(config, strategies.Gossip.Config) else None
    work = Work(
        compute_s=compute_s,
        pack_s=factor * packing_s(survey, strategy, num_workers, share)
        + aside_cpu_s(survey, strategy, num_workers) / share,
        talks=talks,
        gossips=gossip is not None,
        gossips_every=gossip.sync_every if gossip is not None else 1,
        distances=_distances(gossip, num_workers) if gossip is not None else (),
    )
    if not costs.is_served(config, messages):
        return _Way(config, work)
    alone_s, hot_s = costs.served_s(fabric, messages, config, num_workers)
    return _Way(config, work, hot_s / num_workers, alone_s, True)


def _talks(
    messages: Traffic, config: strategies.Config, fabric: Fabric, share: float, num_workers: int
) -> list[Talk]:
    return [
        Talk(
            pattern=one.pattern,
            seconds=costs.message_s(fabric, one, config, num_workers),
            taken_s=fabric.cpu_s(one.pattern, one.size_bytes, num_workers) / share,
            ready_at=one.ready_at,
            every=one.every,
            window=max(0.0, one.needed_at - one.ready_at),
        )
        for one in messages
    ]


def _distances(config: strategies.Gossip.Config, num_workers: int) -> tuple[int, ...]:
    """None where pairs are drawn."""
    return () if config.graph == "random" else tuple(distances(config, num_workers))


def _curve(ends: Sequence[float]) -> tuple[Milestone, ...]:
    count = len(ends)
    chosen = sorted({math.ceil(count * (i + 1) / MILESTONES) for i in range(MILESTONES)} - {0})
    return tuple(Milestone(step=step, time_s=ends[step - 1]) for step in chosen)


def _check(trouble: Trouble, survey: Survey, num_workers: int, steps: int) -> None:
    wrong = {
        "stragglers": (not 0 <= trouble.stragglers < 1, "a share from 0 to below 1"),
        "straggler_slowdown": (not 1 <= trouble.slowdown < math.inf, "a factor of at least 1"),
        "jitter": (not 0 <= trouble.jitter <= 2, "a part from 0 to 2"),
        "failures_per_hour": (not 0 <= trouble.failures_per_hour < math.inf, "0 or more"),
        "restart_s": (not 0 <= trouble.restart_s < math.inf, "0 or more seconds"),
        "checkpoint_every": (trouble.checkpoint_every < 1, "1 or more steps"),
        "seed": (trouble.seed < 0, "0 or more"),
        "steps": (steps < 1, "1 or more"),
        "num_workers": (num_workers < 2, "2 or more"),
    }
    for name, (is_wrong, wanted) in wrong.items():
        if is_wrong:
            raise UsageError(f"{name} is out of range", remedy=f"give {wanted}")
    if not survey.workers or not survey.exchanges:
        raise UsageError(
            "one worker was measured, so nothing is known of what talking takes",
            remedy="measure two workers at least: --workers 2",
        )
