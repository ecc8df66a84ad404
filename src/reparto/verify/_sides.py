"""Runs one side of the comparison in a scratch copy, and keeps what it recorded and printed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reparto import api
from reparto._scratch import scratch_copy
from reparto.engines import Engine
from reparto.errors import ScriptError
from reparto.spec import Cluster, Event, Options, Output, Plan, Program, RunResult, Step

if TYPE_CHECKING:
    from reparto.runtime._record import Record

MAX_OUTPUT_BYTES = 1 << 20
SHOWN_LINES = 30

#: Is told the side's name and the step that it has made, 0 when it begins.
Progress = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True)
class Side:
    """How one side ended.

    Attributes:
        name: For people: ``sequential``, ``shared out over 2 workers``.
        result: As the engine tells it, with the user's own paths.
        folder: Where its record is.
        output: What the script printed, the end of it.
        linked: What was linked into its scratch copy.
    """

    name: str
    result: RunResult
    folder: Path
    output: str
    linked: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether the script raised, or left with an error status."""
        return self.result.status == "failed" or self.result.exit_code != 0

    def record(self) -> Record:
        """What it recorded."""
        from reparto.runtime._record import Record  # brings torch

        return Record(self.folder)

    def reason(self) -> str:
        """Why it failed, in one line."""
        failure = self.result.failure
        if failure is None:
            return f"left with exit status {self.result.exit_code}"
        place = f" at {failure.file}:{failure.line}" if failure.file else ""
        first_line = (failure.message.strip().splitlines() or [""])[0]
        return f"{failure.error}: {first_line}{place}"

    def error(self, message: str) -> ScriptError:
        """An error that shows what the script printed and raised."""
        lines = self.output.rstrip().splitlines()[-SHOWN_LINES:]
        shown = [f"  │ {line}" for line in lines]
        if self.result.failure is not None:
            trace = self.result.failure.traceback.rstrip().splitlines()
            shown += [line for line in trace if line not in lines]
        return ScriptError("\n".join([f"{message}: {self.reason()}", *shown]))


def run_side(
    name: str,
    program: Program,
    plan: Plan,
    options: Options,
    folder: Path,
    on_progress: Progress,
    *,
    engine: Engine,
    cluster: Cluster,
) -> Side:
    """Run a program to its end, in a scratch copy of its folder.

    Args:
        name: For people.
        program: What is run, with the user's own paths.
        plan: On how many workers.
        options: How; the record's folder is filled in here.
        folder: An empty folder for the copy, the record and the output.
        on_progress: Is told of steps.
        engine: Where it is run.
        cluster: The hosts of the plan.

    Raises:
        KeyboardInterrupt: If the user stopped it.
    """
    copy = scratch_copy(folder / "files", program.script, os.getcwd())
    watcher = _Watcher(name, on_progress)
    on_progress(name, 0)
    result = api.execute(
        copy.moved(program),
        plan,
        replace(options, record=str(folder / "record"), discard_writes=True),
        engine=engine,
        cluster=cluster,
        cwd=str(copy.cwd),
        watcher=watcher,
    )
    if result.status == "stopped":
        raise KeyboardInterrupt
    output = copy.outside(watcher.output.decode(errors="replace"))
    (folder / "output.txt").write_text(output, encoding="utf-8")
    failure = result.failure and replace(
        result.failure,
        message=copy.outside(result.failure.message),
        traceback=copy.outside(result.failure.traceback),
        file=copy.outside(result.failure.file),
    )
    return Side(
        name=name,
        result=replace(result, failure=failure),
        folder=folder / "record",
        output=output,
        linked=copy.linked,
    )


class _Watcher(api.Watcher):
    def __init__(self, name: str, on_progress: Progress) -> None:
        self._name = name
        self._on_progress = on_progress
        self.output = b""

    def event(self, event: Event) -> None:
        if isinstance(event, Step):
            self._on_progress(self._name, event.record.step)
        elif isinstance(event, Output):
            self.output = (self.output + event.data)[-MAX_OUTPUT_BYTES:]
