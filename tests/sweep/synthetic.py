"""Comparisons that nobody has run."""

import math

from reparto.spec import ComparedRun, Comparison, Failure, RunResult, StrategyConfig, Waypoint


def run(label="all-reduce", *, step_s=0.01, step_bytes=1e6, num_steps=50, target=None, **changes):
    """A run whose loss falls from 2 by a tenth in each step."""
    curve = tuple(
        Waypoint(
            step=step,
            time_s=1.0 + step * step_s,
            samples=8 * step,
            loss=2 * 0.9**step,
            trend=2 * 0.9**step,
            wire_bytes=step * step_bytes,
            waited_s=step * step_s / 4,
        )
        for step in range(1, num_steps + 1)
    )
    reached = None
    if target is not None:
        reached = next((point for point in curve if point.trend <= target), None)
    kind, *_ = label.split()
    made = {
        "label": label,
        "strategy": StrategyConfig(kind=kind),
        "exact": kind in ("single", "all-reduce"),
        "result": RunResult(status="done", num_workers=1 if kind == "single" else 2),
        "curve": curve,
        "reached": reached,
    }
    return ComparedRun(**{**made, **changes})


def failed(label="gossip"):
    failure = Failure(rank=1, host="b", error="ValueError", message="<no> such thing")
    result = RunResult(status="failed", num_workers=2, failure=failure)
    return run(label, curve=(), result=result)


def diverged(label="diloco"):
    curve = tuple(
        Waypoint(step=step, time_s=step, samples=step, loss=math.inf, trend=math.nan)
        for step in (1, 2)
    )
    return run(label, curve=curve)


def comparison(*runs, **changes):
    made = {
        "script": "/there/train.py",
        "args": ("--name", "<script>"),
        "environment": {"hosts": "a & b"},
        "runs": runs
        or (run("single", step_bytes=0.0), run(), run("local-sgd sync_every=8", step_bytes=1e3)),
    }
    return Comparison(**{**made, **changes})
