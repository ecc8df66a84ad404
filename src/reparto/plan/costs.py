"""What a strategy would take on so many workers, from what was measured. Pure.

    step     computing ─────────────────────┐ packing ┐ what talking is left
             buckets sent while the backward pass goes on ──────────┘
    rounds   every so many steps: shared out over these; may travel for some steps

Not part of the package's public list: it brings torch, since strategies tell their traffic
themselves.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from reparto import strategies
from reparto.errors import UsageError
from reparto.plan._fabric import Fabric
from reparto.plan._packing import aside_cpu_s, packing_s
from reparto.plan._quality import quality_of
from reparto.plan._speeds import Pace, paces, shared_rows
from reparto.spec import (
    Cluster,
    Host,
    Message,
    Prediction,
    Profile,
    Rehearsal,
    Span,
    StrategyConfig,
    Survey,
    Traffic,
    Trial,
)

#: Of each worker, of a script that does not tell.
USUAL_STEPS = 1000
#: What was played tells at most that computing takes so many times as long, or as short.
MOST_CALIBRATION = 1.6


@dataclass(frozen=True)
class Step:
    """The parts of a predicted step.

    Attributes:
        compute_s: The slowest worker's.
        pack_s: The strategy's own.
        exchange_s: Talking that nothing hides.
        under_way: When something travels, since the step began.
    """

    compute_s: float
    pack_s: float
    exchange_s: float
    under_way: tuple[tuple[float, float], ...] = ()

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compute_s + self.pack_s + self.exchange_s


def alone(survey: Survey) -> Prediction:
    """The plain script on one machine."""
    step_s = survey.alone.step_s
    steps = survey.num_steps
    return Prediction(
        strategy=StrategyConfig(kind="single"),
        label="plain script",
        num_workers=1,
        samples_a_step=survey.profile.batch_rows,
        compute_s=step_s,
        step_s=step_s,
        is_measured=True,
        num_steps=steps,
        total_s=None if steps is None else survey.startup_s + steps * step_s,
        peak_bytes=_peak(survey, survey.profile.batch_rows),
        timeline=(Span(what="compute", begin_s=0.0, end_s=step_s),),
    )


def predict(
    survey: Survey, strategy: StrategyConfig, num_workers: int, label: str = ""
) -> Prediction:
    """What a strategy would take.

    Raises:
        UsageError: If its settings do not suit so many workers.
    """
    config = strategies.from_spec(strategy)
    config.check(num_workers)
    if config.num_serving:
        raise UsageError(
            "dedicated servers are not predicted", remedy="leave out dedicated, or try it"
        )
    takes_batches = takes_batch_each(config)
    batch = max(1, survey.profile.batch_rows)
    speeds = paces(survey, num_workers, apart=config.computes_apart)
    rows = rows_of(config, speeds, survey.profile)
    step = _step(survey, config, strategy, speeds, rows)
    trial = _seen(survey.trials, strategy, num_workers)
    rehearsal = _seen(survey.rehearsals, strategy, num_workers)
    if trial is not None:
        step_s = trial.step_s
    elif rehearsal is not None:
        step_s = rehearsal.step_s
    else:
        step = _calibrated(step, survey, config.computes_apart, num_workers)
        step_s = step.seconds
    samples = batch * num_workers if takes_batches else batch
    steps = survey.num_steps
    if steps is not None and takes_batches:
        steps = math.ceil(steps / num_workers)
    messages = traffic_of(config, survey, num_workers)
    return Prediction(
        strategy=strategy,
        label=label or strategy.kind,
        num_workers=num_workers,
        exact=config.exact,
        changes=config.changes,
        quality=quality_of(strategy) if not config.exact else "",
        samples_a_step=samples,
        compute_s=step.compute_s,
        pack_s=step.pack_s,
        exchange_s=max(0.0, step_s - step.compute_s - step.pack_s),
        step_s=step_s,
        is_measured=trial is not None,
        wire_bytes=sum(one.wire_bytes(num_workers) / one.every for one in messages),
        peak_bytes=_peak(survey, max(rows)),
        num_steps=steps,
        total_s=None if steps is None else survey.startup_s + steps * step_s,
        speed_up=(samples / step_s) / (batch / survey.alone.step_s),
        timeline=_timeline(step, step_s / step.seconds),
    )


T = TypeVar("T", Trial, Rehearsal)


def _seen(tried: Sequence[T], strategy: StrategyConfig, num_workers: int) -> T | None:
    return next(
        (one for one in tried if one.strategy == strategy and one.num_workers == num_workers), None
    )


def _calibrated(step: Step, survey: Survey, apart: bool, num_workers: int) -> Step:
    """A step whose computing takes as much longer as it did where others were played."""
    factor = calibration(survey, apart, num_workers)
    return dataclasses.replace(
        step, compute_s=factor * step.compute_s, pack_s=factor * step.pack_s
    )


def calibration(survey: Survey, apart: bool, num_workers: int) -> float:
    """How many times as long computing takes where strategies were played, as it does by itself.

    Args:
        survey: With what was played; without, it is 1.
        apart: Whether replicas are apart; batch normalisation meets where they are not.
        num_workers: How many.
    """
    factors = []
    for one in survey.rehearsals:
        config = strategies.from_spec(one.strategy)
        if one.num_workers != num_workers or not getattr(config, "waits", True):
            continue
        if config.computes_apart == apart:
            speeds = paces(survey, num_workers, apart=apart)
            rows = rows_of(config, speeds, survey.profile)
            known = _step(survey, config, one.strategy, speeds, rows)
            busy_s = known.compute_s + known.pack_s
            if known.exchange_s < 0.5 * busy_s:  # else it tells about the line
                factors.append((one.step_s - known.exchange_s) / busy_s)
    factor = statistics.median(factors) if factors else 1.0
    return min(MOST_CALIBRATION, max(1 / MOST_CALIBRATION, factor))


def takes_batch_each(config: strategies.Config) -> bool:
    """Whether a step is made of a batch of each worker's."""
    return config.batches_a_step(2) > 1


