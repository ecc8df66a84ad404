"""Steps are timed in whole rounds: a fast worker waits once a round."""

from __future__ import annotations

import pytest

from reparto._planning import _steps_a_round, is_apart_in_time
from reparto._trial_clock import Clock
from reparto.spec import Step, StepRecord, StrategyConfig


def told(clock: Clock, steps: list[int]) -> None:
    """Rounds of four: three steps of a second, and one that waits for three more."""
    for step in steps:
        time_s = step + 3.0 * (step // 4)
        clock.event(Step(rank=0, record=StepRecord(step=step, time_s=time_s, samples=1)))


@pytest.mark.parametrize("steps", [[3, 5, 9, 11], [4, 6, 7, 10], [2, 4, 12, 15]])
def test_the_wait_of_a_round_is_counted_once_a_round(steps: list[int]) -> None:
    clock = Clock(4, 0)
    told(clock, steps)
    assert clock.step_s == pytest.approx(7 / 4)


def test_where_no_two_steps_are_whole_rounds_apart_all_of_them_count() -> None:
    clock = Clock(4, 0)
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


def test_a_step_is_over_when_the_last_worker_has_made_it_where_nobody_waits() -> None:
    clock = Clock(1, 17)
    # Of a stale server on two equal hosts: the first worker was hardly faster than the other, and
    # not yet as far ahead as it may be. Not every step is told.
    for rank, pace_s, told in ((0, 0.4734, range(15, 31)), (1, 0.5266, (18, 21, 24, 29))):
        for step in told:
            record = StepRecord(step=step, time_s=step * pace_s, samples=1)
            clock.event(Step(rank=rank, record=record))
    assert clock.step_s == pytest.approx(0.5266)
    assert clock.num_steps == 29 - 18


def test_who_is_ahead_by_turns_does_not_make_steps_longer() -> None:
    clock = Clock(1, 0)
    for rank, late_s in ((0, (0.0, 1.0)), (1, (1.0, 0.0))):  # each loses a second once
        for step, late in zip((10, 20), late_s, strict=True):
            record = StepRecord(step=step, time_s=step + late, samples=1)
            clock.event(Step(rank=rank, record=record))
    assert clock.step_s == pytest.approx(1.0)


def test_all_workers_tell_their_steps_only_where_some_may_be_ahead() -> None:
    stale = StrategyConfig(kind="parameter-server", settings={"mode": "stale"})
    assert is_apart_in_time(stale)
    assert is_apart_in_time(StrategyConfig(kind="gossip"))
    assert not is_apart_in_time(StrategyConfig(kind="parameter-server"))
    assert not is_apart_in_time(StrategyConfig(kind="local-sgd"))
