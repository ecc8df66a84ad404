"""Steps that are played: over the group that a strategy would have, with work for computing."""

import time
from types import SimpleNamespace

import pytest
import torch
from tests.patience import measured

from reparto.comm import CountingGroup, Meeting, ThreadGroup
from reparto.plan._candidates import candidates
from reparto.runtime import _rehearsal
from reparto.runtime._rehearsal import Stage, Work
from reparto.spec import Profile, SliceTime, StrategyConfig
from reparto.testing import run_members

PROFILE = Profile(num_parameters=300, gradient_bytes=1200, shapes=((10, 30),), batch_rows=32)


def slices(step_s=0.004, num_meetings=0.0):
    return [
        SliceTime(rows=rows, forward_s=step_s * rows / 32, backward_s=0.0, update_s=0.0,
                  cpu_s=step_s * rows / 32, apart=apart,
                  num_meetings=0.0 if apart else num_meetings)
        for apart in (True, False) for rows in (16, 32)
    ]  # fmt: skip


def owner(count=1):
    weights = [torch.zeros(10, 30, requires_grad=True) for _ in range(count)]
    return SimpleNamespace(
        name="owner", tensors=weights, optimizer=torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    )


def played(wanted, size=2, until_s=200.0, rate=None, **given):
    """What each member found."""
    meetings = [Meeting(size, timeout_s=60) for _ in range(2 + 2 * len(wanted))]

    def member(group):
        made = iter(meetings[1:])

        def fresh():
            given.setdefault("groups", []).append(
                CountingGroup(ThreadGroup(next(made), group.rank()))
            )
            return given["groups"][-1]

        stage = Stage(
            group,
            given["each"][group.rank()] if "each" in given else given.get("slices", slices()),
            PROFILE,
            [owner(given.get("tensors", 1))],
            rate,
            fresh,
        )
        return stage.play(wanted, time.perf_counter() + until_s)

    torch.set_num_threads(1)
    return run_members(
        size, lambda rank, size: CountingGroup(ThreadGroup(meetings[0], rank)), member
    )


def test_every_candidate_is_played_and_all_agree(monkeypatch):
    monkeypatch.setattr(_rehearsal, "LONGEST_S", 60.0)  # a busy machine takes long, too
    wanted = [one.strategy for one in candidates(relaxed=True)]
    first, *others = played(wanted)
    assert len(first) == len(wanted)
    assert all([(one.strategy, one.num_steps) for one in other] ==
               [(one.strategy, one.num_steps) for one in first] for other in others)  # fmt: skip
    assert all(one.num_steps >= 4 and one.num_workers == 2 for one in first)


def test_work_takes_the_processor_time_that_it_is_told_to():
    torch.set_num_threads(1)
    ratios = []
    for _ in range(5):
        work = Work()
        began = time.thread_time()
        work.do(0.05)
        ratios.append((time.thread_time() - began) / 0.05)
    assert 0.7 < sorted(ratios)[2] < 1.4


def test_what_lines_could_not_carry_in_a_moment_is_left_out():
    wanted = [StrategyConfig(kind="all-reduce"), StrategyConfig(kind="local-sgd")]
    told = played(wanted, rate=2000.0)[0]  # 1200 bytes take five seconds; a sixteenth a third
    assert [one.strategy.kind for one in told] == ["local-sgd"]


def test_nothing_is_played_when_time_is_up_or_somebody_knows_nothing():
    wanted = [StrategyConfig(kind="all-reduce")]
    assert played(wanted, until_s=-1.0) == [[], []]
    assert played(wanted, slices=[]) == [[], []]


def test_what_is_the_same_after_its_beginning_is_played_once():
    own = {"batch": "worker"}
    kinds = ("local-sgd", "post-local-sgd", "switch")
    wanted = [StrategyConfig(kind=kind, settings=own) for kind in kinds]
    wanted.append(StrategyConfig(kind="all-reduce", settings={**own, "average": 0}))
    told = {one.strategy.kind: one.step_s for one in played(wanted)[0]}
    assert told["post-local-sgd"] == told["local-sgd"]
    assert told["switch"] == told["all-reduce"] != told["local-sgd"]