def rows_of(config: strategies.Config, speeds: Sequence[Pace], profile: Profile) -> list[float]:
    """How many rows each worker computes with in a step."""
    total = max(1, profile.batch_rows) * config.batches_a_step(len(speeds))
    return shared_rows(speeds, total, balanced=config.balances(loads_whole=profile.loads_whole))


def computing_s(
    config: strategies.Config, survey: Survey, speeds: Sequence[Pace], rows: Sequence[float]
) -> list[float]:
    """What each worker computes in a step, meetings that are not about gradients included."""
    fabric = Fabric(survey.exchanges, survey.cluster.links)
    num_workers, profile = len(speeds), survey.profile
    meeting_s = fabric.seconds("all-reduce", 1024, num_workers)
    found = []
    for pace, count in zip(speeds, rows, strict=True):
        seconds = pace.step_s(count) + pace.num_meetings * meeting_s
        if profile.loads_whole and takes_batch_each(config):  # of all workers
            seconds += (num_workers - 1) * profile.load_s / cpu_share(pace, count)
        found.append(seconds)
    return found


def traffic_of(config: strategies.Config, survey: Survey, num_workers: int) -> Traffic:
    """What a worker sends."""
    hosts = tuple(Host(name=str(rank)) for rank in range(num_workers))
    return config.traffic(survey.profile, Cluster(hosts=hosts))


def _step(
    survey: Survey,
    config: strategies.Config,
    strategy: StrategyConfig,
    speeds: Sequence[Pace],
    rows: Sequence[float],
) -> Step:
    num_workers = len(speeds)
    compute_s = computing_s(config, survey, speeds, rows)
    slowest = max(range(num_workers), key=compute_s.__getitem__)
    fabric = Fabric(survey.exchanges, survey.cluster.links)
    share = cpu_share(speeds[slowest], rows[slowest])
    pack_s = packing_s(survey, strategy, num_workers, share)
    messages = traffic_of(config, survey, num_workers)
    if is_served(config, messages):
        steps = survey.num_steps or USUAL_STEPS * num_workers
        pace_s = _held_s(config, compute_s, steps / num_workers)
        return _served(fabric, messages, config, pace_s, pack_s, num_workers)
    aside_s = aside_cpu_s(survey, strategy, num_workers) / share
    parts = (compute_s[slowest], pack_s, aside_s)
    return _exchanged(fabric, messages, config, parts, share, num_workers)


def is_served(config: strategies.Config, messages: Traffic) -> bool:
    """Whether nobody waits for anybody but a server, whose line all share."""
    waits = getattr(config, "waits", True)
    return not waits and any(one.pattern in ("push", "pull") for one in messages)


