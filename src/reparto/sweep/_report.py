"""Writes what shows a comparison into a folder: a page, a picture, the numbers."""

from __future__ import annotations

import json
from pathlib import Path

from reparto._pages import require_matplotlib
from reparto.errors import UsageError
from reparto.spec import Comparison, finite, to_plain
from reparto.sweep import _plots
from reparto.sweep._page import page

PAGE, PICTURE, NUMBERS = "compare.html", "compare.png", "compare.json"


def prepare(folder: Path) -> None:
    """Make sure that a report can be drawn and written there, before anything is run.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        UsageError: If the folder cannot be made.
    """
    require_matplotlib()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", remedy="give another folder") from error


def write(comparison: Comparison, folder: Path) -> tuple[Path, ...]:
    """Write the page, the picture and the numbers.

    Returns:
        The files, the page first.
    """
    contents = {
        PAGE: page(comparison).encode(),
        PICTURE: _plots.png(comparison),
        NUMBERS: json.dumps(finite(to_plain(comparison)), indent=2).encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return tuple(folder / name for name in contents)
