"""How steps are captured on a device, before anything of it is imported."""

from __future__ import annotations

import os


def capture_on(device: str) -> str:
    """``graph`` on a GPU, ``no`` on a CPU; tests set REPARTO_CAPTURE=repeat."""
    return os.environ.get("REPARTO_CAPTURE", "graph" if device == "cuda" else "no")


def has_engine(device: str) -> bool:
    """Whether steps are recorded and played there."""
    return capture_on(device) != "no"
