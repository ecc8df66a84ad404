"""Running a program by a plan, and looking on until it has ended."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import TYPE_CHECKING

from reparto import engines
from reparto._probe import AFTER_STEP, Finding, Probe
from reparto.engines import Engine, Interrupts, Launch, Run
from reparto.spec import (
    Assignment,
    Cluster,
    Event,
    Failure,
    Forecast,
    Note,
    Options,
    Plan,
    Program,
    RunResult,
    Step,
)

if TYPE_CHECKING:
    from reparto.convert import Result

POLL_S = 0.25


class Watcher:
    """Is told what happens, in this order. Does nothing; override what you want to see."""

    def found(self, result: Result) -> None:
        """The script was analysed."""

    def measuring(self, what: str) -> None:
        """Something is being measured, before anything is decided."""

    def forecast(self, forecast: Forecast) -> None:
        """It was measured and predicted, and chosen."""

    def planned(self, program: Program, plan: Plan, launch: Launch) -> None:
        """It is decided what will be done."""

    def event(self, event: Event) -> None:
        """A worker told something."""

    def has_enough(self) -> bool:
        """Whether what was seen will do: the run is then asked to end."""
        return False


def execute(
    program: Program,
    plan: Plan,
    options: Options,
    *,
    engine: Engine | None = None,
    cluster: Cluster | None = None,
    cwd: str = "",
    watcher: Watcher | None = None,
) -> RunResult:
    """Run exactly this program by exactly this plan: no conversion, no probe.

    Args:
        program: What the workers run.
        plan: How many, where, by which strategy.
        options: How.
        engine: Where; the local one if not given.
        cluster: The hosts; asked of the engine if not given.
        cwd: The folder in which the script starts; the current one if not given.
        watcher: Is told what happens.
    """
    engine = engine or engines.build("local")
    launch = engine.prepare(program, plan, cluster or engine.cluster(), options)
    with engine.start(dataclasses.replace(launch, cwd=cwd)) as workers:
        workers.assign(Assignment(program=program, plan=plan, options=options))
        return watch(workers, watcher or Watcher(), None)


def watch(workers: Run, watcher: Watcher, probe: Probe | None) -> RunResult:
    """Look on until the run has ended; stop it on request, or if the probe says so."""
    finding: Finding | None = None
    with Interrupts() as interrupts, ExitStack() as stack:
        if probe is not None:
            stack.callback(probe.end)
        while workers.result is None:
            for event in workers.poll(POLL_S):
                watcher.event(event)
                if probe is not None and _is_under_way(event):
                    probe.begin()
            if interrupts.num_seen > 0 or watcher.has_enough():
                workers.stop(now=interrupts.num_seen > 1)
            if probe is not None and finding is None and (finding := probe.poll()) is not None:
                if finding.verdict == "unequal":
                    workers.stop()
                else:
                    watcher.event(Note(rank=0, text=finding.text))
        if probe is not None and finding is None and probe.is_open:
            finding = Finding(
                verdict="unknown", text="the run was over before its first step was checked"
            )
    return workers.result if finding is None else _with_finding(workers.result, finding)


def _is_under_way(event: Event) -> bool:
    return isinstance(event, Step) and event.record.step >= AFTER_STEP


def _with_finding(result: RunResult, finding: Finding) -> RunResult:
    if finding.verdict != "unequal":
        return dataclasses.replace(result, notes=(*result.notes, finding.text))
    failure = Failure(rank=0, host="", error="UnequalError", message=finding.text, step=1)
    return dataclasses.replace(result, status="failed", failure=failure)
