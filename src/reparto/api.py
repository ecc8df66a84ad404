"""The whole path in a few functions. Read this first.

    script ── convert ──► Program ── plan_run ──► Plan ── Engine.prepare ──► Launch
             forecast: measured, predicted, chosen ──┘          │
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
from reparto._execution import Watcher, execute, watch
from reparto._probe import Probe
from reparto.engines import Engine, Launch
from reparto.errors import RefusedError, UsageError
from reparto.measure import files_written_since
from reparto.plan import plan_run
from reparto.spec import (
    Assignment,
    Cluster,
    Forecast,
    Job,
    Plan,
    Prediction,
    Program,
    RunResult,
    SourceFile,
    StrategyConfig,
    Survey,
    Wish,
)

if TYPE_CHECKING:
    from reparto.convert import Result
    from reparto.strategies import Config

__all__ = [
    "Watcher",
    "convert",
    "dry_run",
    "execute",
    "forecast",
    "forecast_from",
    "is_exact",
    "planned",
    "run",
    "survey",
]


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
    if job.strategy == "auto":
        raise UsageError(
            "what auto takes is found by running the script for some steps",
            remedy="`reparto plan` does that, and stops; or name a strategy",
        )
    with closing(_engine(job)) as engine:
        _, launch = _decide(job, engine, cluster or engine.cluster(), watcher)
    return launch


def forecast(
    job: Job,
    wish: Wish,
    counts: Sequence[int] = (),
    watcher: Watcher | None = None,
    *,
    cluster: Cluster | None = None,
) -> Forecast:
    """Measure a script and the hosts, predict every strategy, and choose.

    Args:
        job: What to train, and where.
        wish: What the plan is to be like.
        counts: Numbers of workers to weigh; if none are given, half and all of the cores or GPUs.
        watcher: Is told what is found and measured.
        cluster: The hosts; asked of the engine if not given.

    Raises:
        UsageError: If the job contradicts itself, or the script is missing.
        RefusedError: If the script cannot be shared out.
        EngineError: If the script fails while it is measured.
    """
    watcher = watcher or Watcher()
    _read(job)
    with closing(_engine(job)) as engine:
        return _foretold(job, wish, counts, watcher, engine, cluster or engine.cluster())


def forecast_from(
    survey: Survey, wish: Wish, counts: Sequence[int] = (), what_if: str = ""
) -> Forecast:
    """Predict and choose from what was measured before; nothing is started.

    Args:
        survey: What was measured.
        wish: What the plan is to be like.
        counts: Numbers of workers to weigh; if none are given, those that were measured, or all
            hosts that are imagined.
        what_if: Changes to the hosts, such as ``rate=1gbit,hosts=8``; empty for none.

    Raises:
        UsageError: If the changes cannot be understood, or nothing is known of so many workers.
    """
    from reparto._planning import predicted
    from reparto.plan import choose, imagine

    if what_if:
        survey = imagine(survey, what_if)
    measured = {one.num_workers for one in survey.workers} - {1}
    chosen = tuple(counts) or tuple(sorted(measured))
    most = max(measured, default=1)
    if max(chosen, default=1) > most:
        raise UsageError(
            f"{max(chosen)} workers: nothing is known of more than {most}",
            remedy='imagine as many hosts, "hosts=8,rate=1gbit", or measure as many workers',
        )
    return choose(survey, predicted(survey, chosen), wish, what_if)


def survey(
    job: Job,
    counts: Sequence[int],
    watcher: Watcher | None = None,
    *,
    cluster: Cluster | None = None,
) -> Survey:
    """Measure a script and the hosts; predict nothing.

    Args:
        job: What to train, and where.
        counts: Numbers of workers to measure, beside one.
        watcher: Is told what is found and measured.
        cluster: The hosts; asked of the engine if not given.

    Raises:
        UsageError: If the job contradicts itself, or the script is missing.
        RefusedError: If the script cannot be shared out.
        EngineError: If the script fails while it is measured.
    """
    from reparto._planning import Site
    from reparto._planning import survey as measured
    from reparto.plan._candidates import candidates

    watcher = watcher or Watcher()
    _read(job)
    with closing(_engine(job)) as engine:
        program = _plannable(job, watcher)
        site = Site(job, program, engine, cluster or engine.cluster(), watcher.measuring)
        return measured(site, counts, candidates(relaxed=True))


def _foretold(
    job: Job,
    wish: Wish,
    counts: Sequence[int],
    watcher: Watcher,
    engine: Engine,
    cluster: Cluster,
) -> Forecast:
    from reparto._planning import Site
    from reparto._planning import forecast as measured

    program = _plannable(job, watcher)
    everything = plan_run(dataclasses.replace(job, strategy="all-reduce"), cluster, program)
    most = everything.num_workers
    chosen = tuple(counts) or ((most,) if job.workers else tuple(sorted({-(-most // 2), most})))
    found = measured(Site(job, program, engine, cluster, watcher.measuring), chosen, wish)
    watcher.forecast(found)
    return found


def _plannable(job: Job, watcher: Watcher) -> Program:
    """The script, converted.

    Raises:
        RefusedError: If it cannot be shared out, or does so itself.
    """
    if job.engine == "peers":
        raise UsageError(
            "peers would each measure and choose for themselves",
            remedy="name a strategy; `reparto plan` on one of them helps to choose",
        )
    program = _sharable(job, watcher)
    if program.launch != "reparto":
        raise RefusedError(
            f"{job.script} is left unchanged, so there is nothing to choose from",
            remedy="plan a script that is written for one process",
        )
    return program


def _accelerated(job: Job) -> Program:
    from reparto.convert import accelerate

    return accelerate(Path(job.script), job.args)


def _sharable(job: Job, watcher: Watcher, *, is_alone: bool = False) -> Program:
    """The script, converted; one worker alone may also run what cannot be shared out.

    Raises:
        RefusedError: If it cannot be shared out exactly.
    """
    from reparto.convert import Refused

    result = convert(job.script, job.args)
    watcher.found(result)
    agreed = job.strategy == "single" or job.workers == 1 or is_alone
    if isinstance(result, Refused) and not agreed:
        raise RefusedError(
            f"{job.script} cannot be shared out exactly",
            remedy="see above for where, why and what to do",
        )
    return result.program


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
        foretold: Prediction | None = None
        if job.strategy == "auto":
            wish = Wish(relaxed=job.relaxed)
            found = _foretold(job, wish, (), watcher, engine, cluster)
            from reparto._overseer import Overseer

            job, foretold = _settled(job, found.best), found.best
            watcher = Overseer(watcher, found)
        early = engine.prepare(None, plan_run(job, cluster, script), cluster, job.options)
        workers = stack.enter_context(engine.start(early))
        assignment, launch = _decide(job, engine, cluster, watcher)
        if launch.workers != early.workers:  # the analysis found that others are needed
            workers.stop(now=True)
            workers.wait()
            workers = stack.enter_context(engine.start(launch))
        workers.assign(assignment)
        result = watch(workers, watcher, _probe(job, assignment) if workers.has_main else None)
    folders = (Path.cwd(), Path(job.script).absolute().parent)
    return dataclasses.replace(
        result,
        predicted_step_s=foretold.step_s if foretold is not None else None,
        total_s=time.time() - since_s,
        outputs=files_written_since(since_s, folders),
    )


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
    exact = is_exact(job)
    is_alone = bool(plan_run(job, cluster, _read(job)).accelerate)
    program = _sharable(job, watcher, is_alone=is_alone)
    plan = planned(job, cluster, program, exact=exact)
    if plan.accelerate:
        program = dataclasses.replace(program, files=_accelerated(job).files)
    elif plan.num_workers == 1:  # nothing is shared out: the user's own files, bit for bit
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
    if job.strategy in ("single", "all-reduce") and not job.settings:
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

    return from_spec(StrategyConfig(kind=job.strategy, settings=job.settings))


def _settled(job: Job, best: Prediction) -> Job:
    """A job that was left to the planner, as it will be run."""
    return dataclasses.replace(
        job,
        strategy=best.strategy.kind,
        settings=best.strategy.settings,
        workers=best.num_workers,
    )


def _probe(job: Job, assignment: Assignment) -> Probe | None:
    plan, program = assignment.plan, assignment.program
    provable = plan.num_workers > 1 and plan.exact and program.launch == "reparto"
    return Probe(job, plan.num_workers) if job.probe and provable else None
