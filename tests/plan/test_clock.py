"""Steps are timed in whole rounds: a fast worker waits once a round."""

from __future__ import annotations

import pytest

from reparto._planning import _Clock, _steps_a_round
from reparto.spec import Step, StepRecord, StrategyConfig


def told(clock: _Clock, steps: list[int]) -> None:
    """Rounds of four: three steps of a second, and one that waits for three more."""
    for step in steps:
        time_s = step + 3.0 * (step // 4)
        clock.event(Step(rank=0, record=StepRecord(step=step, time_s=time_s, samples=1)))


@pytest.mark.parametrize("steps", [[3, 5, 9, 11], [4, 6, 7, 10], [2, 4, 12, 15]])
def test_the_wait_of_a_round_is_counted_once_a_round(steps: list[int]) -> None:
    clock = _Clock(4, 0)
    told(clock, steps)
    assert clock.step_s == pytest.approx(7 / 4)


def test_where_no_two_steps_are_whole_rounds_apart_all_of_them_count() -> None:
    clock = _Clock(4, 0)
    told(clock, [4, 5, 6])
    assert clock.num_steps == 2


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [("local-sgd", {}, 16), ("local-sgd", {"sync_every": 2}, 2), ("post-local-sgd", {}, 16),
     ("all-reduce", {}, 1)],
)  # fmt: skip
def test_a_round_has_as_many_steps_as_the_strategy_takes_by_itself(
    kind: str, settings: dict[str, int], expected: int
) -> None:
    assert _steps_a_round(StrategyConfig(kind=kind, settings=settings)) == expected
