"""Strategies simulated step by step, on recorded and on imagined hosts."""

import time
from dataclasses import replace

import numpy as np
import pytest

from reparto.errors import UsageError
from reparto.plan import imagine
from reparto.plan._candidates import EXACT, candidates
from reparto.plan._clocks import Clocks, Talk, Work
from reparto.plan._noise import Noise, Trouble
from reparto.plan._queue import Service, serve
from reparto.plan.costs import predict
from reparto.plan.simulate import MILESTONES, simulate
from reparto.spec import LocalCost, Rehearsal, StrategyConfig
from tests.patience import quickest
from tests.plan.recorded import recorded

CANDIDATES = {one.label: one.strategy for one in candidates(relaxed=True)}
ALL_REDUCE = CANDIDATES["all-reduce, a batch each"]
ASYNC, STALE = CANDIDATES["server, async"], CANDIDATES["server, stale"]
QUIET = {"jitter": 0.0}


def there(name="captioning-100mbit", changes="", steps=480, count=4):
    """A recorded survey, perhaps of other hosts, of a script of so many steps of each worker."""
    survey = recorded(name)
    survey = imagine(survey, changes) if changes else survey
    return replace(survey, num_steps=steps * count)


def total_s(strategy, count=16, steps=160, *, changes="hosts=16,rate=1gbit", **trouble):
    return simulate(there(changes=changes), strategy, count, steps, **trouble).total_s


# Without trouble


@pytest.mark.parametrize(
    ("name", "changes", "count"),
    [
        ("digits", "", 4),
        ("digits", "", 2),
        ("captioning-100mbit", "", 4),
        ("captioning-100mbit", "hosts=16,rate=1gbit,latency=1ms", 16),
        ("digits", "hosts=100,rate=10gbit", 100),
    ],
)
@pytest.mark.parametrize("label", CANDIDATES)
def test_without_trouble_a_simulation_agrees_with_the_prediction(name, changes, count, label):
    survey = there(name, changes, 480, count)
    expected = predict(survey, CANDIDATES[label], count)
    found = simulate(survey, CANDIDATES[label], count, 480, **QUIET)
    assert found.mean_s == pytest.approx(expected.step_s, rel=0.01)
    assert found.speed_up == pytest.approx(expected.speed_up, rel=0.01)
    assert found.script_s == pytest.approx(expected.total_s, rel=0.01)
    assert found.wire_bytes == expected.wire_bytes


@pytest.mark.parametrize("label", CANDIDATES)
def test_packing_in_a_share_of_a_core_and_aside_is_simulated_as_it_is_predicted(label):
    survey, strategy = there(count=4, steps=480), CANDIDATES[label]
    halves = tuple(
        replace(one, slices=tuple(replace(s, cpu_s=s.step_s / 2) for s in one.slices))
        for one in survey.workers
    )
    aside_s = 0.003 if strategy.settings.get("overlap") else 0.0
    cost = LocalCost(strategy=strategy, num_workers=4, step_s=0.0, cpu_s=0.004, aside_s=aside_s)
    survey = replace(survey, workers=halves, costs=(cost,))
    expected = predict(survey, strategy, 4)
    assert expected.pack_s == pytest.approx(0.008)
    found = simulate(survey, strategy, 4, 480, **QUIET)
    assert found.mean_s == pytest.approx(expected.step_s, rel=0.01)


def test_computing_takes_as_much_longer_as_it_did_where_others_were_played():
    survey = replace(imagine(there(), "rate=10gbit,latency=10us"), costs=())
    one, other = CANDIDATES["local-sgd"], CANDIDATES["diloco, rounds of 4"]
    parts = predict(survey, one, 4)
    played = Rehearsal(
        strategy=one, num_workers=4, step_s=1.4 * parts.compute_s + parts.exchange_s, num_steps=9
    )
    heard = replace(survey, rehearsals=(played,))
    plain, longer = (simulate(there, other, 4, 480, **QUIET).mean_s for there in (survey, heard))
    assert longer - plain == pytest.approx(0.4 * parts.compute_s, rel=0.01)
    assert longer == pytest.approx(predict(heard, other, 4).step_s, rel=0.01)


