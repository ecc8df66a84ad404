"""Who tells of a host's usage, and when."""

import contextlib
import os
import time

import pytest

from reparto.runtime._events import EventWriter
from reparto.runtime._usage import usage_told
from reparto.spec import Assignment, Options, Plan, Program, StrategyConfig, Usage, decode

PLAN = Plan(
    strategy=StrategyConfig(kind="all-reduce"),
    num_workers=3,
    placement=("left", "left", "right"),
)


def told(rank, every_s, script=lambda: None):
    """What a worker of three, on two hosts, has told by the time that its script has ended."""
    assignment = Assignment(
        program=Program(script="train.py"), plan=PLAN, options=Options(usage_every_s=every_s)
    )
    reader, writer = os.pipe()
    with contextlib.suppress(SystemExit), usage_told(EventWriter(writer), assignment, rank):
        script()
    os.close(writer)
    with os.fdopen(reader, "rb") as lines:
        return [decode(rank, line) for line in lines]


@pytest.mark.parametrize(("rank", "hosts"), [(0, ["left"]), (1, []), (2, ["right"])])
def test_first_worker_of_each_host_tells(rank, hosts):
    events = told(rank, 100.0)  # once, at the end
    assert [event.host for event in events] == hosts
    assert all(isinstance(event, Usage) and event.rank == rank for event in events)


def test_nobody_tells_unless_asked():
    assert [told(rank, 0.0) for rank in range(3)] == [[], [], []]


def test_what_was_used_until_the_script_left_is_told():
    def leave():
        raise SystemExit(3)

    assert len(told(0, 100.0, leave)) == 1


def test_time_goes_on_from_sample_to_sample():
    def work():
        until_s = time.process_time() + 0.2
        while time.process_time() < until_s:
            pass

    times = [event.sample.time_s for event in told(0, 0.01, work)]
    assert len(times) > 2
    assert times == sorted(set(times))
