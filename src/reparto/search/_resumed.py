"""What of a request counts when a search is gone on with, and what must not be another."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from reparto.errors import UsageError
from reparto.spec import SearchRequest


def check_same(kept: SearchRequest, given: SearchRequest, folder: Path) -> None:
    """Whoever names other data than those of the folder does not mean its search.

    Raises:
        UsageError: If data or a script are named, and the search is of others.
    """
    for name in ("data", "script"):
        own, asked = (getattr(one, name) for one in (kept, given))
        if asked and not _is_same_place(own, asked):
            what = own or kept.script or kept.data or "no data"
            raise UsageError(
                f"{folder} holds a search of {what}, and {asked} is named",
                remedy=f"leave {asked} out to go on, or leave --resume out to search it anew "
                "(--out FOLDER names another folder)",
            )


def _is_same_place(one: str, other: str) -> bool:
    if "://" in one or "://" in other:
        return one == other
    return bool(one) and os.path.realpath(one) == os.path.realpath(other)


def with_limits(kept: SearchRequest, given: SearchRequest) -> SearchRequest:
    """The request of a search that is gone on with, with the limits that are given now."""
    names = ("time_s", "trials", "cost", "max_workers", "candidate_s", "memory_bytes", "address")
    changes: dict[str, Any] = {
        name: value for name in names if (value := getattr(given, name)) not in (None, "")
    }
    if given.price_per_hour:
        changes["price_per_hour"] = given.price_per_hour
    return dataclasses.replace(kept, **changes)
