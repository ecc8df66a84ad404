"""Turns an exception into a `Failure`: the traceback as the user would want to read it."""

from __future__ import annotations

import os
import socket
import sysconfig
import time
import traceback

from reparto.errors import RepartoError
from reparto.spec import Failure, Program

#: Set to ``full`` in the environment, it shows reparto's own frames too.
FULL_VARIABLE = "REPARTO_TRACEBACK"

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_FOLDER) + os.sep
_WORKER = (os.path.join(_FOLDER, "worker.py"), os.path.join(_FOLDER, "_program.py"))
_LIBRARIES = tuple({*sysconfig.get_paths().values(), _PACKAGE})


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
        traceback=_told(error),
        file=file,
        line=line,
        step=step,
        time_s=time.time(),
    )


def _told(error: BaseException) -> str:
    """The traceback, without the frames that are ours and not the cause."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_WORKER):
        trace = trace.tb_next  # above the script's first frame
    told = traceback.TracebackException(type(error), error, trace or error.__traceback__)
    if os.environ.get(FULL_VARIABLE) != "full" and not _is_our_defect(error, told):
        _hide_ours(told)
    return "".join(told.format())


def _is_our_defect(error: BaseException, told: traceback.TracebackException) -> bool:
    # torch raises RuntimeError from C++, and then the innermost frame is the one that called it.
    ours = bool(told.stack) and told.stack[-1].filename.startswith(_PACKAGE)
    return ours and not isinstance(error, RepartoError | RuntimeError)


def _hide_ours(told: traceback.TracebackException) -> None:
    theirs = [frame for frame in told.stack if not frame.filename.startswith(_PACKAGE)]
    if theirs:
        told.stack[:] = theirs
    for earlier in (told.__cause__, told.__context__):
        if earlier is not None:
            _hide_ours(earlier)


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
