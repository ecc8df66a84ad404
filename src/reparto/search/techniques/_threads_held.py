"""Numeric libraries take all cores unless they are told not to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: To look which libraries are loaded takes 10 ms, so it is done when there may be new ones.
_known: list[tuple[int, Any]] = []


@contextmanager
def held_to(threads: int) -> Iterator[None]:
    """Let BLAS and OpenMP use so many threads, and no more."""
    import threadpoolctl

    if not _known or _known[0][0] != len(sys.modules):
        _known[:] = [(len(sys.modules), threadpoolctl.ThreadpoolController())]
    with _known[0][1].limit(limits=threads):
        yield
