"""Writing a search's folder: search.json, report.html, report.md, leaderboard.csv."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from reparto.errors import UsageError
from reparto.search._evidence import Evidence
from reparto.search._report._leaderboard import as_csv
from reparto.search._report._markdown import markdown
from reparto.search._report._page import page
from reparto.search._report._proof import proof_of
from reparto.spec import SearchResult, finite, to_plain


def write_report(result: SearchResult, evidence: Evidence, folder: Path) -> None:
    """Write all that there is to read of a search; each file is there whole, or not at all.

    Args:
        result: What was found.
        evidence: What the best answered.
        folder: Of the search.

    Raises:
        UsageError: If nothing can be written there.
    """
    proof = proof_of(evidence, result.facts, result.num_folds)
    _put(folder / "search.json", as_json(result))  # first: it holds everything
    _put(folder / "leaderboard.csv", as_csv(result))
    _put(folder / "report.md", markdown(result, proof, folder))
    _put(folder / "report.html", page(result, proof, folder))


def as_json(result: SearchResult) -> str:
    """The whole result as JSON, which knows no infinity and no NaN: these become null."""
    plain = finite(to_plain(result))
    return json.dumps(plain, allow_nan=False, default=_scalar) + "\n"


def _scalar(value: Any) -> Any:
    """Numbers of numpy as Python's; whatever else a setting may be, as text."""
    return finite(value.item()) if hasattr(value, "item") else str(value)


def _put(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(fresh, path)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", remedy="make room there, or give another folder: --out"
        ) from error
