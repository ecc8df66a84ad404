r"""How a worker tells what happens: one JSON object a line, through a pipe.

worker: EventWriter ──{"type": "step", …}\n──► pipe ──► spec.decode: engines, api, screen
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from reparto.spec import Failure, StepRecord, UsageSample, WorkerSurvey

STEP_EVENTS_EVERY_S = 0.25


class EventWriter:
    """Writes a worker's events into a pipe.

    Usable from several threads. Does nothing in a process forked off the worker (loaders'
    children share the pipe), nor once nobody reads any more.

    Args:
        fd: The pipe; None to tell nobody.

    Attributes:
        tells_every_step: Whether steps that were not told of at once are told of later; else
            only the last of them is.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self.tells_every_step = False
        self._pending: list[StepRecord] = []
        self._next_step_at = 0.0

    def begin(self) -> None:
        """Tell that the script begins."""
        self._write({"type": "begin", "time_s": time.time()})

    def step(self, record: StepRecord) -> None:
        """Tell of a step, unless the last was told of a moment ago: then with what follows."""
        now = time.monotonic()
        if not self.tells_every_step:
            self._pending.clear()
        self._pending.append(record)
        if now >= self._next_step_at:
            self._next_step_at = now + STEP_EVENTS_EVERY_S
            self._flush_step()

    def note(self, text: str) -> None:
        """Tell people something."""
        self._write({"type": "note", "text": text})

    def usage(self, host: str, sample: UsageSample) -> None:
        """Tell what a host has used of late."""
        self._write({"type": "usage", "host": host, **dataclasses.asdict(sample)})

    def surveyed(self, found: WorkerSurvey) -> None:
        """Tell what was measured."""
        self._write({"type": "surveyed", "found": dataclasses.asdict(found)})

    def stopping(self, step: int, in_s: float) -> None:
        """Tell that all workers will end after a step."""
        self._write({"type": "stopping", "step": step, "in_s": in_s})

    def failed(self, failure: Failure) -> None:
        """Tell that this worker failed."""
        self._flush_step()
        self._write({"type": "failed", **dataclasses.asdict(failure)})

    def done(self, exit_code: int, summary: Mapping[str, Any]) -> None:
        """Tell that the script has ended."""
        self._flush_step()
        self._write({"type": "done", "exit_code": exit_code, **summary})

    def _flush_step(self) -> None:
        records, self._pending = self._pending, []
        self._write(*({"type": "step", **dataclasses.asdict(record)} for record in records))

    def _write(self, *events: Mapping[str, Any]) -> None:
        if self._fd is None or os.getpid() != self._pid:
            return
        lines = "".join(json.dumps(event, default=str) + "\n" for event in events).encode()
        with self._lock, contextlib.suppress(OSError):
            while lines:
                lines = lines[os.write(self._fd, lines) :]
