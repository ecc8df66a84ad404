"""What a conversion returns: Converted, Unchanged or Refused, never an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from reparto.spec import Program


@dataclass(frozen=True, kw_only=True)
class Converted:
    """The script can be shared out; ``program.files`` holds what workers run."""

    program: Program


@dataclass(frozen=True, kw_only=True)
class Unchanged:
    """The script is left as it is; ``program.launch`` says how to start it.

    Attributes:
        program: The script as it was read.
        reason: Why nothing was changed, for people.
    """

    program: Program
    reason: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The script cannot be shared out; ``program.diagnostics`` says where and why."""

    program: Program


Result: TypeAlias = Converted | Unchanged | Refused
