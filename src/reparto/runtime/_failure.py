"""Turns an exception into a `Failure`: the traceback as the user would want to read it."""

from __future__ import annotations

import os
import socket
import sysconfig
import time
import traceback
from types import TracebackType

from reparto.spec import Failure, Program

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = tuple({*sysconfig.get_paths().values(), os.path.dirname(_OWN_FOLDER)})


def describe(error: BaseException, *, rank: int, step: int, program: Program) -> Failure:
    """Describe an exception that ended a worker.

    Args:
        error: The exception.
        rank: The worker.
        step: The last step that it finished.
        program: What it ran: whose files are the user's.
    """
    file, line = _innermost_place(error, program)
    return Failure(
        rank=rank,
        host=socket.gethostname(),
        error=type(error).__name__,
        message=str(error),
        traceback="".join(
            traceback.format_exception(type(error), error, _without_worker(error.__traceback__))
        ),
        file=file,
        line=line,
        step=step,
        time_s=time.time(),
    )


def _without_worker(trace: TracebackType | None) -> TracebackType | None:
    """Drop the frames above the script's first."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        inner = inner.tb_next
    return inner if inner is not None else trace


def _innermost_place(error: BaseException, program: Program) -> tuple[str, int]:
    if isinstance(error, SyntaxError) and error.filename and os.path.exists(error.filename):
        return error.filename, error.lineno or 0
    folder = os.path.dirname(program.script) + os.sep
    theirs = {program.script, *(file.path for file in program.files)}
    place = ("", 0)
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if name in theirs or (name.startswith(folder) and not name.startswith(_LIBRARIES)):
            place = (name, line)
    return place
