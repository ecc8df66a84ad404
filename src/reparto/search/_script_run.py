"""ScriptRun: one run of a script, as far as it has come; and what it leaves in its folder.

trials/7/  command.txt     what a person types to train with these settings
           output.txt      what the script has printed, while it runs
           objective.csv   how the objective went on
           trial.json      settings and how it ended
           files/          what the script has written, by where it wanted it: relative to the
                           folder where it was started, or to its own; else below elsewhere/

Runs beside each other start in the user's folder, so data are found by their relative paths; what
worker 0 writes is kept aside for each run (``runtime/_files.py``), and put in order at its end.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from reparto.engines import Engine, Launch, Run
from reparto.errors import ScriptError
from reparto.search._script_history import History
from reparto.search._script_trials import Trials
from reparto.spec import (
    Assignment,
    Candidate,
    Event,
    Failure,
    Output,
    RunResult,
    Step,
    finite,
    to_plain,
)

POLL_S = 0.1
_ASIDE = ".aside"


class TrialError(ScriptError):
    """A run has failed; the script's own traceback follows the message as a note.

    Args:
        message: What happened, in a line.
        shown: Traceback and the last lines that were printed.
    """

    def __init__(self, message: str, shown: str = "") -> None:
        super().__init__(message)
        if shown:
            self.add_note(shown)


class ScriptRun:
    """A run of a script with the settings of a candidate. Used by one thread.

    Args:
        trials: What all runs have in common.
        engine: Of this thread.
        candidate: Its settings are tried.

    Attributes:
        history: Of its objective.
        result: How it ended; None as long as it goes on.
    """

    def __init__(self, trials: Trials, engine: Engine, candidate: Candidate) -> None:
        self._trials, self._candidate = trials, candidate
        self.folder = trials.folder_of(candidate)
        shutil.rmtree(self.folder, ignore_errors=True)  # of a try that did not come to an end
        self.folder.mkdir(parents=True)
        self.command = trials.command_of(candidate)
        (self.folder / "command.txt").write_text(f"{self.command}\n", encoding="utf-8")
        self._output = (self.folder / "output.txt").open("wb", buffering=0)
        self.history = History(trials.pattern)
        self.result: RunResult | None = None
        self._is_wound_up = False
        self._slot = trials.slots.take()
        self._run = self._started(engine)

    def _started(self, engine: Engine) -> Run:
        trials = self._trials
        words = trials.words(self._candidate.settings)
        program = dataclasses.replace(trials.program, args=words.args)
        options = dataclasses.replace(trials.options, write_to=str(self.folder / _ASIDE))
        launch = engine.prepare(program, trials.plan, trials.cluster, options)
        launch = dataclasses.replace(
            _seated(launch, trials, self._slot, words.env), cwd=trials.cwd
        )
        run = engine.start(launch)
        run.assign(Assignment(program=program, plan=trials.plan, options=options))
        return run

    def advance(self) -> None:
        """Wait a moment for what happens next."""
        for event in self._run.poll(POLL_S):
            self._hear(event)
        if self._run.result is not None:
            self._end(self._run.result)

    def stop(self, *, now: bool = False) -> None:
        """End it on all workers: after a step that they agree on, or now."""
        if self.result is None:
            self._run.stop(now=now)

    def check(self) -> None:
        """Refuse what it has come to, if that is no score.

        Raises:
            TrialError: If it failed, is over without an objective, or that is no number.
        """
        result, history = self.result, self.history
        if result is not None and result.status == "failed":
            failure = result.failure or Failure(rank=0, host="", error="Failed", message="")
            raise TrialError(_headline(failure), self._shown(failure))
        if history.failure:
            raise TrialError(history.failure, self._shown(None))
        if result is not None and result.status == "stopped":
            raise TrialError("it was stopped", self._shown(None))
        if result is not None and not history.points:
            raise TrialError(self._without_objective(), self._shown(None))

    def wind_up(self, status: str, failure: str = "") -> None:
        """Put its folder in order; it is over. Whatever was written is kept."""
        if self._is_wound_up:
            return
        self._is_wound_up = True
        self._trials.slots.give_back(self._slot)
        self._output.close()
        _put_in_order(self.folder / _ASIDE, self.folder / "files", self._roots())
        history = self.history
        with (self.folder / "objective.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow((history.unit, self._trials.metric, "seconds"))
            writer.writerows(
                (point.at, point.value, round(point.after_s, 3)) for point in history.points
            )
        is_scored = bool(history.points) and status in ("done", "pruned")
        about = {
            "number": self._candidate.number,
            "settings": dict(self._candidate.settings),
            "command": self.command,
            "status": status,
            "failure": failure,
            self._trials.metric: history.points[-1].value if is_scored else None,
            "result": to_plain(self.result) if self.result is not None else None,
        }
        text = json.dumps(finite(about), indent=1)
        (self.folder / "trial.json").write_text(f"{text}\n", encoding="utf-8")

    @property
    def size_bytes(self) -> int:
        """Of the files that the script has written."""
        files = (self.folder / "files").rglob("*")
        return sum(one.lstat().st_size for one in files if one.is_file())

    def _hear(self, event: Event) -> None:
        if isinstance(event, Output):
            self._output.write(event.data)
            self.history.printed(event)
        elif isinstance(event, Step) and event.rank == 0:
            self.history.stepped(event.record)

    def _end(self, result: RunResult) -> None:
        if self.result is None:
            self.result = result
            self.history.ended()

    def _without_objective(self) -> str:
        if self._trials.pattern is None:
            if self.history.num_steps:
                return "the loss of its steps is not known: print an objective, and name it"
            return "it made no optimizer step, so there is no training loss"
        return f"nothing that it printed matches the objective '{self._trials.pattern.pattern}'"

    def _shown(self, failure: Failure | None) -> str:
        """The script's traceback, and the end of what it printed."""
        lines = list(self.history.tail)
        trace = failure.traceback.rstrip() if failure is not None else ""
        if trace and "\n".join(lines).endswith(trace.splitlines()[-1]):
            return trace if len(lines) < 2 else "\n".join([trace, "", "it had printed:", *lines])
        parts = [trace] if trace else []
        if lines:
            parts += ["the last lines that it printed:", *(f"  │ {line}" for line in lines)]
        elif failure is None:
            parts.append("it has printed nothing")
        return "\n".join(parts)

    def _roots(self) -> tuple[str, ...]:
        """Folders relative to which a script names its files."""
        script = os.path.dirname(self._trials.program.script)
        folders = (self._trials.cwd, script, os.path.realpath(script))
        return tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))


