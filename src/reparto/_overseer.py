"""Looks on while a run goes on that was foretold, and plans again when it is not as foretold.

steps      │ window │ window │ window │        medians, computing and waiting apart
└ twice in a row off by more than 30 % ─► what was measured takes the place of what
was predicted ─► all is predicted and chosen again ─► told
"""

from __future__ import annotations

import dataclasses
import statistics

from reparto._execution import Watcher
from reparto._planning import predicted
from reparto.engines import Launch
from reparto.errors import RepartoError
from reparto.plan import choose
from reparto.spec import (
    Event,
    Exchange,
    Forecast,
    Note,
    Plan,
    Prediction,
    Program,
    SliceTime,
    Step,
    StepRecord,
    Survey,
    Trial,
    WorkerProfile,
)

#: A window is so long at least, and has so many told steps.
WINDOW_S = 5.0
LEAST_TOLD = 4
#: What is off by less is as foretold.
OFF = 0.30


class Overseer(Watcher):
    """Passes on what happens, compares the steps with what was foretold, and tells.

    Args:
        watcher: Is told everything.
        forecast: By which the run was planned.
    """

    def __init__(self, watcher: Watcher, forecast: Forecast) -> None:
        self._watcher, self._forecast = watcher, forecast
        self._running = forecast.best
        self._last: StepRecord | None = None
        self._steps: list[tuple[float, float]] = []  # seconds, of which waited
        self._window_s = 0.0
        self._was_off = False

    def found(self, result: object) -> None:
        """It was told when it was planned."""

    def planned(self, program: Program, plan: Plan, launch: Launch) -> None:
        """Pass it on."""
        self._watcher.planned(program, plan, launch)

    def has_enough(self) -> bool:
        """Pass it on."""
        return self._watcher.has_enough()

    def event(self, event: Event) -> None:
        """Pass it on, and look at steps."""
        self._watcher.event(event)
        if isinstance(event, Step) and event.rank == 0:
            self._look(event.record)

    def _look(self, record: StepRecord) -> None:
        last, self._last = self._last, record
        if last is None or record.step <= last.step:
            return
        count = record.step - last.step
        seconds = record.time_s - last.time_s
        # What was waited for since the step before is told of the last one only.
        self._steps.append((seconds / count, min(record.waited_s, seconds / count)))
        self._window_s += seconds
        if self._window_s < WINDOW_S or len(self._steps) < LEAST_TOLD:
            return
        step_s, waited_s = (statistics.median(one) for one in zip(*self._steps, strict=True))
        self._steps, self._window_s = [], 0.0
        off = step_s / self._running.step_s - 1
        is_off = abs(off) > OFF
        if is_off and self._was_off:
            self._plan_again(step_s, waited_s)
            self._was_off = False
        else:
            self._was_off = is_off

    def _plan_again(self, step_s: float, waited_s: float) -> None:
        running = self._running
        off = step_s / running.step_s
        told = (
            f"steps take {off:.1f} × as long as predicted"
            if off > 1
            else (f"steps take {off:.2f} of the time predicted")
        )
        survey = adapted(self._forecast.survey, running, step_s, waited_s)
        if running.num_workers > 1:  # it is being tried
            trial = Trial(
                strategy=running.strategy,
                num_workers=running.num_workers,
                step_s=step_s,
                num_steps=LEAST_TOLD,
            )
            survey = dataclasses.replace(survey, trials=(trial,))
        counts = sorted({one.num_workers for one in self._forecast.predictions} - {1})
        try:
            self._forecast = choose(survey, predicted(survey, counts), self._forecast.wish)
        except RepartoError as error:
            self._watcher.event(Note(rank=0, text=f"{told}; planned again, in vain: {error}"))
            return
        self._running = next(
            (one for one in self._forecast.predictions if _is_same(one, running)),
            dataclasses.replace(running, step_s=step_s),
        )
        now = self._forecast.best
        then = (
            "planned again: still the best"
            if _is_same(now, running)
            else f"planned again: {now.label} on {now.num_workers} would take {now.step_s:.3g} s; "
            "end this run with `reparto stop`, which saves a checkpoint, to change over"
        )
        self._watcher.event(Note(rank=0, text=f"{told}; {then}"))


def _is_same(one: Prediction, two: Prediction) -> bool:
    return (one.strategy, one.num_workers) == (two.strategy, two.num_workers)


def adapted(survey: Survey, running: Prediction, step_s: float, waited_s: float) -> Survey:
    """The survey as it would have come out now: computing and talking scaled to what was seen.

    Args:
        survey: As it was.
        running: What was predicted of the strategy that runs.
        step_s: Seconds a step, seen.
        waited_s: Seconds of them spent talking and waiting.
    """
    from reparto.plan.costs import predict  # brings torch

    # What was played and tried is left out, so what is scaled is what all is then added up from.
    survey = dataclasses.replace(survey, rehearsals=(), trials=())
    computing, changed, talking = step_s / running.step_s, step_s / running.step_s, 1.0
    if running.num_workers > 1:
        computed_s = max(1e-9, step_s - waited_s)
        changed = computed_s / max(1e-9, running.compute_s + running.pack_s)
        added = predict(survey, running.strategy, running.num_workers)
        computing = computed_s / max(1e-9, added.compute_s + added.pack_s)
        talking = waited_s / added.exchange_s if added.exchange_s > 0 else 1.0

    def slower(profile: WorkerProfile) -> WorkerProfile:
        slices = tuple(_slower(one, computing) for one in profile.slices)
        return dataclasses.replace(profile, slices=slices)

    def later(exchange: Exchange) -> Exchange:
        return dataclasses.replace(exchange, seconds=exchange.seconds * talking)

    return dataclasses.replace(
        survey,
        alone=_slower(survey.alone, changed),
        workers=tuple(map(slower, survey.workers)),
        exchanges=tuple(map(later, survey.exchanges)),
    )


def _slower(one: SliceTime, times: float) -> SliceTime:
    return dataclasses.replace(
        one,
        forward_s=one.forward_s * times,
        backward_s=one.backward_s * times,
        update_s=one.update_s * times,
    )
