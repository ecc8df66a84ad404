"""What a strategy itself computes in a step: packing, compressing, adding. Pure."""

from __future__ import annotations

from reparto.spec import LocalCost, StrategyConfig, Survey


def packing_s(
    survey: Survey, strategy: StrategyConfig, num_workers: int, share: float = 1.0
) -> float:
    """What the strategy itself computes in a step.

    That of the slowest worker, but for one in four: someone is always disturbed. A worker that
    gets a share of a core, `share`, is told by its processor time: packing is short, and by the
    clock it takes as long as on a whole core, or twice as long as it will in the long run,
    depending on when in its period it was timed.
    """
    nearest = _nearest(survey, strategy, num_workers)
    if survey.device == "cpu" and share < 1.0 and all(one.cpu_s for one in nearest):
        found = sorted(one.cpu_s / share for one in nearest)
    else:
        found = sorted(one.step_s for one in nearest)
    return found[-1 - len(found) // 4] if found else 0.0


def aside_cpu_s(survey: Survey, strategy: StrategyConfig, num_workers: int) -> float:
    """Processor time of what the strategy packs in a step while the script computes."""
    found = sorted(one.aside_s for one in _nearest(survey, strategy, num_workers))
    return found[-1 - len(found) // 4] if found else 0.0


def _nearest(survey: Survey, strategy: StrategyConfig, num_workers: int) -> list[LocalCost]:
    known = [one for one in survey.costs if one.strategy == strategy]
    counts = [one.num_workers for one in known]
    nearest = min(counts, key=lambda count: abs(count - num_workers), default=0)
    return [one for one in known if one.num_workers == nearest]