def _exchanged(
    fabric: Fabric,
    messages: Traffic,
    config: strategies.Config,
    parts: tuple[float, float, float],
    share: float,
    num_workers: int,
) -> Step:
    """Everyone waits for everyone: what is not hidden behind computing adds up.

    `parts` are computing, packing, and packing aside, in seconds a step.
    """
    compute_s, pack_s, aside_s = parts
    blocking_s = sum(
        message_s(fabric, m, config, num_workers)
        for m in messages
        if m.every == 1 and m.needed_at <= m.ready_at
    )
    each_step = sorted(
        (m for m in messages if m.every == 1 and m.needed_at > m.ready_at),
        key=lambda m: m.ready_at,
    )
    hidden_cpu_s = sum(
        fabric.cpu_s(m.pattern, m.size_bytes, num_workers) / share
        for m in each_step
        if m.ready_at < 1.0
    )
    busy_s = compute_s + hidden_cpu_s  # sending takes its processor time from computing
    free_at, under_way = 0.0, []
    for message in each_step:
        begin = max(free_at, message.ready_at * busy_s)
        free_at = begin + message_s(fabric, message, config, num_workers)
        under_way.append((begin, free_at))
    exposed_s = blocking_s + max(0.0, free_at - busy_s) + hidden_cpu_s
    if blocking_s:
        under_way.append((busy_s, busy_s + blocking_s))
    for (every, window), sent in _rounds(messages).items():  # one after the other
        seconds = [message_s(fabric, m, config, num_workers) for m in sent]
        cpu_s = [fabric.cpu_s(m.pattern, m.size_bytes, num_workers) / share for m in sent]
        left_s = sum(seconds)
        if window:  # it is packed aside before it is sent, in the processor time of computing
            aside_round_s = aside_s * every
            taken_s = aside_round_s + sum(map(min, cpu_s, seconds))
            left_s = max(taken_s, aside_round_s + left_s - window * compute_s)
        exposed_s += left_s / every
    return Step(compute_s, pack_s, exposed_s, tuple(under_way))


def _rounds(messages: Traffic) -> dict[tuple[int, float], list[Message]]:
    """Messages of rounds, by how many steps a round has and for how many they may travel."""
    found: dict[tuple[int, float], list[Message]] = {}
    for one in messages:
        if one.every > 1:
            window = max(0.0, one.needed_at - one.ready_at)
            found.setdefault((one.every, window), []).append(one)
    return found


def _served(
    fabric: Fabric,
    messages: Traffic,
    config: strategies.Config,
    compute_s: float,
    pack_s: float,
    num_workers: int,
) -> Step:
    alone_s, hot_s = served_s(fabric, messages, config, num_workers)
    exchange_s = max(alone_s, hot_s - compute_s - pack_s)
    return Step(compute_s, pack_s, exchange_s, ((compute_s, compute_s + exchange_s),))


def _held_s(config: strategies.Config, compute_s: Sequence[float], num_steps: float) -> float:
    """What a worker computes in a step, where all go at their own pace until one is too far ahead.

    From then on the slowest sets the pace.
    """
    count = len(compute_s)
    mean_s = count / sum(1 / seconds for seconds in compute_s)
    bound_for = getattr(config, "bound_for", None)
    if bound_for is None:
        return mean_s
    ahead = bound_for(count) * (count - 1) / count
    return max(mean_s, max(compute_s) * (1 - float(min(1.0, ahead / num_steps))))


def served_s(
    fabric: Fabric, messages: Traffic, config: strategies.Config, num_workers: int
) -> tuple[float, float]:
    """What a server takes for one worker, and for all of them one after the other."""
    alone_s = sum(fabric.seconds("swap", _whole(m, num_workers), num_workers) for m in messages)
    hot_s = sum(message_s(fabric, m, config, num_workers) for m in messages)
    return max(alone_s, hot_s / num_workers), hot_s


def message_s(
    fabric: Fabric, message: Message, config: strategies.Config, num_workers: int
) -> float:
    """Until a message has come to all who are to have it."""
    if message.pattern in ("push", "pull"):
        servers = max(1, min(int(getattr(config, "servers", 1) or 1), num_workers))
        return fabric.seconds(message.pattern, _whole(message, num_workers) / servers, num_workers)
    return fabric.seconds(message.pattern, message.size_bytes, num_workers)


def _whole(message: Message, num_workers: int) -> float:
    """What one worker has for servers elsewhere; a message to them tells the mean over workers."""
    return message.size_bytes * num_workers / max(1, num_workers - 1)


def cpu_share(pace: Pace, rows: float) -> float:
    """How much processor time a worker gets in a second of computing; at most one core counts."""
    found = pace.at(rows)
    return min(1.0, max(0.05, found.cpu_s / max(found.step_s, 1e-9)))


def _peak(survey: Survey, rows: float) -> int:
    profile = survey.profile
    return round(profile.base_bytes + rows * profile.row_bytes) if profile.base_bytes else 0


def _timeline(step: Step, scale: float) -> tuple[Span, ...]:
    """The parts of a step, drawn out to what it was measured to take."""
    computed = step.compute_s + step.pack_s
    spans = [Span(what="compute", begin_s=0.0, end_s=step.compute_s)]
    if step.pack_s:
        spans.append(Span(what="pack", begin_s=step.compute_s, end_s=computed))
    under_way = step.under_way or ((computed, step.seconds),)
    spans += [Span(what="communicate", begin_s=b, end_s=e) for b, e in under_way if e > b]
    if step.exchange_s > 0:
        spans.append(Span(what="wait", begin_s=computed, end_s=step.seconds))
    return tuple(
        Span(what=one.what, begin_s=scale * one.begin_s, end_s=scale * one.end_s) for one in spans
    )
