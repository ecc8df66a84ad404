"""A lab sweep as a table, and in words."""

from __future__ import annotations

from reparto.lab import rate_text
from reparto.spec import LabCell, LabSweep
from reparto.sweep._table import NONE, seconds, share, size


def lab_header(sweep: LabSweep) -> tuple[str, ...]:
    """What stands above the columns of `lab_rows`."""
    time = "time to target" if sweep.target is not None else "time"
    return (
        *("nodes", "rate", "strategy", "exact", time, "speed-up"),
        *("steps", "loss", "sent", "waiting", "ended"),
    )


def lab_rows(sweep: LabSweep) -> list[tuple[str, ...]]:
    """One row a cell."""
    return [_row(sweep, cell) for cell in sweep.cells]


def lab_in_words(sweep: LabSweep) -> list[str]:
    """Where sharing out begins to pay, a sentence a strategy."""
    told = []
    for label in sweep.labels:
        parts = []
        for rate in sweep.rates:
            gains = {
                nodes: gain
                for nodes in sweep.sizes
                if nodes > 1 and (gain := sweep.speed_up(nodes, rate, label)) is not None
            }
            paying = [nodes for nodes, gain in gains.items() if gain > 1]
            name = "without a limit" if rate is None else f"at {rate_text(rate)}"
            if paying:
                best = max(gains, key=lambda nodes: gains[nodes])
                is_on = all(nodes in paying for nodes in gains if nodes > paying[0])
                where = (
                    f"from {paying[0]} nodes on"
                    if is_on and len(paying) > 1
                    else f"with {' and '.join(map(str, paying))} nodes"
                )
                parts.append(f"{name} it pays {where} ({gains[best]:.2f}× with {best})")
            elif gains:
                parts.append(f"{name} it does not pay")
            else:
                parts.append(f"{name} nothing got there")
        if sweep.seconds(1, None, label) is None:
            parts = ["one node did not get there, so there is nothing to hold it against"]
        told.append(f"{label}: {'; '.join(parts)}.")
    return told


def _row(sweep: LabSweep, cell: LabCell) -> tuple[str, ...]:
    run = cell.run
    found = cell.seconds(sweep.target)
    gain = sweep.speed_up(cell.nodes, cell.rate_bits_per_s, cell.label)
    last = run.reached or run.last
    return (
        str(cell.nodes),
        NONE if cell.nodes == 1 else rate_text(cell.rate_bits_per_s),
        cell.label,
        "exact" if run.exact else "relaxed",
        NONE if found is None else seconds(found),
        NONE if gain is None else f"{gain:.2f}×",
        NONE if last is None else str(last.step),
        NONE if last is None or last.trend is None else f"{last.trend:.4g}",
        NONE if last is None else size(last.wire_bytes),
        NONE if last is None else share(run.waiting_s, run.training_s),
        _ended(cell),
    )


def _ended(cell: LabCell) -> str:
    if cell.is_late:
        return "too late"
    return {"done": "done", "reached": "reached", "failed": "failed", "stopped": "stopped"}[
        cell.run.status
    ]
