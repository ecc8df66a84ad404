"""Hosts that are not there, made of those that were measured."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reparto.errors import UsageError
from reparto.plan import imagine
from reparto.plan._fabric import Fabric
from reparto.plan._what_if import parse_changes
from reparto.plan.costs import predict
from reparto.spec import Exchange, LocalCost, StrategyConfig, from_json, to_json
from reparto.spec import Survey as SurveyNoun
from tests.plan.made import survey
from tests.plan.recorded import NAMES, recorded

LAB, HERE = recorded("captioning-100mbit"), recorded("digits")
ALL_REDUCE = StrategyConfig(kind="all-reduce")


def seconds(there, pattern="all-reduce", size=512 * 1024, count=4):
    return Fabric(there.exchanges, there.cluster.links).seconds(pattern, size, count)


def measured(*, latency_s, rate, processing_s=0.0, counts=(2, 4), **changes):
    """A survey whose exchanges take what a network of that kind does, and some processing."""
    from reparto.plan._imagined_talk import Network

    network = Network(rate_bits_per_s=rate, latency_s=latency_s)
    exchanges = tuple(
        Exchange(
            pattern=pattern,
            num_workers=count,
            size_bytes=size,
            seconds=network.seconds(pattern, size, count) + processing_s,
        )
        for pattern in ("all-reduce", "gather", "push", "pull", "swap", "exchange")
        for count in counts
        for size in (4096, 65536, 1 << 20)
    )
    made = survey(4, rate=rate, **changes)
    links = tuple(replace(link, latency_s=latency_s) for link in made.cluster.links)
    return replace(made, exchanges=exchanges, cluster=replace(made.cluster, links=links))


# Hosts


@pytest.mark.parametrize("count", [2, 3, 8, 1000])
def test_each_imagined_host_has_a_name_of_its_own_and_one_worker(count):
    there = imagine(LAB, f"hosts={count}")
    assert len(there.cluster.hosts) == len(set(there.placement)) == count
    assert there.placement == tuple(host.name for host in there.cluster.hosts)
    assert {one.rank for one in there.workers if one.num_workers == count} == set(range(count))


def test_measured_hosts_are_repeated_in_turn():
    there = imagine(survey(2, speeds=(1.0, 2.0), exchanges=LAB.exchanges), "hosts=5")
    assert there.placement == ("a", "b", "a-2", "b-2", "a-3")
    steps = [one.slices[-1].step_s for one in there.workers if one.num_workers == 5]
    assert steps == pytest.approx([0.1, 0.05, 0.1, 0.05, 0.1])


def test_workers_of_a_crowded_machine_are_imagined_as_if_each_had_it_to_itself():
    there = imagine(HERE, "hosts=4,rate=none")
    alone = next(one for one in HERE.workers if one.num_workers == 1)
    assert {one.slices for one in there.workers} == {alone.slices}


def test_nothing_changes_where_what_was_measured_is_imagined():
    there = imagine(LAB, "hosts=4")
    for pattern in ("all-reduce", "gather", "exchange", "swap", "push", "pull"):
        for size in (4096, 65536, 512 * 1024):
            assert seconds(there, pattern, size) == pytest.approx(seconds(LAB, pattern, size))


def test_an_imagined_survey_can_be_kept_in_a_file():
    there = imagine(LAB, "hosts=8,rate=none")
    assert from_json(SurveyNoun, to_json(there)) == there


def test_trials_of_other_hosts_are_left_out():
    from reparto.spec import Trial

    trial = Trial(strategy=ALL_REDUCE, num_workers=4, step_s=1.0, num_steps=5)
    there = imagine(replace(LAB, trials=(trial,)), "speed=2x")
    assert there.trials == ()


# The network


def test_what_the_network_takes_follows_its_rate_and_what_processors_take_does_not():
    was = measured(latency_s=1e-4, rate=1e8, processing_s=0.02)
    will = imagine(was, "rate=1gbit")
    size, busiest = 1 << 20, 1.5
    wire_s = 8 * size * busiest / 1e8
    assert seconds(was, size=size) == pytest.approx(6e-4 + wire_s + 0.02)
    assert seconds(will, size=size) == pytest.approx(6e-4 + wire_s / 10 + 0.02)


def test_latency_counts_once_a_round():
    was = measured(latency_s=1e-4, rate=1e8)
    assert seconds(imagine(was, "latency=2ms")) - seconds(was) == pytest.approx(6 * 1.9e-3)


def test_more_hosts_take_what_a_network_of_that_size_would():
    small = measured(latency_s=1e-4, rate=1e8)
    large = measured(latency_s=1e-4, rate=1e8, counts=(16,))
    there = imagine(small, "hosts=16")
    for pattern in ("all-reduce", "gather", "push", "swap", "exchange"):
        assert seconds(there, pattern, count=16) == pytest.approx(
            seconds(large, pattern, count=16)
        )


def test_without_a_limit_only_latency_and_processing_are_left():
    was = measured(latency_s=1e-4, rate=1e8, processing_s=0.02)
    assert seconds(imagine(was, "rate=none")) == pytest.approx(6e-4 + 0.02)


def test_within_one_machine_all_of_an_exchange_is_processing():
    there = imagine(HERE, "hosts=2,rate=none,latency=0s")
    assert seconds(there, count=2) == pytest.approx(seconds(HERE, count=2))
    slow = imagine(HERE, "hosts=2,rate=100mbit,latency=0s")
    wire_s = 8 * 512 * 1024 / 1e8
    assert seconds(slow, count=2) == pytest.approx(wire_s + seconds(HERE, count=2))


def test_links_of_a_played_network_at_memory_speed_are_processing():
    fast = tuple(replace(link, rate_bits_per_s=8e9) for link in LAB.cluster.links)
    played = replace(LAB, cluster=replace(LAB.cluster, links=fast))
    assert seconds(imagine(played, "rate=none")) == pytest.approx(seconds(played))
    real = tuple(replace(host, enter=()) for host in LAB.cluster.hosts)
    apart = replace(played, cluster=replace(played.cluster, hosts=real))
    assert seconds(imagine(apart, "rate=none")) < seconds(apart)


def test_a_single_measured_size_is_enough():
    few = tuple(one for one in LAB.exchanges if one.size_bytes == 4096)
    there = imagine(replace(LAB, exchanges=few), "rate=1gbit")
    assert 0 < seconds(there, size=4096) <= seconds(there, size=1 << 22)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(
    slower=st.floats(1e6, 1e10),
    times=st.floats(1.0, 100.0),
    count=st.sampled_from([2, 3, 16, 100]),
    size=st.integers(1, 1 << 24),
    pattern=st.sampled_from(["all-reduce", "gather", "push", "pull", "swap", "exchange"]),
)
def test_a_faster_network_never_takes_longer(name, slower, times, count, size, pattern):
    slow, fast = (
        imagine(recorded(name), f"hosts={count},rate={rate:.0f}bit")
        for rate in (slower, slower * times)
    )
    taken = seconds(slow, pattern, size, count)
    assert taken > 0
    assert seconds(fast, pattern, size, count) <= taken * (1 + 1e-9)


# Processors and the batch


def test_faster_processors_divide_computing_and_packing():
    was, will = LAB, imagine(LAB, "speed=2x")
    assert will.alone.step_s == pytest.approx(was.alone.step_s / 2)
    assert [one.step_s for one in will.costs] == pytest.approx([c.step_s / 2 for c in was.costs])
    one, two = (predict(there, ALL_REDUCE, 4) for there in (was, will))
    assert two.compute_s == pytest.approx(one.compute_s / 2, rel=0.01)
    assert two.pack_s == pytest.approx(one.pack_s / 2)
    assert two.exchange_s > one.exchange_s / 2  # the wire is as it was


@pytest.mark.parametrize(("what_if", "times"), [("hosts=4", 1), ("hosts=4,speed=2x", 0.5)])
def test_packing_in_a_share_of_a_core_is_imagined_by_its_processor_time(what_if, times):
    """By the clock it took a moment, on hosts with half of a core."""
    overlapped = StrategyConfig(kind="diloco", settings={"sync_every": 4, "overlap": 3})
    there = measured(latency_s=1e-6, rate=1e10)
    halves = tuple(
        replace(one, slices=tuple(replace(s, cpu_s=s.step_s / 2) for s in one.slices))
        for one in there.workers
    )
    costs = tuple(
        LocalCost(strategy=one, num_workers=4, step_s=0.004, cpu_s=0.004, aside_s=0.003)
        for one in (ALL_REDUCE, overlapped)
    )
    will = imagine(replace(there, workers=halves, costs=costs), what_if)
    assert predict(will, ALL_REDUCE, 4).pack_s == pytest.approx(times * 0.008)
    without = replace(will, costs=tuple(replace(one, aside_s=0.0) for one in will.costs))
    aside_s = predict(will, overlapped, 4).step_s - predict(without, overlapped, 4).step_s
    assert aside_s == pytest.approx(times * 0.006)


def test_cores_speed_up_who_was_short_of_them_and_no_one_else():
    def cpu(cores, share):
        step = replace(survey().alone, cpu_s=share * 0.1)
        made = survey(alone=step, workers=())
        return imagine(made, f"cpu={cores}").alone.step_s

    assert cpu(0.9, share=0.45) == pytest.approx(0.05)
    assert cpu(8, share=0.5) == pytest.approx(0.05)  # a worker makes use of one core
    assert cpu(8, share=2.0) == pytest.approx(0.1)  # this one of two
    assert cpu(0.5, share=2.0) == pytest.approx(0.4)


def test_another_batch_makes_longer_and_fewer_steps():
    there = imagine(survey(), "batch=256")
    assert there.profile.batch_rows == there.alone.rows == 256
    assert there.num_steps == 250
    assert there.alone.step_s == pytest.approx(0.01 + 4 * 0.09)


# What cannot be


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "nothing is changed"),
        (" , ", "nothing is changed"),
        ("hosts", "'hosts'"),
        ("colour=red", "colour"),
        ("hosts=0", "hosts"),
        ("hosts=-4", "hosts"),
        ("hosts=4.5", "hosts"),
        ("hosts=1e3", "hosts"),
        ("hosts=4,hosts=8", "hosts is given twice"),
        ("rate=fast", "rate"),
        ("rate=0", "rate"),
        ("latency=5", "latency"),
        ("speed=0x", "speed"),
        ("speed=nan", "speed"),
        ("cpu=-1", "cpu"),
        ("batch=0", "batch"),
    ],
)
def test_a_change_that_cannot_be_read_is_told_with_its_key_and_a_remedy(text, told):
    with pytest.raises(UsageError) as error:
        imagine(LAB, text)
    assert told in error.value.message
    assert error.value.remedy


@pytest.mark.parametrize(
    ("there", "text", "remedy"),
    [
        (HERE, "hosts=8", "rate"),
        (HERE, "rate=1gbit", "hosts"),
        (HERE, "latency=1ms", "hosts"),
        (LAB, "hosts=1,rate=1gbit", "hosts"),
        (replace(HERE, workers=(), exchanges=()), "hosts=4,rate=1gbit", "--workers 2"),
        (replace(LAB, device="cuda"), "cpu=2", "speed"),
    ],
)
def test_what_nothing_measured_tells_about_is_refused_with_a_remedy(there, text, remedy):
    with pytest.raises(UsageError) as error:
        imagine(there, text)
    assert remedy in error.value.remedy


@given(st.text(max_size=30))
def test_any_text_is_read_or_told_as_wrong(text):
    try:
        parse_changes(text)
    except UsageError as error:
        assert error.remedy
