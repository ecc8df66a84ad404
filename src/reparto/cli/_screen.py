"""Screen: what people see of a run, on standard error; and the same as JSON."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from reparto._version import __version__
from reparto.api import Watcher
from reparto.cli._output import write_json
from reparto.cli._progress import Progress
from reparto.cli._style import Style, columns, duration, quantity
from reparto.engines import Launch
from reparto.errors import RepartoError
from reparto.measure import MAX_FILES
from reparto.spec import (
    Begin,
    Diagnostic,
    Event,
    Failure,
    Forecast,
    Note,
    Output,
    Place,
    Plan,
    Program,
    RunResult,
    Step,
    finite,
    to_plain,
)

if TYPE_CHECKING:
    from reparto.convert import Result

MAX_FINDINGS = 24
MAX_OUTPUTS = 8
_SEVERITY = {"note": "cyan", "warning": "yellow", "error": "red"}


class Screen(Watcher):
    """Prints what is found, planned, done.

    Args:
        json_target: File for `write_json`; ``-`` keeps standard output free for it: the
            script's own output then goes to standard error.
    """

    def __init__(self, json_target: str | None = None) -> None:
        self._json_target = json_target
        self._document: dict[str, Any] = {"version": __version__}
        self._stdout = sys.stderr if json_target == "-" else sys.stdout
        self._progress = Progress(self._stdout, sys.stderr)
        self._style = Style(sys.stderr)
        self._num_workers = 1

    # ------------------------------------------------------------------------- before

    def found(self, result: Result) -> None:
        """Print what the analysis found, and what it has to say."""
        program = result.program
        self._document |= {
            "script": program.script,
            "args": program.args,
            "findings": [to_plain(finding) for finding in program.findings],
            "diagnostics": [to_plain(diagnostic) for diagnostic in program.diagnostics],
        }
        self._say(self._style("bold", f"reparto {__version__} · {_shown(program.script)}"))
        rows = [
            (f.kind, f.name, f.detail, f"{_where(f.place)}{f.rewritten and '  → ' + f.rewritten}")
            for f in program.findings
        ]
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 10_000
        for line in columns(rows[:MAX_FINDINGS]):
            self._say(line if len(line) <= width else f"{line[: width - 1]}…")
        if len(rows) > MAX_FINDINGS:
            self._say(f"  … and {len(rows) - MAX_FINDINGS} more; --json has them all")
        for diagnostic in program.diagnostics:
            self._diagnostic(diagnostic)
        if reason := getattr(result, "reason", ""):
            self._say(f"  left unchanged: {reason}")

    def measuring(self, what: str) -> None:
        """Show what is being measured."""
        self._say(f"  {what} …")

    def forecast(self, forecast: Forecast) -> None:
        """Print what was chosen, and why."""
        self._document["forecast"] = finite(to_plain(forecast))
        self._say(f"{self._style('bold', 'auto')}  {forecast.why}")

    def planned(self, program: Program, plan: Plan, launch: Launch) -> None:
        """Print what will be done."""
        self._num_workers = plan.num_workers
        self._document["plan"] = to_plain(plan)
        self._say(f"{self._style('bold', 'plan')}  {describe_plan(plan)}")
        for reason in plan.reasons:
            self._say(f"  · {reason}")

    def launch(self, launch: Launch) -> None:
        """Print the commands that would be run."""
        self._say(self._style("bold", "would run"))
        self._say("\n".join(f"  {line}" for line in launch.as_text().splitlines()))

    # ------------------------------------------------------------------------- during

    def event(self, event: Event) -> None:
        """Show what a worker tells."""
        if isinstance(event, Output):
            self._progress.output(event.stream, event.data)
        elif isinstance(event, Step) and event.rank == 0:
            self._progress.step(event.record, self._num_workers)
        elif isinstance(event, Begin) and event.rank == 0:
            self._progress.begin()
        elif isinstance(event, Note):
            self._say(f"reparto: {event.text}")

    # -------------------------------------------------------------------------- after

    def result(self, result: RunResult) -> None:
        """Print how it ended."""
        if result.failure is not None:
            self._failure(result.failure, result.num_workers)
        elif result.status == "stopped":
            self._say(self._style("yellow", f"stopped{_after(result)}"))
        else:
            self._say(self._style("green", f"done{_after(result)}"))
        if result.outputs:
            shown = ", ".join(result.outputs[:MAX_OUTPUTS])
            more = len(result.outputs) - MAX_OUTPUTS
            at_least = "at least " if len(result.outputs) >= MAX_FILES else ""
            self._say(f"  outputs: {shown}{f' and {at_least}{more} more' if more > 0 else ''}")
        if result.predicted_step_s and result.step_s:
            self._say(f"  {foretold(result.predicted_step_s, result.step_s)}")
        for note in result.notes:
            self._say(f"  note: {note}")

    def out(self, text: str) -> None:
        """Print to standard output."""
        self._stdout.write(text)
        self._stdout.flush()

    def write_json(self, **fields: Any) -> None:
        """Write all that is known as JSON, if that was asked for."""
        write_json(self._json_target, {**self._document, **fields})

    def write_error(self, error: RepartoError) -> None:
        """Write as JSON why nothing came of it."""
        status = "refused" if error.exit_status == 3 else "failed"
        self.write_json(status=status, error=error.message, remedy=error.remedy)

    def _failure(self, failure: Failure, num_workers: int) -> None:
        self._say(self._style("red", f"failed: {headline(failure, num_workers)}"))
        if failure.traceback:
            self._say(failure.traceback.rstrip("\n"))

    def _diagnostic(self, diagnostic: Diagnostic) -> None:
        code = self._style(_SEVERITY[diagnostic.severity], diagnostic.code)
        place = diagnostic.place
        self._say(f"  {code} {_where(place)}:{place.column}: {diagnostic.reason}")
        if diagnostic.remedy:
            self._say(f"       → {diagnostic.remedy}")

    def _say(self, text: str) -> None:
        self._progress.say(text)


def describe_plan(plan: Plan) -> str:
    """Say a plan in one line."""
    threads = {0: "", 1: ", 1 thread each"}.get(
        plan.threads_per_worker, f", {plan.threads_per_worker} threads each"
    )
    hosts = ", ".join(dict.fromkeys(plan.placement))
    workers = "1 worker" if plan.num_workers == 1 else f"{plan.num_workers} workers"
    settings = " ".join(f"{key}={value}" for key, value in plan.strategy.settings.items())
    kind = plan.strategy.kind + (f" ({settings})" if settings else "")
    return f"{kind} · {workers} on {hosts} · {plan.device}{threads}"


def foretold(predicted_s: float, measured_s: float) -> str:
    """Say how a prediction came out."""
    off = 100 * (predicted_s / measured_s - 1)
    told, seen = (
        f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
        for seconds in (predicted_s, measured_s)
    )
    return f"a step: predicted {told}, measured {seen} ({off:+.0f} %)"


def headline(failure: Failure, num_workers: int) -> str:
    """Say in one line who failed, where and why."""
    if failure.error == "UnequalError":
        return (
            "the start-up probe found the shared-out gradient unequal to the sequential one: "
            f"{failure.message}"
        )
    who = f"worker {failure.rank} of {num_workers} on {failure.host}"
    at = f" after step {failure.step}" if failure.step else ""
    if failure.error in ("Exit", "Signal"):
        was = "was " if failure.error == "Signal" else ""
        return f"{who} {was}{failure.message}{at}"
    where = f", {_shown(failure.file)}:{failure.line}" if failure.file else ""
    return f"{who}{at}{where}: {failure.error}: {failure.message.partition(chr(10))[0]}"


def _after(result: RunResult) -> str:
    parts = [f" after {duration(result.total_s)} (start-up {duration(result.startup_s)})"]
    if result.num_steps:
        parts.append(f"{quantity(result.num_steps)} steps")
    if result.samples_per_s:
        parts.append(f"{quantity(result.samples_per_s)} samples/s")
    if result.final_loss is not None:
        parts.append(f"final loss {result.final_loss:.4g}")
    return " · ".join(parts)


def _where(place: Place) -> str:
    return f"{_shown(place.file)}:{place.line}"


def _shown(path: str) -> str:
    """The path as short as it can be said from here."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative
