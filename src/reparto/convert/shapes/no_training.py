"""A script without a training loop has nothing to share out."""

from __future__ import annotations

from reparto.convert.gather import Facts
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._codes import diagnostic

ORDER = 99


def find(facts: Facts) -> Decision:
    """Refuse where no loop trains."""
    if facts.training:
        return Decision()
    script = facts.sources[0]
    return Decision(diagnostics=[diagnostic("C201", script.place(script.tree))])
