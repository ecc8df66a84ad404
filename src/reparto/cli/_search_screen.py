"""SearchScreen: what people see while a search goes on, on standard error."""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, TextIO

from reparto.cli._style import Style, duration
from reparto.search import SearchWatcher
from reparto.spec import Evaluation, SearchColumn, SearchRequest, SearchResult, TableFacts

PLAIN_EVERY_S = 10.0
REDRAW_EVERY_S = 0.1
_CLEAR = "\r\033[K"
#: Failures of a technique are told one by one, until there are so many.
_MOST_FAILURES = 2
#: So many columns, classes or techniques are named.
_MOST_NAMES = 12


class SearchScreen(SearchWatcher):
    """A line for each candidate that is better than all before, and a live one below.

    On a terminal the live line is drawn over; elsewhere it is a plain one now and then.

    Args:
        stream: Where it goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._style = stream, Style(stream)
        self._live, self._drawn = stream.isatty(), False
        self._began_s = time.monotonic()
        self._next_s = 0.0 if self._live else self._began_s + PLAIN_EVERY_S
        self._best: Evaluation | None = None
        self._told_best: Evaluation | None = None
        self._ended: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._busy = self._held = 0
        self.told: list[str] = []
        self._left_s = math.inf

    # ------------------------------------------------------------------------- before

    def read(self, facts: TableFacts, techniques: tuple[str, ...], split: str) -> None:
        """Say what was read, and what was made of it."""
        for line in facts_lines(facts):
            self.say(line)
        self.say(f"  tested   {split}")
        names = ", ".join(techniques)
        noun = "technique" if len(techniques) == 1 else "techniques"
        self.say(f"  tried    {len(techniques)} {noun}: {names}" if techniques else "")
        for note in facts.notes:
            self.note(note)

    def note(self, text: str) -> None:
        """Say what people should know."""
        self.told.append(text)
        self.say(f"  note     {text}")

    # ------------------------------------------------------------------------- during

    def working(self, busy: int, held: int, left_s: float) -> None:
        """Know how many work, and draw."""
        self._busy, self._held, self._left_s = busy, held, left_s
        self._draw()

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """Tell a new best one and a failure at once, count the others."""
        self._ended[evaluation.status] += 1
        if evaluation.status == "failed":
            self._tell_failure(evaluation)
        if best is not None and best is not self._told_best:
            self._best = self._told_best = best
            self.say(f"  {self._style('green', 'best')}     {candidate_line(best)}")
        self._draw()

    def finishing(self, text: str) -> None:
        """Say what is done now."""
        self._left_s = math.inf
        self.say(f"  {text} …")

    def ended(self, result: SearchResult) -> None:
        """Leave the screen to what was found."""
        self.clear()

    # ------------------------------------------------------------------------- lines

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.clear()
        if text:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def clear(self) -> None:
        """Take the live line away."""
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._drawn = False

    def _tell_failure(self, evaluation: Evaluation) -> None:
        kind = evaluation.candidate.technique
        self._failed[kind] += 1
        if self._failed[kind] <= _MOST_FAILURES:
            word = self._style("yellow", "failed")
            self.say(f"  {word}   {failure_line(evaluation)}")
        elif self._failed[kind] == _MOST_FAILURES + 1:
            self.say(f"           more of {kind} have failed; the report has them all")

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._next_s:
            return
        line = self._line(now)
        if not self._live:
            self._next_s = now + PLAIN_EVERY_S
            self.say(f"  {line}")
            return
        self._next_s = now + REDRAW_EVERY_S
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"{_CLEAR}  {line}"[: width + len(_CLEAR)])
        self._stream.flush()
        self._drawn = True

    def _line(self, now: float) -> str:
        parts = [duration(now - self._began_s)]
        if math.isfinite(self._left_s):
            parts.append(f"{duration(max(0.0, self._left_s))} left")
        parts.append(f"{self._busy} of {self._held} workers busy")
        parts.append(counted(self._ended))
        if self._best is not None and self._best.score is not None:
            best = f"{number_text(self._best.score)} ({self._best.candidate.technique})"
            parts.append(f"best {best}")
        return " · ".join(parts)


def counted(ended: Mapping[str, int]) -> str:
    """How many candidates have ended, and how: ``12 candidates: 9 done, 3 given up``."""
    words = {"done": "done", "pruned": "given up", "failed": "failed", "stopped": "stopped"}
    total = sum(ended.values())
    each = [f"{ended[status]} {word}" for status, word in words.items() if ended.get(status)]
    noun = "candidate" if total == 1 else "candidates"
    if total == 0:
        return "no candidate has ended"
    return f"{total} {noun}: {', '.join(each)}"


def candidate_line(one: Evaluation) -> str:
    """A candidate in a line: its number, score, technique and settings."""
    spread = "" if one.spread is None else f" ± {number_text(one.spread, 2)}"
    score = "no score" if one.score is None else f"{number_text(one.score)}{spread}"
    settings = settings_text(one.candidate.settings)
    return f"{score}  #{one.candidate.number} {one.candidate.technique}  {settings}".rstrip()


def failure_line(one: Evaluation) -> str:
    """Why a candidate failed, in a line."""
    settings = settings_text(one.candidate.settings, most=3)
    named = f"#{one.candidate.number} {one.candidate.technique} {settings}".rstrip()
    why = one.failure.strip().splitlines()
    return f"{named}: {why[0] if why else 'no reason is known'}"


def settings_text(settings: Mapping[str, Any], most: int = 6) -> str:
    """Settings as they are written: ``depth=3 rate=0.1``."""
    if "members" in settings:
        members = settings["members"]
        shown = ", ".join(f"#{number} {weight:.0%}" for number, weight in members[:most])
        more = len(members) - most
        return f"{shown}{f' and {more} more' if more > 0 else ''}"
    shown = " ".join(f"{name}={value_text(value)}" for name, value in [*settings.items()][:most])
    return f"{shown}{' …' if len(settings) > most else ''}"


def number_text(number: float, figures: int = 5) -> str:
    """A number with so many figures; large ones are written out: ``100190``, not ``1.0e+05``."""
    text = f"{number:.{figures}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(number) < 1e12 else text


def value_text(value: Any) -> str:
    """A setting's value, numbers with four figures."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(value_text, value))}]"
    return str(value)