@pytest.mark.parametrize("label", CANDIDATES)
def test_a_faster_network_is_never_slower(label):
    taken = [
        total_s(CANDIDATES[label], 16, 48, changes=f"hosts=16,rate={rate}")
        for rate in ("10mbit", "100mbit", "1gbit", "10gbit", "none")
    ]
    assert taken == sorted(taken, reverse=True)


@pytest.mark.parametrize("label", CANDIDATES)
def test_shares_add_up_and_the_curve_ends_with_the_run(label):
    trouble = {"stragglers": 0.1, "failures_per_hour": 4.0, "checkpoint_every": 10}
    found = simulate(there(changes="hosts=8,rate=1gbit"), CANDIDATES[label], 8, 250, **trouble)
    parts = (found.computing, found.packing, found.talking, found.waiting, found.down)
    assert sum(parts) == pytest.approx(1.0)
    assert min(parts) >= 0
    assert len(found.curve) == MILESTONES
    times = [one.time_s for one in found.curve]
    assert times == sorted(times)
    assert found.curve[-1].step == 250
    assert found.curve[-1].time_s == pytest.approx(found.total_s)
    assert found.median_s <= found.p95_s <= found.longest_s


@pytest.mark.parametrize("label", CANDIDATES)
def test_the_same_seed_gives_the_same_simulation_and_another_one_another(label):
    trouble = {"stragglers": 0.1, "failures_per_hour": 4.0, "checkpoint_every": 10}

    def once(seed):
        survey = there(changes="hosts=8,rate=1gbit")
        return simulate(survey, CANDIDATES[label], 8, 64, seed=seed, **trouble)

    assert once(1) == once(1)
    assert once(1).total_s != once(2).total_s


# Clocks


def clocks(*talks, compute=(1.0, 1.0), pack_s=0.0, **more):
    return Clocks(Work(compute_s=np.array(compute), pack_s=pack_s, talks=talks, **more))


def after(made, steps, factors=1.0):
    for number in range(steps):
        made.step(number, np.broadcast_to(factors, made.at.shape))
    return made.at.tolist()


def test_buckets_are_sent_while_the_backward_pass_goes_on():
    def buckets(seconds):
        return [
            Talk(pattern="all-reduce", seconds=seconds, ready_at=at, window=1 - at)
            for at in (0.5, 1.0)
        ]

    assert after(clocks(*buckets(0.3)), 1) == pytest.approx([1.3, 1.3])
    assert after(clocks(*buckets(0.8)), 1) == pytest.approx([2.1, 2.1])


def test_what_is_waited_for_within_a_step_hides_nothing():
    talks = [Talk(pattern="gather", seconds=0.3, ready_at=at) for at in (0.0, 0.5, 0.5, 1.0)]
    assert after(clocks(*talks), 1) == pytest.approx([2.2, 2.2])
    uneven = clocks(*talks, compute=(1.0, 2.0))
    assert after(uneven, 1) == pytest.approx([3.2, 3.2])
    assert uneven.spent.waiting == pytest.approx(1.0)
    assert uneven.spent.talking == pytest.approx(2.4)


def test_all_wait_for_the_slowest_in_each_step():
    talk = Talk(pattern="all-reduce", seconds=0.5)
    made = clocks(talk, compute=(1.0, 3.0))
    assert after(made, 2) == pytest.approx([7.0, 7.0])
    assert made.spent.waiting == pytest.approx(4.0)
    assert made.spent.talking == pytest.approx(2.0)


def test_between_rounds_workers_run_apart():
    talk = Talk(pattern="all-reduce", seconds=0.5, every=4)
    assert after(clocks(talk, compute=(1.0, 3.0)), 3) == pytest.approx([3.0, 9.0])
    assert after(clocks(talk, compute=(1.0, 3.0)), 4) == pytest.approx([12.5, 12.5])


def test_rounds_give_workers_that_are_slow_in_turn_time_to_catch_up():
    talk = Talk(pattern="all-reduce", seconds=0.0, every=2)
    made = clocks(talk)
    made.step(0, np.array([1.0, 3.0]))
    made.step(1, np.array([3.0, 1.0]))
    assert made.at.tolist() == pytest.approx([4.0, 4.0])
    assert made.spent.waiting == 0.0


