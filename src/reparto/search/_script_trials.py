"""Trials: all that the runs of a script have in common, decided once before the first of them.

request ──► convert ──► (auto: measure, predict, choose) ──► Program, Plan ──► Trials
Trials + settings of a candidate ──► a run in FOLDER/trials/N
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reparto import api, engines
from reparto.engines import Launch
from reparto.errors import RefusedError, UsageError
from reparto.search._ground import at, dimension_of
from reparto.search._script_history import Lengths, objective_pattern
from reparto.search._script_options import Words, check_name, words_of
from reparto.spec import (
    Candidate,
    Cluster,
    Job,
    Options,
    Plan,
    Program,
    SearchRequest,
    Settings,
    Wish,
)

if TYPE_CHECKING:
    from reparto.convert import Result

#: Where the runs lie, below the search's folder.
FOLDER = "trials"


class Slots:
    """Which of the runs at the same time one is: by that number it gets its GPUs."""

    def __init__(self) -> None:
        self._lock, self._taken = threading.Lock(), set[int]()

    def take(self) -> int:
        """The smallest one that is free."""
        with self._lock:
            slot = next(number for number in itertools.count() if number not in self._taken)
            self._taken.add(slot)
            return slot

    def give_back(self, slot: int) -> None:
        """It is free again."""
        with self._lock:
            self._taken.discard(slot)


@dataclass(frozen=True)
class Trials:
    """What the runs of a search have in common.

    Attributes:
        job: As `api.run` takes it, less what differs.
        program: The script, converted, with its own arguments only.
        plan: How many workers, where, by which strategy.
        cluster: The hosts.
        options: How workers run.
        pattern: By which the objective is found; None for the training loss.
        metric: What it is called.
        folder: Of the runs.
        cwd: Where the script starts.
        at_once: So many runs at the same time keep all cores, or all GPUs, busy.
        notes: For people.
        lengths: Of whole runs.
        slots: Of runs at the same time.
    """

    job: Job
    program: Program
    plan: Plan
    cluster: Cluster
    options: Options
    pattern: re.Pattern[str] | None
    metric: str
    folder: Path
    cwd: str
    at_once: int
    notes: tuple[str, ...] = ()
    lengths: Lengths = field(default_factory=Lengths)
    slots: Slots = field(default_factory=Slots)

    def words(self, settings: Settings) -> Words:
        """A candidate's settings, as the script reads them."""
        return words_of(settings, self.job.args)

    def folder_of(self, candidate: Candidate) -> Path:
        """Where its run lies."""
        return self.folder / str(candidate.number)

    def command_of(self, candidate: Candidate) -> str:
        """What a person types to train with a candidate's settings."""
        job, plan = self.job, self.plan
        before = ["--workers", str(plan.num_workers)]
        if plan.threads_per_worker:
            before += ["--threads", str(plan.threads_per_worker)]
        if plan.num_workers > 1 and plan.strategy.kind != "all-reduce":
            before += ["--strategy", plan.strategy.kind]
            for name, value in plan.strategy.settings.items():
                before += ["--set", f"{name}={value}"]
            before += [] if plan.exact else ["--relaxed"]
        if job.engine != "local":
            before += ["--engine", job.engine, *(["--address", job.address] * bool(job.address))]
        if self.options.seed:
            before += ["--seed", str(self.options.seed)]
        return self.words(candidate.settings).command(_shown(job.script, self.cwd), before)


