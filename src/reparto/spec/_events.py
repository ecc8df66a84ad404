"""What workers tell while they run. They travel as JSON, one object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reparto.spec._run import Failure, StepRecord
from reparto.spec._usage import UsageSample


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The script begins on this worker."""

    rank: int
    time_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step has ended; only worker 0 tells, and not of each one, unless `Options.losses`.

    With `Options.paces` all workers tell, now and then.
    """

    rank: int
    record: StepRecord


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something that people should know."""

    rank: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a host has used of late; only the first worker of each host tells, see `Options`."""

    rank: int
    host: str
    sample: UsageSample


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """What a worker has measured, see `Options.survey`.

    Attributes:
        found: A `WorkerSurvey`, plain.
    """

    rank: int
    found: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """All workers will end after a step, on request; only worker 0 tells.

    Attributes:
        step: The last step; 0 while it is not known yet.
        in_s: About so many seconds from now; while it is not known, those of a step.
    """

    rank: int
    step: int
    in_s: float


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The script raised, or the worker died; nothing follows from this worker."""

    rank: int
    failure: Failure


@dataclass(frozen=True, kw_only=True)
class Done:
    """The script has ended, by itself or by ``SystemExit``."""

    rank: int
    exit_code: int = 0
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Output:
    """Bytes that the script wrote. Made by the engine; no worker tells it."""

    rank: int
    stream: Literal["stdout", "stderr"]
    data: bytes


Event = Begin | Step | Note | Usage | Surveyed | Stopping | Failed | Done | Output


def decode(rank: int, line: bytes | str) -> Event | None:
    """Read one line of a worker; None where it is not an event (a script wrote there).

    Workers are of the same version, so this is plain construction: no pydantic.
    """
    try:
        fields = json.loads(line)
        kind = fields.pop("type")
        if kind == "begin":
            return Begin(rank=rank, **fields)
        if kind == "step":
            return Step(rank=rank, record=StepRecord(**fields))
        if kind == "note":
            return Note(rank=rank, text=fields["text"])
        if kind == "usage":
            return Usage(rank=rank, host=fields.pop("host"), sample=UsageSample(**fields))
        if kind == "surveyed":
            return Surveyed(rank=rank, found=fields["found"])
        if kind == "stopping":
            return Stopping(rank=rank, **fields)
        if kind == "failed":
            return Failed(rank=rank, failure=Failure(**fields))
        if kind == "done":
            return Done(rank=rank, exit_code=fields.pop("exit_code"), summary=fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    return None
