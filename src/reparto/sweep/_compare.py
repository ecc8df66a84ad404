"""Runs strategies on one script, one after the other, and measures them. Draws nothing.

Request ── is each strategy known, agreed to? ── convert ── plan each ──┐
Comparison ◄── ComparedRun ◄── Curve ◄── steps of every worker ◄── execute, one by one
"""

from __future__ import annotations

import dataclasses
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from reparto import api, engines
from reparto._version import __version__
from reparto.convert import Refused, Result
from reparto.engines import Engine
from reparto.errors import RefusedError, UsageError
from reparto.spec import (
    Cluster,
    ComparedRun,
    Comparison,
    Event,
    Job,
    Options,
    Plan,
    Program,
    Step,
)
from reparto.sweep._curve import Curve
from reparto.sweep._entries import Entry


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be compared.

    Attributes:
        job: What all runs have in common; its strategy and settings are those of each entry.
        entries: The strategies.
        target: A run ends once the trend of its loss is as low.
    """

    job: Job
    entries: tuple[Entry, ...]
    target: float | None = None


class Watcher(api.Watcher):
    """Is told what happens. Does nothing; override what you want to see."""

    def begins(self, entry: Entry, plan: Plan) -> None:
        """A strategy is about to run; events that follow are its own."""

    def ended(self, run: ComparedRun) -> None:
        """It has run."""


def compare(request: Request, watcher: Watcher | None = None) -> Comparison:
    """Run each strategy, one after the other so that their times can be compared.

    All runs have the same script, seed and order of data. What the script writes is discarded.

    Args:
        request: What is to be compared.
        watcher: Is told what happens.

    Returns:
        What was measured. A run that failed is part of it; after one that the user stopped
        none follows.

    Raises:
        UsageError: If a strategy or a setting is unknown or not agreed to, or the script is
            missing; before anything is started.
        RefusedError: If the script cannot be shared out.
        EngineError: If workers cannot be started.

    Example:
        >>> entries = parse_entries("single,all-reduce")
        >>> compare(Request(job=Job(script="train.py"), entries=entries))  # doctest: +SKIP
    """
    watcher = watcher or Watcher()
    if not request.entries:
        raise UsageError("there is no strategy to compare")
    jobs = [job_for(request.job, entry) for entry in request.entries]
    exact = [api.is_exact(job) for job in jobs]
    program = program_of(request.job, watcher)
    runs: list[ComparedRun] = []
    horizon: float | None = None
    with closing(_engine(request.job)) as engine:
        cluster = engine.cluster()
        plans = [
            api.planned(job, cluster, program, exact=is_exact)
            for job, is_exact in zip(jobs, exact, strict=True)
        ]
        for entry, plan in zip(request.entries, plans, strict=True):
            watcher.begins(entry, plan)
            curve = Curve(plan.num_workers, horizon=horizon, target=request.target)
            site = Site(engine, cluster, program, plan)
            runs.append(run_entry(entry, site, options_of(request.job, plan), curve, watcher))
            horizon = horizon or curve.horizon
            watcher.ended(runs[-1])
            if runs[-1].status == "stopped":
                break
    return Comparison(
        script=request.job.script,
        args=request.job.args,
        seed=request.job.options.seed,
        target=request.target,
        samples=request.job.options.samples,
        environment=environment_of(cluster),
        runs=tuple(runs),
    )


@dataclass(frozen=True)
class Site:
    """What is run, and where."""

    engine: Engine
    cluster: Cluster
    program: Program
    plan: Plan


class _Observer(api.Watcher):
    """Draws the curve of one run, ends it at the target, and passes on what happens."""

    def __init__(self, curve: Curve, watcher: Watcher) -> None:
        self._curve, self._watcher = curve, watcher

    def event(self, event: Event) -> None:
        if isinstance(event, Step):
            self._curve.add(event.rank, event.record)
        self._watcher.event(event)

    def has_enough(self) -> bool:
        return self._curve.reached is not None or self._watcher.has_enough()


def run_entry(
    entry: Entry, site: Site, options: Options, curve: Curve, watcher: Watcher
) -> ComparedRun:
    result = api.execute(
        site.program,
        site.plan,
        options,
        engine=site.engine,
        cluster=site.cluster,
        watcher=_Observer(curve, watcher),
    )
    return ComparedRun(
        label=entry.label,
        strategy=entry.strategy,
        exact=site.plan.exact,
        result=result,
        curve=curve.points(),
        reached=curve.reached,
    )


def job_for(job: Job, entry: Entry) -> Job:
    strategy = entry.strategy
    return dataclasses.replace(job, strategy=strategy.kind, settings=strategy.settings)


def program_of(job: Job, watcher: Watcher) -> Program:
    """The script, converted; what distributes itself has no strategy of ours."""
    result: Result = api.convert(job.script, job.args)
    watcher.found(result)
    if isinstance(result, Refused):
        raise RefusedError(
            f"{job.script} cannot be shared out exactly",
            remedy="see above for where, why and what to do",
        )
    if result.program.launch != "reparto":
        raise RefusedError(
            f"{job.script} is left unchanged, so there are no strategies to choose from",
            remedy="compare a script that is written for one process",
        )
    return result.program


def _engine(job: Job) -> Engine:
    return engines.build(job.engine, address=job.address, ship=job.ship)


def options_of(job: Job, plan: Plan) -> Options:
    # One worker draws as plain Python does unless it is told to draw what several would.
    return dataclasses.replace(
        job.options, losses=True, discard_writes=True, shared_draws=plan.num_workers == 1
    )


def environment_of(cluster: Cluster) -> dict[str, str]:
    hosts = ", ".join(host.name for host in cluster.hosts)
    cores = sum(host.num_cores for host in cluster.hosts)
    gpus = sum(host.num_gpus for host in cluster.hosts)
    found = {"hosts": hosts, "cores": str(cores), "GPUs": str(gpus) if gpus else ""}
    found |= {"torch": _version("torch"), "reparto": __version__}
    return {name: told for name, told in found.items() if told}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
