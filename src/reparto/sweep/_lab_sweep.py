"""Runs one script on labs of several sizes and rates. What is measured is kept as it comes.

one node ──► nodes × rates × strategies, one lab after the other ──► LabSweep
             └ each cell is a file; a sweep that was broken off goes on where it was
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reparto import api, engines
from reparto import lab as labs
from reparto._version import __version__
from reparto.errors import UsageError
from reparto.spec import (
    Event,
    Job,
    Lab,
    LabCell,
    LabSweep,
    Plan,
    Program,
    StrategyConfig,
    from_json,
    to_json,
)
from reparto.sweep._compare import (
    Site,
    Watcher,
    environment_of,
    job_for,
    options_of,
    program_of,
    run_entry,
)
from reparto.sweep._curve import Curve
from reparto.sweep._entries import Entry
from reparto.sweep._recorder import USAGE_EVERY_S, Recorder

CELLS = "cells"
_SINGLE = Entry(label="single", strategy=StrategyConfig(kind="single"))


@dataclass(frozen=True, kw_only=True)
class LabRequest:
    """What is to be swept.

    Attributes:
        job: What all runs have in common.
        entries: The strategies, for labs of more than one node.
        nodes: Numbers of hosts; one node is always measured.
        rates: Of each host's line, each way; None is no limit.
        of_host: What else holds for every host, as a lab's file has it.
        target: A run ends once the trend of its loss is as low.
        emulate: Leave the kernel out of it, also where it could.
        at_most_s: A run that takes longer is ended, and told as late.
    """

    job: Job
    entries: tuple[Entry, ...]
    nodes: tuple[int, ...]
    rates: tuple[float | None, ...]
    of_host: Mapping[str, Any]
    target: float | None = None
    emulate: bool = False
    at_most_s: float | None = None

    def places(self) -> list[tuple[int, float | None, Entry]]:
        """Every cell, one node first: it is what all others are held against."""
        several = sorted({count for count in self.nodes if count > 1})
        rates = list(dict.fromkeys(self.rates))
        return [
            (1, None, _SINGLE),
            *(
                (count, rate, entry)
                for rate in rates
                for count in several
                for entry in self.entries
            ),
        ]

    def lab(self, nodes: int, rate: float | None) -> Lab:
        """The lab of a cell."""
        given = {**self.of_host, "rate": labs.rate_text(rate)}
        lab = labs.read_lab(None, labs.Flags(nodes=nodes, of_host=given))
        return dataclasses.replace(lab, name=f"sweep-{os.getpid()}")


class SweepWatcher(Watcher):
    """Is told what happens. Does nothing; override what you want to see."""

    def kept(self, cell: LabCell) -> None:
        """It was measured by an earlier sweep."""

    def left(self, num_cells: int, seconds: float) -> None:
        """So many cells are left, and about so much time."""


def sweep_lab(request: LabRequest, folder: Path, watcher: SweepWatcher | None = None) -> LabSweep:
    """Run every cell that is not measured yet.

    Args:
        request: What is to be swept.
        folder: Where cells are kept.
        watcher: Is told what happens.

    Returns:
        What was measured, by this sweep and by earlier ones into the folder. After a run that
        the user stopped none follows.

    Raises:
        UsageError: If a strategy or a setting is unknown or not agreed to, or the script is
            missing; before anything is started.
        RefusedError: If the script cannot be shared out.
        LabError: If a lab cannot be built.
    """
    watcher = watcher or SweepWatcher()
    places = request.places()
    if len(places) == 1:
        raise UsageError(
            "there is nothing to compare with one node",
            remedy="give --nodes 2 or more, at least one rate and one strategy",
        )
    if request.at_most_s is not None and request.at_most_s <= 0:
        raise UsageError("a run may take no time at all", remedy="give --at-most 10m, or more")
    jobs = [_job(request, count, entry) for count, _, entry in places]
    exact = [api.is_exact(job) for job in jobs]
    program = program_of(request.job, watcher)
    layouts = [
        labs.lay_out(request.lab(count, rate), labs.this_machine(), emulate=request.emulate)
        for count, rate, _ in places
    ]
    plans = [
        api.planned(job, layout.cluster, program, exact=is_exact)
        for job, layout, is_exact in zip(jobs, layouts, exact, strict=True)
    ]
    (folder / CELLS).mkdir(exist_ok=True)
    cells: list[LabCell] = []
    times: list[float] = []
    for number, ((count, rate, entry), job, plan) in enumerate(
        zip(places, jobs, plans, strict=True)
    ):
        path = folder / CELLS / f"{_slug(count, rate, entry)}.json"
        key = _key(request, program, count, rate, entry)
        cell = _earlier(path, key)
        if cell is not None:
            watcher.kept(cell)
        else:
            began = time.monotonic()
            cell = _measured(request, program, job, plan, (count, rate, entry), watcher)
            times.append(time.monotonic() - began)
            if cell.run.status != "stopped" or cell.is_late:
                path.write_text(json.dumps({"key": key, "cell": json.loads(to_json(cell))}))
        cells.append(cell)
        if cell.run.status == "stopped" and not cell.is_late:
            break
        rest = len(places) - number - 1
        if times and rest:
            watcher.left(rest, rest * sum(times) / len(times))
    widest = max(layouts, key=lambda layout: len(layout.lab.hosts))
    return LabSweep(
        script=request.job.script,
        args=request.job.args,
        seed=request.job.options.seed,
        target=request.target,
        samples=request.job.options.samples,
        kind=widest.kind,
        limits=_limits(request),
        notes=widest.notes,
        environment=environment_of(engines.build("local").cluster()),
        cells=tuple(cells),
    )


def _measured(
    request: LabRequest,
    program: Program,
    job: Job,
    plan: Plan,
    place: tuple[int, float | None, Entry],
    watcher: SweepWatcher,
) -> LabCell:
    count, rate, entry = place
    told = Entry(label=cell_name(count, rate, entry.label), strategy=entry.strategy)
    watcher.begins(told, plan)
    curve = Curve(plan.num_workers, target=request.target)
    recorder = Recorder(watcher)
    clock = _Clock(recorder, request.at_most_s)
    options = dataclasses.replace(options_of(job, plan), usage_every_s=USAGE_EVERY_S)
    with (
        labs.stand(request.lab(count, rate), emulate=request.emulate) as layout,
        closing(engines.build("local")) as engine,
    ):
        site = Site(engine, layout.cluster, program, plan)
        run = run_entry(entry, site, options, curve, clock)
    watcher.ended(dataclasses.replace(run, label=told.label))
    recording = recorder.recording()
    return LabCell(
        nodes=count,
        rate_bits_per_s=rate,
        label=entry.label,
        run=run,
        usage=recording if recording.hosts else None,
        is_late=clock.is_late and run.reached is None,
    )


class _Clock(Watcher):
    """Passes on what happens, and ends the run when its time is over."""

    def __init__(self, watcher: api.Watcher, at_most_s: float | None) -> None:
        self._watcher, self._at_most_s = watcher, at_most_s
        self._began = time.monotonic()
        self.is_late = False

    def event(self, event: Event) -> None:
        self._watcher.event(event)

    def has_enough(self) -> bool:
        if self._at_most_s is not None and time.monotonic() - self._began > self._at_most_s:
            self.is_late = True
        return self.is_late or self._watcher.has_enough()


def cell_name(nodes: int, rate: float | None, label: str) -> str:
    """A cell, as people are told of it."""
    if nodes == 1:
        return "1 node"
    return f"{nodes} nodes · {labs.rate_text(rate)} · {label}"


def _job(request: LabRequest, nodes: int, entry: Entry) -> Job:
    cpu = request.of_host.get("cpu")
    threads = request.job.threads or max(1, int(cpu or 1))
    return dataclasses.replace(job_for(request.job, entry), workers=nodes, threads=threads)


def _key(
    request: LabRequest, program: Program, count: int, rate: float | None, entry: Entry
) -> str:
    """What a cell depends on; one of another key is measured anew."""
    told = {
        "files": [file.original for file in program.files],
        "args": program.args,
        "seed": request.job.options.seed,
        "samples": request.job.options.samples,
        "threads": request.job.threads,
        "cores": labs.this_machine().num_cores,
        "versions": [__version__, version("torch")],
        "target": request.target,
        "of_host": {key: value for key, value in request.of_host.items() if value is not None},
        "emulate": request.emulate or bool(labs.this_machine().lacks),
        "nodes": count,
        "rate": rate,
        "strategy": [entry.strategy.kind, dict(entry.strategy.settings)],
        "at_most_s": request.at_most_s,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _earlier(path: Path, key: str) -> LabCell | None:
    """What an earlier sweep has measured there, unless the run failed or it was another one."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if found.get("key") != key:
        return None
    try:
        cell = from_json(LabCell, json.dumps(found["cell"]))
    except UsageError:  # of another version
        return None
    return cell if cell.run.status != "failed" else None


def _slug(count: int, rate: float | None, entry: Entry) -> str:
    return re.sub(r"[^\w.=-]+", "-", cell_name(count, rate, entry.label)).strip("-")


def _limits(request: LabRequest) -> str:
    return ", ".join(_told(request.of_host))


def _told(of_host: Mapping[str, Any]) -> Iterator[str]:
    if (cpu := of_host.get("cpu")) is not None:
        yield f"{cpu:g} of a core each"
    for key in ("memory", "delay", "jitter", "loss"):
        if (value := of_host.get(key)) is not None:
            yield f"{key} {value}"
