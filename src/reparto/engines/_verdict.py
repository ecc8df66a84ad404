"""Which of several failures came first, and how a run ended. Pure; shared by all engines.

When one worker fails, its peers fail too: they waited for it. Those echoes are told apart from
the cause by what they say, and only then by time.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reparto.spec import Failure, RunResult, StepRecord

_ECHO_ERRORS = frozenset(
    {
        "WorkerError",
        "DistBackendError",
        "DistError",
        "DistNetworkError",
        "DistStoreError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "ConnectionAbortedError",
    }
)
_ECHO_MESSAGE = re.compile(
    r"gloo|nccl|by peer|connection (closed|reset|refused|aborted)|broken pipe|TCPStore"
    r"|socket timeout|timed out waiting|client socket|worker \d+ is gone",
    re.IGNORECASE,
)

#: Of one worker each: the one that had the most.
_MEMORY = ("peak_bytes", "idle_bytes", "free_bytes", "memory_device")


def is_echo(failure: Failure) -> bool:
    """Whether a worker failed only because another one was gone."""
    if failure.error in ("Signal", "Exit"):
        return False
    return failure.error in _ECHO_ERRORS or (
        failure.error == "RuntimeError" and bool(_ECHO_MESSAGE.search(failure.message))
    )


def first_failure(failures: Iterable[Failure]) -> Failure | None:
    """Choose the failure to show: no echo if there is a cause, then by time.

    Workers do the same thing, so the same mistake often ends all of them; it is then told of
    worker 0, whose output the user has seen.
    """
    ranked = sorted(failures, key=lambda failure: (is_echo(failure), failure.time_s))
    if not ranked:
        return None
    first = ranked[0]
    for other in ranked:
        if other.rank == 0 and _what(other) == _what(first):
            return other
    return first


def _what(failure: Failure) -> tuple[str, str, int, str]:
    exits = failure.message if failure.error == "Exit" else ""
    return failure.error, failure.file, failure.line, exits


def death(rank: int, host: str, status: int, *, step: int, time_s: float, log: str) -> Failure:
    """Describe a worker that ended without a word: by a signal, or by ``os._exit``.

    Args:
        rank: The worker.
        host: Its host.
        status: As of `subprocess.Popen.returncode`: negative for a signal.
        step: The last step that is known.
        time_s: When that was seen.
        log: The end of what it wrote; shown in place of a traceback.
    """
    if status < 0:
        name = _signal_name(-status)
        message = f"killed by {name}"
        if -status == signal.SIGKILL:
            message += ", as the system does when memory runs out"
        error = "Signal"
    else:
        message = f"left with exit status {status}"
        error = "Exit"
    return Failure(
        rank=rank,
        host=host,
        error=error,
        message=message,
        traceback=log,
        step=step,
        time_s=time_s,
    )


def conclude(
    *,
    num_workers: int,
    failure: Failure | None,
    stopped: bool,
    exit_code: int,
    summary: Mapping[str, Any] | None,
    last_step: StepRecord | None,
    total_s: float,
    startup_s: float,
    notes: tuple[str, ...],
    others: Sequence[Mapping[str, Any]] = (),
) -> RunResult:
    """Put together how a run ended from what its workers told.

    Args:
        num_workers: Workers that were started.
        failure: The first failure, if any.
        stopped: Whether it was ended on request.
        exit_code: The script's exit status.
        summary: What worker 0 told at its end; None if it did not come to that.
        last_step: The last step that worker 0 told of.
        total_s: Seconds from launch to now.
        startup_s: Seconds from launch to the begin of the script.
        notes: What is told besides.
        others: What the other workers told at their end.
    """
    told = dict(summary or {})
    for key in ("wire_bytes", "waited_s"):
        each = [one[key] for one in (told, *others) if key in one]
        if each:
            told[key] = sum(each) / len(each)
    most = max((told, *others), key=lambda one: int(one.get("peak_bytes", 0)))
    told |= {key: most[key] for key in _MEMORY if key in most}
    if last_step is not None:
        told.setdefault("num_steps", last_step.step)
        told.setdefault("train_s", last_step.time_s)
        told.setdefault("final_loss", last_step.loss)
    told_notes = tuple(note for note in told.pop("notes", ()) if note not in notes)
    known = {
        *("num_steps", "num_samples", "train_s", "final_loss"),
        *("bytes_sent", "wire_bytes", "waited_s", "batch_rows"),
        *_MEMORY,
    }
    return RunResult(
        status="stopped" if stopped else "failed" if failure else "done",
        exit_code=exit_code,
        num_workers=num_workers,
        total_s=total_s,
        startup_s=startup_s,
        failure=None if stopped else failure,
        notes=notes + told_notes,
        **{key: value for key, value in told.items() if key in known},
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
