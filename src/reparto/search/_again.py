"""Again: a request with exactly the candidates that were found, and the command that runs it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reparto.spec import Evaluation, SearchRequest, finite, to_plain


def write_again(
    request: SearchRequest, evaluations: Sequence[Evaluation], best: int | None, folder: Path
) -> str:
    """Write ``again.json``.

    Args:
        request: What was asked.
        evaluations: All candidates.
        best: The number of the best one; None if there is none.
        folder: Of the search.

    Returns:
        The command that repeats what was found; empty if nothing was.
    """
    by_number = {one.candidate.number: one.candidate for one in evaluations}
    chosen = by_number.get(-1 if best is None else best)
    if chosen is None:
        return ""
    members = chosen.settings.get("members") if chosen.origin == "ensemble" else None
    numbers = [int(it) for it, _ in members] if members else [chosen.number]
    again = dataclasses.replace(
        anchored(request),
        candidates=tuple(by_number[number] for number in sorted(numbers)),
        techniques=(),
        spaces={} if not request.script else request.spaces,
        time_s=None,
        trials=None,
        cost=None,
        ensemble=bool(members),
        storage="",
        notes=(),
    )
    path = folder / "again.json"
    path.write_text(json.dumps(finite(to_plain(again)), indent=1) + "\n", encoding="utf-8")
    out = os.path.relpath(folder) + "-again"
    return shlex.join(["reparto", "search", os.path.relpath(path), "--out", out])


def anchored(request: SearchRequest) -> SearchRequest:
    """The same, wherever it is asked from."""
    paths: dict[str, Any] = {
        name: os.path.abspath(value)
        for name in ("data", "test", "script")
        if (value := getattr(request, name)) and "://" not in value
    }
    return dataclasses.replace(request, **paths)
