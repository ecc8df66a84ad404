"""``--json FILE``: the same for all commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from reparto.errors import UsageError


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
