"""``--json FILE``: the same for all commands."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reparto.errors import RepartoError, UsageError


@contextlib.contextmanager
def unless_empty(folder: Path) -> Iterator[None]:
    """Leave no empty folder behind that was not there before, where nothing came of it."""
    is_new = not folder.exists()
    try:
        yield
    except RepartoError:
        if is_new:
            with contextlib.suppress(OSError):  # something was written, or nothing was made
                folder.rmdir()
        raise


def write_json(target: str | None, document: Any) -> None:
    """Write a document as JSON.

    Args:
        target: A file; ``-`` for standard output; None for nowhere.
        document: Plain data.

    Raises:
        UsageError: If the file cannot be written.
    """
    if target is None:
        return
    text = json.dumps(document, indent=2, default=str) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--json {target}: {error.strerror}") from error
