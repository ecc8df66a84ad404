"""Store: the rows of an evaluation in a folder, kept as they are made.

    OUT/rows.jsonl         {"key": …, "environment": …, "row": …}, one a line, appended
    OUT/environment.json   where they were made

A line that was broken off in the middle is dropped; of two rows of one cell the later one counts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reparto.bench._worker import row_of
from reparto.errors import UsageError
from reparto.spec import Measurement, finite

ROWS, ENVIRONMENT = "rows.jsonl", "environment.json"
#: What may differ without being another environment: it is measured anew each time.
_VOLATILE = ("peaks", "steps")


class Store:
    """Rows by the key of their cell.

    Args:
        folder: Where they are kept; made if it is not there.

    Raises:
        UsageError: If nothing can be written there.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ROWS
        self._told = folder / ENVIRONMENT
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._path.touch()
        except OSError as error:
            raise UsageError(f"--out {folder}: {error.strerror}") from error
        self._rows: dict[str, tuple[Measurement, str]] = {}
        self._read()

    def row(self, key: str) -> Measurement | None:
        """The row of a cell, unless it failed or was never made."""
        row = self.latest(key)
        return row if row is not None and not row.failure else None

    def latest(self, key: str) -> Measurement | None:
        """The row of a cell, a failed one too."""
        return self._rows[key][0] if key in self._rows else None

    def add(self, key: str, row: Measurement, environment: Mapping[str, Any]) -> None:
        """Keep a row."""
        mark = digest_of(environment)
        self._rows[key] = (row, mark)
        plain = finite(dataclasses.asdict(row))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "environment": mark, "row": plain}) + "\n")

    def of_elsewhere(self, environment: Mapping[str, Any]) -> int:
        """How many rows were made in another environment."""
        mark = digest_of(environment)
        return sum(one != mark for _, one in self._rows.values())

    def environment(self) -> dict[str, Any]:
        """That of the call before; empty if there was none."""
        try:
            found = json.loads(self._told.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def keep_environment(self, environment: Mapping[str, Any]) -> None:
        """Write it beside the rows."""
        self._told.write_text(json.dumps(environment, indent=2) + "\n", encoding="utf-8")

    def _read(self) -> None:
        text = self._path.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            try:
                found = json.loads(line)
                row = row_of(found["row"])
                self._rows[str(found["key"])] = (row, str(found["environment"]))
            except (ValueError, TypeError, KeyError):  # broken off, or of another version
                continue
        if text and not text.endswith("\n"):
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n")


def digest_of(environment: Mapping[str, Any]) -> str:
    """A short name for an environment."""
    lasting = {key: value for key, value in environment.items() if key not in _VOLATILE}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:12]


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """In words, what is otherwise than it was."""
    return tuple(
        f"{key}: {before.get(key, 'none')} before, {now.get(key, 'none')} now"
        for key in sorted({*before, *now} - set(_VOLATILE))
        if before.get(key) != now.get(key)
    )