def test_a_round_that_may_travel_is_waited_for_only_if_it_is_late():
    quick = Talk(pattern="all-reduce", seconds=1.5, every=4, window=2)
    assert after(clocks(quick), 8) == pytest.approx([8.0, 8.0])
    slow = Talk(pattern="all-reduce", seconds=2.5, every=4, window=2)
    assert after(clocks(slow), 8) == pytest.approx([8.5, 8.5])


def test_a_server_takes_early_gradients_while_late_ones_are_computed():
    push = Talk(pattern="push", seconds=0.4)
    assert after(clocks(push, compute=(1.0,) * 4), 1)[0] == pytest.approx(1.4)
    assert after(clocks(push, compute=(1.0, 1.0, 1.0, 2.0)), 1)[0] == pytest.approx(2.1)


def test_gossip_waits_for_neighbours_only():
    swap = Talk(pattern="swap", seconds=0.0)
    ring = clocks(swap, compute=(5.0, *(1.0,) * 7), gossips=True, distances=(1,))
    assert after(ring, 1) == pytest.approx([5, 5, 1, 1, 1, 1, 1, 5])
    assert after(ring, 1) == pytest.approx([10, 10, 6, 2, 2, 2, 6, 10])


def test_pairs_that_are_drawn_wait_for_each_other():
    swap = Talk(pattern="swap", seconds=0.0)
    made = clocks(swap, compute=(5.0, *(1.0,) * 6), gossips=True)
    assert sorted(after(made, 1)) in ([1, 1, 1, 1, 1, 5, 5], [1, 1, 1, 1, 1, 1, 5])


# The server that does not wait


def served(compute, steps, *, line_s=0.1, way_s=0.0, bound=1000, **trouble):
    noise = Noise(Trouble(jitter=0.0, **trouble), len(compute))
    service = Service(
        compute_s=np.array(compute), pack_s=0.0, line_s=line_s, way_s=way_s, bound=bound,
        restart_s=trouble.get("restart_s", 0.0),
    )  # fmt: skip
    return serve(service, noise, steps)


def test_a_servers_line_serves_one_after_the_other():
    assert served([1.0] * 4, 3).ends == pytest.approx([1.4, 2.5, 3.6])  # they come in turn now
    assert served([1.0] * 20, 3).ends == pytest.approx([3.0, 5.0, 7.0])  # it has no pause


def test_fast_workers_make_the_steps_that_slow_ones_do_not():
    assert served([1.0, 3.0], 30, line_s=0.0).ends[-1] == pytest.approx(45.0)


def test_who_is_too_far_ahead_is_held_back():
    assert served([1.0, 3.0], 30, line_s=0.0, bound=2).ends[-1] == pytest.approx(87.0)
    assert served([1.0, 3.0], 30, line_s=0.0, bound=0).ends[-1] == pytest.approx(90.0)


# Trouble


def test_jitter_leaves_the_mean_as_it_is():
    block = np.concatenate([Noise(Trouble(jitter=0.3, seed=s), 100).block() for s in range(20)])
    assert block.mean() == pytest.approx(1.0, rel=0.01)
    assert block.std() == pytest.approx(0.3, rel=0.1)


def test_as_many_crawl_as_was_said_each_for_a_while():
    noise = Noise(Trouble(jitter=0.0, stragglers=0.1, slowdown=3.0), 400)
    factors = np.concatenate([noise.block() for _ in range(20)])
    assert set(np.unique(factors)) == {1.0, 3.0}
    slow = factors > 1
    assert slow.mean() == pytest.approx(0.1, rel=0.25)
    begins = (slow[1:] & ~slow[:-1]).sum()
    assert slow[1:].sum() / begins == pytest.approx(50, rel=0.25)


def test_stragglers_hurt_those_who_wait_more_than_those_who_do_not():
    def longer(strategy):
        slow = total_s(strategy, stragglers=0.05, changes="hosts=16,rate=none", steps=400)
        return slow / total_s(strategy, changes="hosts=16,rate=none", steps=400)

    assert longer(ALL_REDUCE) > 1.5
    assert longer(ASYNC) < 1.3