def test_slices_in_proportion_are_not_the_same_as_equal_ones():
    own = {"batch": "worker"}
    wanted = [StrategyConfig(kind="all-reduce", settings={**own, "average": 0}),
              StrategyConfig(kind="switch", settings=own)]  # fmt: skip
    unlike = [slices(), slices(step_s=0.012)]
    told = {one.strategy.kind: one.step_s for one in played(wanted, each=unlike)[0]}
    assert told["switch"] != told["all-reduce"]


def test_a_server_that_does_not_wait_is_as_slow_as_its_slowest_worker():
    stale = StrategyConfig(kind="parameter-server", settings={"mode": "stale", "batch": "worker"})
    (told,) = played([stale], each=[slices(), slices(step_s=0.04)])[0]
    assert told.step_s > 0.035


def timed(monkeypatch, wanted, setup_s, step_s):
    """Steps and the part of the computing, each time that some are timed; on the first member."""
    calls = []

    def told(self, config, actors, steps, part):
        if self.group.rank() == 0:
            calls.append((steps, part > 0))
        return step_s if part else setup_s

    monkeypatch.setattr(Stage, "_timed", told)
    return calls, played(wanted)[0]


def test_whole_rounds_set_up_everything_before_any_is_timed(monkeypatch):
    overlapped = {"sync_every": 8, "overlap": 3, "keep": 1.0, "batch": "worker"}
    for settings, steps in (({"sync_every": 4}, 4), (overlapped, 16)):
        wanted = [StrategyConfig(kind="diloco", settings=settings)]
        calls, (told,) = timed(monkeypatch, wanted, setup_s=0.1, step_s=0.2)
        assert calls == [(steps, False), (told.num_steps, True)]
        assert told.step_s == 0.2


def test_steps_that_are_shorter_than_was_thought_are_timed_for_longer(monkeypatch):
    """Four steps of 50 ms on a host that is held up for 55 ms of each 100 tell little."""
    wanted = [StrategyConfig(kind="all-reduce")]
    calls, (told,) = timed(monkeypatch, wanted, setup_s=0.3, step_s=0.05)
    assert calls == [(1, False), (4, True), (told.num_steps, True)]
    assert told.num_steps * 0.05 > 0.5


def test_servers_that_do_not_wait_are_played_as_they_come_to_be_and_once():
    own = {"batch": "worker"}
    wanted = [StrategyConfig(kind="parameter-server", settings={"mode": mode, **own})
              for mode in ("stale", "async")]  # fmt: skip
    stale, free = played(wanted)[0]
    assert stale.step_s == free.step_s
    assert [one.strategy for one in (stale, free)] == wanted


def test_sharded_gathers_again_for_the_backward_pass_what_it_could_not_keep(monkeypatch):
    monkeypatch.setattr(_rehearsal, "ENOUGH", 0.0)  # nothing is timed twice

    def bytes_a_step(keep_bytes):
        settings = {"min_bytes": 0, "keep_bytes": keep_bytes}
        groups = []
        wanted = [StrategyConfig(kind="sharded", settings=settings)]
        (told,) = played(wanted, tensors=4, groups=groups)[0]
        return groups[0].wire_bytes / (told.num_steps + 1)  # the first one sets up everything

    # In and out again: of four tensors, all but the last one come twice.
    assert bytes_a_step(1) > 1.2 * bytes_a_step(2**20)


def test_a_part_of_long_computing_is_played_and_the_rest_added():
    wanted = [StrategyConfig(kind="local-sgd")]
    began = time.perf_counter()
    (told,) = played(wanted, slices=slices(step_s=2.0))[0]  # a second for half of the rows
    assert time.perf_counter() - began < told.num_steps * told.step_s
    assert 0.85 < told.step_s < 4.0


@pytest.mark.alone
@measured()
def test_meetings_are_played():
    wanted = [StrategyConfig(kind="all-reduce")]
    often = played(wanted, size=3, slices=slices(num_meetings=60.0))[0][0].step_s
    never = played(wanted, size=3, slices=slices())[0][0].step_s
    assert often > 1.2 * never