def _seated(launch: Launch, trials: Trials, slot: int, env: Mapping[str, str]) -> Launch:
    """The launch with the candidate's environment; runs at the same time have their own GPUs."""
    given = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    count = sum(host.num_gpus for host in trials.cluster.hosts)
    gpus = given or [str(index) for index in range(count)]
    is_here = trials.job.engine == "local" and trials.plan.device == "cuda" and len(gpus) > 1
    workers = []
    for worker in launch.workers:
        place = slot * len(launch.workers) + worker.rank
        gpu = {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} if is_here else {}
        workers.append(dataclasses.replace(worker, env={**worker.env, **gpu, **env}))
    return dataclasses.replace(launch, workers=tuple(workers))


def _headline(failure: Failure) -> str:
    where = f" ({failure.file}:{failure.line})" if failure.file else ""
    said = (failure.message.strip().splitlines() or [""])[0]
    on = f" on worker {failure.rank}" if failure.rank > 0 else ""
    return f"{failure.error}{on}: {said}{where}" if said else f"{failure.error}{on}{where}"


def _put_in_order(aside: Path, files: Path, roots: tuple[str, ...]) -> None:
    """Move what was kept by its absolute path to where a person looks for it."""
    if not aside.exists():
        return
    for here, _, names in os.walk(aside):
        for name in names:
            path = Path(here, name)
            wanted = "/" + os.path.relpath(path, aside)
            target = files / _relative(wanted, roots)
            if target.exists():  # of two folders
                target = files / "elsewhere" / wanted.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # a temporary file of a library
                shutil.move(path, target)
    shutil.rmtree(aside, ignore_errors=True)


def _relative(path: str, roots: tuple[str, ...]) -> str:
    for root in roots:
        if path.startswith(f"{root.rstrip('/')}/"):
            return os.path.relpath(path, root)
    return os.path.join("elsewhere", path.lstrip("/"))