def asked_lines(request: SearchRequest) -> list[str]:
    """What is searched where there is no table that could be told of."""
    if not request.script and request.domain != "function":
        return []
    words = " ".join((request.script, *request.script_args))
    lines = [f"  searched {words}" if request.script else "  searched a function"]
    for technique, settings in request.spaces.items():
        name = "" if request.script else f"{technique}."
        lines += [
            f"           {name}{it}: {space_text(values)}" for it, values in settings.items()
        ]
    return lines


def space_text(given: Any) -> str:
    """What a setting may be: ``0.001..1:log``, or values with commas between them."""
    if isinstance(given, Mapping):
        if "low" not in given:
            return space_text(given.get("values", ()))
        log = ":log" if given.get("log") else ""
        return f"{value_text(given['low'])}..{value_text(given.get('high'))}{log}"
    values = given if isinstance(given, list | tuple) else [given]
    return ", ".join(map(value_text, values))


def facts_lines(facts: TableFacts) -> list[str]:
    """What a table holds."""
    rows = f"{facts.num_rows:,}".replace(",", " ")
    used = f" of {facts.num_rows_in_file}" if 0 < facts.num_rows < facts.num_rows_in_file else ""
    kinds: Counter[str] = Counter(column.kind for column in facts.columns)
    many = {"number": "numbers", "category": "categories", "date": "dates", "text": "texts"}
    each = ", ".join(
        f"{kinds[kind]} {word if kinds[kind] > 1 else kind}"
        for kind, word in many.items()
        if kinds[kind]
    )
    sparse = ", sparse" if facts.is_sparse else ""
    lines = [
        f"  read     {facts.path}: {facts.format}, {rows} rows{used} × "
        f"{facts.num_columns} columns ({each}{sparse})"
    ]
    if told := [column for column in facts.columns if column.kind != "number"]:
        lines += [f"           {column_text(one)}" for one in told[:_MOST_NAMES]]
        if len(told) > _MOST_NAMES:
            lines.append(f"           … and {len(told) - _MOST_NAMES} more of these")
    if facts.target:
        lines.append(f"  foretold {facts.target}: {facts.domain}{_classes(facts)}")
    else:
        lines.append(f"  asked    {facts.domain}")
    by = [
        f"{word} by {name}" for word, name in (("grouped", facts.groups), ("ordered", facts.time))
    ]
    if chosen := [text for text, name in zip(by, (facts.groups, facts.time), strict=True) if name]:
        lines.append(f"           {', '.join(chosen)}")
    return lines


def column_text(column: SearchColumn) -> str:
    """A column that holds more than numbers, and why we think so."""
    told = f"{len(column.levels)} level"
    levels = f" of {told}s" if column.levels and not column.why.startswith(told) else ""
    missing = f", {column.num_missing} missing" if column.num_missing else ""
    why = f" ({column.why})" if column.why else ""
    return f"{column.name}: {column.kind}{levels}{missing}{why}"


def _classes(facts: TableFacts) -> str:
    if not facts.classes:
        return ""
    pairs = [
        f"{name} {count}" for name, count in zip(facts.classes, facts.class_counts, strict=True)
    ]
    more = len(pairs) - _MOST_NAMES
    shown = " · ".join(pairs[:_MOST_NAMES])
    return f", {len(pairs)} classes: {shown}{f' … and {more} more' if more > 0 else ''}"
