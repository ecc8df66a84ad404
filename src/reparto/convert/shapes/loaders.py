"""DataLoaders are prepared where they are constructed, wherever that is."""

from __future__ import annotations

from reparto.convert.gather import Facts
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._names import target_name
from reparto.spec import Finding

ORDER = 10


def find(facts: Facts) -> Decision:
    """Wrap each construction of a loader in ``reparto.prepare``."""
    decision = Decision()
    for call in facts.calls:
        made = [
            value
            for value in facts.evaluate(call)
            if value.kind == "loader" and value.origin is call
        ]
        if not made:
            continue
        decision.edits.append(Wrap(call, "prepare"))
        decision.findings.append(
            Finding(
                kind="loader",
                name=target_name(facts, call) or made[0].name.rsplit(".", 1)[-1],
                detail=facts.source(call).snippet(call),
                place=facts.place(call),
                rewritten="prepared: yields this worker's slice of each global batch",
            )
        )
    return decision
