"""The whole path in a few functions. Read this first.

    script ── convert ──► Program ── plan_run ──► Plan ── Engine.prepare ──► Launch
                                                                │ Engine.start
    RunResult ◄── watch ◄── events ◄── Run ◄────────────────────┘

`run` goes all the way. Because importing torch takes longer than converting a script, it starts
the workers first and hands them their assignment when it is known. This side never imports torch.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from reparto import _runs, engines
from reparto._probe import AFTER_STEP, Finding, Probe
from reparto.engines import Engine, Interrupts, Launch, Run
from reparto.errors import RefusedError, UsageError
from reparto.measure import files_written_since
from reparto.plan import plan_run
from reparto.spec import (
    Assignment,
    Cluster,
    Event,
    Failure,
    Job,
    Note,
    Options,
    Plan,
    Program,
    RunResult,
    SourceFile,
    Step,
    StrategyConfig,
)

if TYPE_CHECKING:
    from reparto.convert import Result
    from reparto.strategies import Config

__all__ = ["Watcher", "convert", "dry_run", "execute", "is_exact", "planned", "run"]

POLL_S = 0.25


class Watcher:
    """Is told what happens, in this order. Does nothing; override what you want to see."""

    def found(self, result: Result) -> None:
        """The script was analysed."""

    def planned(self, program: Program, plan: Plan, launch: Launch) -> None:
        """It is decided what will be done."""

    def event(self, event: Event) -> None:
        """A worker told something."""

    def has_enough(self) -> bool:
        """Whether what was seen will do: the run is then asked to end."""
        return False


def convert(script: str | Path, args: Sequence[str] = ()) -> Result:
    """Turn a script into one that workers share out; see `reparto.convert`.

    Raises:
        UsageError: If there is no such file.
    """
    from reparto.convert import convert as convert_script  # is slow to import

    return convert_script(Path(script), tuple(args))


def dry_run(job: Job, watcher: Watcher | None = None, *, cluster: Cluster | None = None) -> Launch:
    """Decide all that `run` would do, and start nothing.

    Args:
        job: What to train, and how.
        watcher: Is told what is found and planned.
        cluster: The hosts; asked of the engine if not given.

    Raises:
        UsageError: If the job contradicts itself, or the script is missing.
        RefusedError: If the script cannot be shared out exactly.
    """
    watcher = watcher or Watcher()
    _read(job)
    with closing(_engine(job)) as engine:
        _, launch = _decide(job, engine, cluster or engine.cluster(), watcher)
    return launch


def run(job: Job, watcher: Watcher | None = None, *, cluster: Cluster | None = None) -> RunResult:
    """Train a script, shared out over workers.

    Args:
        job: What to train, and how.
        watcher: Is told what happens.
        cluster: The hosts, such as those of a lab; asked of the engine if not given.

    Returns:
        How it ended. A failing script, or a request to stop, is not an exception.

    Raises:
        UsageError: If the job contradicts itself, or the script is missing.
        RefusedError: If the script cannot be shared out exactly.
        EngineError: If the workers cannot be started.

    Example:
        >>> run(Job(script="train.py", args=("--epochs", "3"), workers=4))  # doctest: +SKIP
    """
    watcher = watcher or Watcher()
    since_s = time.time()
    script = _read(job)
    with ExitStack() as stack:
        stack.enter_context(_runs.listed(job))
        engine = stack.enter_context(closing(_engine(job)))
        cluster = cluster or engine.cluster()
        early = engine.prepare(None, plan_run(job, cluster, script), cluster, job.options)
        workers = stack.enter_context(engine.start(early))
        assignment, launch = _decide(job, engine, cluster, watcher)
        if launch.workers != early.workers:  # the analysis found that others are needed
            workers.stop(now=True)
            workers.wait()
            workers = stack.enter_context(engine.start(launch))
        workers.assign(assignment)
        result = _watch(workers, watcher, _probe(job, assignment) if workers.has_main else None)
    folders = (Path.cwd(), Path(job.script).absolute().parent)
    return dataclasses.replace(
        result,
        total_s=time.time() - since_s,
        outputs=files_written_since(since_s, folders),
    )


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
        return _watch(workers, watcher or Watcher(), None)


def _watch(workers: Run, watcher: Watcher, probe: Probe | None) -> RunResult:
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


def _engine(job: Job) -> Engine:
    return engines.build(job.engine, address=job.address, ship=job.ship)


def _read(job: Job) -> Program:
    """The script as it stands, before anything is known about it."""
    path = Path(job.script).absolute()
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise UsageError(
            f"{job.script}: {error.strerror}", remedy="give the path of a Python script"
        ) from error
    file = SourceFile(path=str(path), module="__main__", original=text, converted=text)
    return Program(script=str(path), args=job.args, files=(file,))


def _decide(
    job: Job, engine: Engine, cluster: Cluster, watcher: Watcher
) -> tuple[Assignment, Launch]:
    """Find out what the workers run, how many there are, and how they are started."""
    from reparto.convert import Refused

    exact = is_exact(job)
    result = convert(job.script, job.args)
    watcher.found(result)
    agreed = job.strategy == "single" or job.workers == 1
    if isinstance(result, Refused) and not agreed:
        raise RefusedError(
            f"{job.script} cannot be shared out exactly",
            remedy="see above for where, why and what to do",
        )
    program = result.program
    plan = planned(job, cluster, program, exact=exact)
    if plan.num_workers == 1:  # nothing is shared out: the user's own files, bit for bit
        files = tuple(dataclasses.replace(f, converted=f.original) for f in program.files)
        program = dataclasses.replace(program, files=files)
    launch = engine.prepare(program, plan, cluster, job.options)
    watcher.planned(program, plan, launch)
    return Assignment(program=program, plan=plan, options=job.options), launch


def planned(job: Job, cluster: Cluster, program: Program, *, exact: bool) -> Plan:
    """How a job runs there.

    Args:
        job: What is asked for.
        cluster: What there is.
        program: What the workers run.
        exact: What `is_exact` says.

    Raises:
        UsageError: If a setting does not suit the number of workers.
    """
    plan = plan_run(job, cluster, program)
    if job.settings and plan.num_workers > 1:
        _config_of(job).check(plan.num_workers)
    return dataclasses.replace(plan, exact=exact)


def is_exact(job: Job) -> bool:
    """Whether a job's strategy keeps the mathematics; it may change it only by consent.

    Raises:
        UsageError: If the strategy or a setting is unknown, or it changes the mathematics and
            the job does not agree to that.
    """
    if job.strategy in ("auto", "single", "all-reduce") and not job.settings:
        return True
    config = _config_of(job)
    if not config.exact and not job.relaxed:
        why = f": {config.changes}" if config.changes else ""
        raise UsageError(
            f"{config.kind} changes the mathematics of the training{why}",
            remedy="agree with --relaxed; reparto strategies tells which ones are exact",
        )
    return config.exact


def _config_of(job: Job) -> Config:
    from reparto.strategies import from_spec  # brings torch, for the few who need it

    kind = "all-reduce" if job.strategy == "auto" else job.strategy
    return from_spec(StrategyConfig(kind=kind, settings=job.settings))


def _probe(job: Job, assignment: Assignment) -> Probe | None:
    plan, program = assignment.plan, assignment.program
    provable = plan.num_workers > 1 and plan.exact and program.launch == "reparto"
    return Probe(job, plan.num_workers) if job.probe and provable else None
