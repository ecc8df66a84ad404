"""Every error that reparto raises on purpose, as one tree.

    RepartoError                  code E000
    ├── UsageError                E100  bad arguments, a missing file      (exit status 2)
    ├── RefusedError              E200  cannot be shared out exactly       (exit status 3)
    ├── ScriptError               E300  the user's script raised           (exit status 1)
    ├── WorkerError               E400  a worker died or stopped answering (exit status 1)
    │   └── DisagreementError     E410  workers no longer do the same thing
    ├── UnequalError              E500  verify: outside tolerance          (exit status 1)
    ├── EngineError               E600  workers could not be started
    ├── LabError                  E650  the lab could not be built, or is not what it was set to
    └── MissingExtraError         E700  an optional dependency is not installed

A message says what happened and where; ``remedy`` says what to do next. ``code`` is stable.
"""

from __future__ import annotations


class RepartoError(Exception):
    """Base of all errors of reparto.

    Args:
        message: What happened, and where.
        remedy: What the user can do next.
    """

    code = "E000"
    exit_status = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.remedy}" if self.remedy else self.message


class UsageError(RepartoError):
    """The command or the call was not understood: bad arguments, a missing file."""

    code = "E100"
    exit_status = 2


class RefusedError(RepartoError):
    """The script cannot be shared out exactly, and the reason is known."""

    code = "E200"
    exit_status = 3


class ScriptError(RepartoError):
    """The user's script raised an exception on a worker."""

    code = "E300"


class WorkerError(RepartoError):
    """A worker died or stopped answering."""

    code = "E400"


_LOOK = (
    "look for what differs between workers: the clock, the host's name, unsorted listings of "
    "files, unseeded generators of other libraries"
)


class DisagreementError(WorkerError):
    """Workers that should do the same thing no longer do."""

    code = "E410"

    def __init__(self, message: str, *, remedy: str = _LOOK) -> None:
        super().__init__(message, remedy=remedy)


class UnequalError(RepartoError):
    """The shared-out training differs from the sequential one."""

    code = "E500"


class EngineError(RepartoError):
    """The engine could not start the workers."""

    code = "E600"


class LabError(RepartoError):
    """The lab could not be built, or it is not what it was set to."""

    code = "E650"


class MissingExtraError(RepartoError):
    """An optional dependency is not installed.

    Args:
        package: The package that could not be imported.
        extra: The extra of reparto that brings it.
    """

    code = "E700"

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", remedy=f"pip install 'reparto[{extra}]'")