def test_more_stragglers_never_help():
    for strategy in (ALL_REDUCE, ASYNC, STALE, CANDIDATES["local-sgd"], CANDIDATES["gossip"]):
        taken = [total_s(strategy, stragglers=share, steps=300) for share in (0.0, 0.05, 0.3)]
        assert taken == sorted(taken)


def test_rounds_lose_less_to_jitter_than_steps():
    def longer(strategy):
        noisy = total_s(strategy, changes="hosts=16,rate=none", jitter=0.3)
        return noisy / total_s(strategy, changes="hosts=16,rate=none", jitter=0.0)

    assert 1 < longer(CANDIDATES["local-sgd"]) < 0.8 * longer(ALL_REDUCE)


def test_a_failure_costs_the_restart_and_the_steps_since_the_checkpoint():
    found = simulate(
        there(), ALL_REDUCE, 4, 400, **QUIET, failures_per_hour=60.0, restart_s=7.0,
        checkpoint_every=20,
    )  # fmt: skip
    step_s = predict(there(), ALL_REDUCE, 4).step_s
    assert found.num_failures > 2
    assert 0 < found.steps_lost <= 20 * found.num_failures
    least = (400 + found.steps_lost - found.num_failures) * step_s + 7.0 * found.num_failures
    assert least <= found.total_s * (1 + 1e-9) <= least + found.num_failures * step_s
    assert found.down > 0


def test_fewer_checkpoints_lose_more():
    lost = [
        simulate(
            there(), ALL_REDUCE, 4, 400, failures_per_hour=60.0, checkpoint_every=every
        ).steps_lost
        for every in (5, 50)
    ]
    assert lost[0] < lost[1]


def test_a_failure_stops_those_who_wait_and_not_those_who_do_not():
    trouble = {"failures_per_hour": 30.0, "restart_s": 5.0, "steps": 400}
    together = total_s(ALL_REDUCE, **trouble) / total_s(ALL_REDUCE, steps=400)
    apart = total_s(ASYNC, **trouble) / total_s(ASYNC, steps=400)
    assert together > 1.5
    assert apart < 1.2


@pytest.mark.parametrize("strategy", [ALL_REDUCE, ASYNC])
def test_workers_that_fail_all_the_time_never_come_to_an_end(strategy):
    found = simulate(there(), strategy, 4, 100, failures_per_hour=1e6, restart_s=1.0)
    assert not found.is_finished
    assert found.mean_s == float("inf")
    assert found.steps_lost > 100


# What cannot be


@pytest.mark.parametrize(
    "wrong",
    [
        {"stragglers": 1.0},
        {"stragglers": -0.1},
        {"straggler_slowdown": 0.5},
        {"jitter": -1.0},
        {"failures_per_hour": float("nan")},
        {"restart_s": -1.0},
        {"checkpoint_every": 0},
        {"seed": -1},
        {"steps": 0},
        {"num_workers": 1},
    ],
)
def test_what_is_out_of_range_is_told_by_name(wrong):
    asked = {"num_workers": 4, "steps": 10, **wrong}
    with pytest.raises(UsageError) as error:
        simulate(there(), ALL_REDUCE, **asked)
    assert next(iter(wrong)) in error.value.message
    assert error.value.remedy


def test_a_strategy_that_does_not_suit_so_many_workers_is_refused():
    uneven = StrategyConfig(kind="all-reduce", settings={"balance": "2:1"})
    with pytest.raises(UsageError, match="weighs 2 workers"):
        simulate(there(), uneven, 4, 10)


def test_a_survey_of_one_worker_is_refused():
    with pytest.raises(UsageError, match="one worker"):
        simulate(replace(there(), workers=(), exchanges=()), ALL_REDUCE, 4, 10)


# How long it takes


@pytest.mark.alone
@pytest.mark.parametrize("label", [EXACT[0].label, EXACT[1].label, "server, async", "gossip"])
def test_a_thousand_hosts_for_a_thousand_steps_take_less_than_ten_seconds(label):
    survey = there("digits", "hosts=1000,rate=10gbit")

    def simulated():
        began = time.perf_counter()
        found = simulate(
            survey, CANDIDATES[label], 1000, 1000, stragglers=0.01, failures_per_hour=0.001
        )
        assert found.is_finished
        return time.perf_counter() - began

    assert quickest(simulated, 10) < 10
