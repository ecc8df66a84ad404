r"""History: how the objective of a script's run went on, from what it prints or from its losses.

"epoch 3 accuracy 0.91\n" ──objective: accuracy ([\d.]+)──► 0.91 at 3     (its third match)
StepRecord(samples=64, loss=0.4) ──smoothed──────────────► 0.43 at 1920  (samples until then)
"""

from __future__ import annotations

import codecs
import math
import re
import threading
import time
from collections import deque
from dataclasses import dataclass

from reparto.errors import UsageError
from reparto.measure import Trend
from reparto.spec import Output, StepRecord

#: Steps over which the training loss is smoothed: a single batch says little.
HORIZON_STEPS = 20
#: A training whose loss is no number for so many steps is not going to recover.
NAN_STEPS = 5
#: Of what a script prints, so many lines are shown where it fails.
SHOWN_LINES = 20
#: A line without an end is cut there.
_MAX_LINE = 1 << 16


@dataclass(frozen=True)
class Point:
    """The objective at some time of a run.

    Attributes:
        at: How far the run was: matches, samples or steps, see `History.unit`.
        value: Of the objective.
        after_s: Seconds since the run began.
    """

    at: float
    value: float
    after_s: float


def objective_pattern(text: str) -> re.Pattern[str] | None:
    """The expression by which the objective is found; None for the training loss.

    Raises:
        UsageError: If it is none, or has not one group.
    """
    if not text:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(
            f"the objective '{text}' is no regular expression: {error}",
            remedy=r"such as 'accuracy ([\d.]+)'; \( stands for a parenthesis that is printed",
        ) from error
    if pattern.groups != 1:
        raise UsageError(
            f"the objective '{text}' has {pattern.groups} groups, and one is the number",
            remedy=r"put the number into the only group, others into (?:…): 'accuracy ([\d.]+)'",
        )
    return pattern


class History:
    """Hears a run, and knows its objective.

    Args:
        pattern: Finds it in what the script prints; None for the training loss.

    Attributes:
        points: Of the objective, in order.
        unit: What `Point.at` counts: ``matches``, ``samples`` or ``steps``.
        tail: The last lines that were printed.
    """

    def __init__(self, pattern: re.Pattern[str] | None) -> None:
        self._pattern = pattern
        self._began = time.monotonic()
        self._lines = {"stdout": _Lines(), "stderr": _Lines()}
        self._trend = Trend(HORIZON_STEPS)
        self._samples = self._bad = 0
        self.points: list[Point] = []
        self.unit = "matches" if pattern is not None else "samples"
        self.tail: deque[str] = deque(maxlen=SHOWN_LINES)
        self.num_steps = 0
        self.failure = ""

    def printed(self, output: Output) -> None:
        """The script has written something."""
        for line in self._lines[output.stream].add(output.data):
            self._read(line)

    def stepped(self, record: StepRecord) -> None:
        """A step is over."""
        self.num_steps = record.step
        if self._pattern is not None:
            return
        if record.step <= 1 and not record.samples:
            self.unit = "steps"
        self._samples += record.samples
        if record.loss is None:
            return
        if not math.isfinite(record.loss):
            self._bad += 1
            if self._bad >= NAN_STEPS:
                self.failure = f"its loss is {record.loss} at step {record.step}"
            return
        self._bad = 0
        smoothed = self._trend.add(record.loss)
        if smoothed is not None:
            self._add(self._samples if self.unit == "samples" else record.step, smoothed)

    def ended(self) -> None:
        """Nothing more comes."""
        for lines in self._lines.values():
            for line in lines.rest():
                self._read(line)
        if self._bad and not self.failure:
            self.failure = f"its loss is no number at its last step, {self.num_steps}"

    @property
    def at(self) -> float:
        """How far the run is."""
        return self.points[-1].at if self.points else 0.0

    def point_at(self, at: float) -> Point:
        """What was known when the run was so far: the last point until then, or else the first."""
        before = [point for point in self.points if point.at <= at]
        return before[-1] if before else self.points[0]

    def _read(self, line: str) -> None:
        if line.strip():
            self.tail.append(line)
        if self._pattern is None:
            return
        for match in self._pattern.finditer(line):
            found = match.group(1)
            try:
                value = float(found)
            except (TypeError, ValueError):
                self.failure = f"it has printed {found!r} where the objective is a number"
                return
            if not math.isfinite(value):
                self.failure = f"its objective is {value}"
                return
            self._add(len(self.points) + 1, value)

    def _add(self, at: float, value: float) -> None:
        self.points.append(Point(at, value, time.monotonic() - self._began))


class _Lines:
    """Bytes as they come, turned into lines; one that a progress bar writes anew is a line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def add(self, data: bytes) -> list[str]:
        text = self._rest + self._decoder.decode(data)
        *lines, self._rest = re.split(r"\r\n|\n|\r(?!$)", text)
        if len(self._rest) > _MAX_LINE:
            lines, self._rest = [*lines, self._rest], ""
        return lines

    def rest(self) -> list[str]:
        found, self._rest = self._rest + self._decoder.decode(b"", final=True), ""
        return re.split(r"\r\n|\n|\r", found) if found else []


class Lengths:
    """How long whole runs are, so that a part of another run is known while it goes on.

    Shared by the workers of a search, each of which is a thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._longest: dict[str, float] = {}

    def told(self, unit: str, length: float) -> None:
        """A run has ended by itself."""
        with self._lock:
            self._longest[unit] = max(length, self._longest.get(unit, 0.0))

    def part(self, unit: str, share: float) -> float | None:
        """How far a run is at that share of the longest one; None where nothing is known yet."""
        with self._lock:
            longest = self._longest.get(unit)
        if longest is None:
            return None
        if unit != "matches":
            return share * longest
        part = max(1.0, float(round(share * longest)))
        return part if part < longest else None  # with the last match there is nothing to save