def prepare_trials(request: SearchRequest, folder: str | Path) -> Trials:
    """Decide what the runs of a script have in common.

    With ``script_workers=0``, or the strategy ``auto``, the script is measured with settings from
    the middle of their ranges, and the planner chooses workers and strategy; else nothing is run.

    Args:
        request: With a script, and ``spaces["script"]``.
        folder: Of the search.

    Raises:
        UsageError: If the request contradicts itself, or the script is missing.
        RefusedError: If the script cannot be shared out over several workers.
        EngineError: If the script fails while it is measured.
    """
    pattern = objective_pattern(request.objective)
    space = request.spaces.get("script", {})
    for name in space:
        check_name("the script's space", name)
    if request.engine not in ("local", "ray"):
        raise UsageError(
            f"runs of a script are not started on {request.engine}",
            remedy="leave --engine out, or take --engine ray",
        )
    if request.engine == "ray" and (request.max_workers or 1) > 1:
        raise UsageError(
            "on Ray, runs of a script go on one after the other",
            remedy="leave --workers out; --script-workers 8 gives each run eight",
        )
    is_auto = request.script_workers == 0 or request.strategy == "auto"
    job = Job(
        script=request.script,
        args=request.script_args,
        workers=None if is_auto else request.script_workers,
        engine=request.engine,
        address=request.address,
        strategy="auto" if is_auto else request.strategy,
        threads=request.threads if request.threads > 1 else None,
        # Who names a strategy has agreed to what it does.
        relaxed=request.strategy not in ("auto", "all-reduce", "single"),
        accelerate="auto",
        probe=False,
        options=Options(seed=request.seed, losses=pattern is None),
    )
    with closing(engines.build(job.engine, address=job.address)) as engine:
        cluster = engine.cluster()
    notes: list[str] = []
    if is_auto:
        job = _chosen(job, space, cluster, notes)
    program, plan = _decided(job, cluster)
    at_once = 1
    if job.engine == "local":
        at_once = max(1, _capacity(cluster, plan) // plan.num_workers)
    if job.threads is None and job.engine == "local":  # runs beside each other share the cores
        running = (request.max_workers or at_once) * plan.num_workers
        threads = max(1, len(os.sched_getaffinity(0)) // running)
        plan = dataclasses.replace(plan, threads_per_worker=threads)
    return Trials(
        job=job,
        program=program,
        plan=plan,
        cluster=cluster,
        options=job.options,
        pattern=pattern,
        metric=request.metric or ("objective" if pattern is not None else "loss"),
        folder=Path(folder).absolute() / FOLDER,
        cwd=os.getcwd(),
        at_once=at_once,
        notes=tuple(notes),
    )


class _Decided(api.Watcher):
    """Keeps what is decided, and the reasons where nothing can be."""

    program: Program
    plan: Plan
    reasons: tuple[str, ...] = ()

    def found(self, result: Result) -> None:
        """The script was analysed."""
        self.reasons = tuple(
            f"{one.place}: {one.reason}"
            for one in result.program.diagnostics
            if one.severity == "error"
        )

    def planned(self, program: Program, plan: Plan, launch: Launch) -> None:
        """It is decided."""
        self.program, self.plan = program, plan


def _decided(job: Job, cluster: Cluster) -> tuple[Program, Plan]:
    decided = _Decided()
    try:
        api.dry_run(job, decided, cluster=cluster)
    except RefusedError as error:
        why = "".join(f"\n  {reason}" for reason in decided.reasons)
        raise RefusedError(
            f"{error.message}{why}",
            remedy=f"`reparto convert {job.script}` says what to do; or --script-workers 1",
        ) from error
    return decided.program, decided.plan


def _chosen(job: Job, space: Mapping[str, object], cluster: Cluster, notes: list[str]) -> Job:
    """The job with the workers and the strategy that the planner chooses."""
    middle = {
        name: at(dimension_of(f"script.{name}", given), 0.5) for name, given in space.items()
    }
    words = words_of(middle, job.args)
    if words.env:
        raise UsageError(
            f"with ${next(iter(words.env))} in the environment the script cannot be measured",
            remedy="say how many workers a run has: --script-workers 2",
        )
    measured = dataclasses.replace(
        job, args=words.args, strategy="all-reduce", accelerate="off", relaxed=False
    )
    found = api.forecast(measured, Wish(), cluster=cluster)
    best = found.best
    notes.append(f"each run: {found.why}")
    return dataclasses.replace(
        job,
        workers=best.num_workers,
        strategy=best.strategy.kind,
        settings=best.strategy.settings,
    )


def _capacity(cluster: Cluster, plan: Plan) -> int:
    """Workers for which there is a core, or a GPU, on this machine."""
    if plan.device == "cuda":
        return cluster.hosts[0].num_gpus
    return min(cluster.hosts[0].num_cores, len(os.sched_getaffinity(0)))


def _shown(script: str, cwd: str) -> str:
    path = os.path.relpath(script, cwd)
    return script if path.startswith("..") else path
