"""What strategies would take, from made-up measurements whose answer is known."""

import dataclasses

import pytest

from reparto.errors import UsageError
from reparto.plan import costs
from reparto.plan._candidates import candidates
from reparto.plan._fabric import Fabric, between, busiest_bytes
from reparto.plan._quality import quality_of
from reparto.plan._speeds import Pace, shared_rows
from reparto.spec import Exchange, LocalCost, Rehearsal, StrategyConfig, Trial
from tests.plan import made

RATE = 1e8 / 8  # bytes a second
PATTERNS = ("all-reduce", "gather", "exchange", "swap", "push", "pull")
ALL_REDUCE = StrategyConfig(kind="all-reduce")


def exchanges(num_workers=4, rate=RATE, latency_s=1e-3):
    """A line of a rate, and nothing else."""
    return tuple(
        Exchange(
            pattern=pattern,
            num_workers=num_workers,
            size_bytes=size,
            seconds=latency_s + busiest_bytes(pattern, size, num_workers) / rate,
        )
        for pattern in PATTERNS
        for size in (4096, 65536, 524288)
    )


def survey(**changes):
    return made.survey(4, **{"exchanges": exchanges(), **changes})


class TestFabric:
    def test_lines_go_through_what_was_measured_and_on(self):
        points = [(100, 1.0), (200, 2.0), (400, 3.0)]
        assert between(points, 200) == 2.0
        assert between(points, 300) == 2.5
        assert between(points, 800) == 5.0  # the last slope goes on
        assert between(points, 10) == 1.0
        assert between([(100, 1.0)], 300) == 3.0

    def test_other_numbers_of_workers_are_scaled_by_what_a_line_carries(self):
        fabric = Fabric(exchanges(4, latency_s=0.0))
        size = 10_000_000
        known = fabric.seconds("all-reduce", size, 4)
        assert known == pytest.approx(1.5 * size / RATE)
        assert fabric.seconds("all-reduce", size, 2) == pytest.approx(size / RATE, rel=0.02)
        assert fabric.seconds("push", size, 8) == pytest.approx(7 * size / RATE, rel=0.02)

    def test_alone_and_about_nothing_there_is_nothing_to_pay(self):
        fabric = Fabric(exchanges())
        assert fabric.seconds("all-reduce", 1000, 1) == 0
        assert fabric.seconds("all-reduce", 0, 4) == 0
        assert Fabric(()).seconds("all-reduce", 1000, 4) == 0


class TestSpeeds:
    def test_slices_between_measured_ones_are_on_the_line(self):
        pace = Pace((made.slice_time(16, 0.1), made.slice_time(64, 0.1)))
        assert pace.step_s(64) == pytest.approx(0.1)
        assert pace.step_s(32) == pytest.approx(0.01 + 0.09 / 2)
        assert pace.step_s(128) == pytest.approx(0.01 + 0.18)

    def test_rows_in_proportion_make_all_take_as_long(self):
        fast = Pace((made.slice_time(16, 0.05, 0), made.slice_time(64, 0.05, 0)))
        slow = Pace((made.slice_time(16, 0.1, 0), made.slice_time(64, 0.1, 0)))
        rows = shared_rows([fast, slow], 60, balanced=True)
        assert rows == pytest.approx([40, 20], rel=0.01)
        assert sum(rows) == pytest.approx(60)
        assert shared_rows([fast, slow], 60, balanced=False) == [30, 30]
        assert shared_rows([slow, slow], 60, balanced=True) == [30, 30]


class TestPredict:
    def test_alone_is_what_was_measured(self):
        found = costs.alone(survey(startup_s=2.0))
        assert (found.num_workers, found.step_s, found.speed_up) == (1, pytest.approx(0.1), 1)
        assert found.total_s == pytest.approx(2 + 1000 * 0.1)

    def test_an_all_reduce_is_computing_and_what_of_talking_is_left(self):
        found = costs.predict(survey(), ALL_REDUCE, 4)
        assert found.exact
        assert found.compute_s == pytest.approx(0.01 + 0.09 / 4)
        # 5 MB in one bucket, ready when the backward pass ends.
        assert found.step_s - found.compute_s == pytest.approx(1.5 * 5e6 / RATE, rel=0.02)
        assert found.wire_bytes == pytest.approx(1.5 * 5e6)
        assert found.speed_up == pytest.approx(0.1 / found.step_s)
        assert found.total_s == pytest.approx(1000 * found.step_s)

    def test_buckets_travel_while_the_backward_pass_goes_on(self):
        slow = survey(
            alone=made.slice_time(step_s=4.0),
            workers=made.survey(4, step_s=4.0).workers,
        )
        one = costs.predict(slow, ALL_REDUCE, 4)
        small = StrategyConfig(kind="all-reduce", settings={"bucket_bytes": 500_000})
        many = costs.predict(slow, small, 4)
        assert many.exchange_s < 0.25 * one.exchange_s

    def test_what_sending_takes_of_the_processor_is_not_hidden(self):
        free = survey()
        busy = survey(
            exchanges=tuple(
                dataclasses.replace(one, cpu_s=one.seconds / 2) for one in free.exchanges
            )
        )
        small = StrategyConfig(kind="all-reduce", settings={"bucket_bytes": 500_000})
        assert costs.predict(busy, small, 4).exchange_s > costs.predict(free, small, 4).exchange_s

    def test_a_batch_each_makes_longer_and_fewer_steps(self):
        strategy = StrategyConfig(kind="all-reduce", settings={"batch": "worker"})
        found = costs.predict(survey(), strategy, 4)
        assert not found.exact
        assert found.samples_a_step == 4 * made.ROWS
        assert found.num_steps == 250
        assert found.compute_s == pytest.approx(0.1)

    def test_rounds_are_shared_out_over_their_steps(self):
        every = costs.predict(survey(), _diloco(sync_every=4), 4)
        rarely = costs.predict(survey(), _diloco(sync_every=16), 4)
        assert rarely.exchange_s == pytest.approx(every.exchange_s / 4, rel=0.02)

    def test_rounds_that_travel_while_steps_are_made_cost_what_is_left(self):
        at_once = costs.predict(survey(), _diloco(sync_every=32), 4)
        partly = costs.predict(survey(), _diloco(sync_every=32, overlap=10), 4)
        hidden = costs.predict(survey(), _diloco(sync_every=32, overlap=31), 4)
        gained = 10 * at_once.compute_s / 32
        assert partly.exchange_s == pytest.approx(at_once.exchange_s - gained)
        assert hidden.exchange_s < 0.01 * at_once.exchange_s

    def test_a_server_serves_all_through_one_line(self):
        sync = costs.predict(survey(), StrategyConfig(kind="parameter-server"), 4)
        assert sync.exchange_s == pytest.approx(2 * 3 * 5e6 / RATE, rel=0.02)
        settings = {"mode": "async", "batch": "worker"}
        loose = costs.predict(survey(), _server(settings), 4)
        assert loose.exchange_s >= 2 * 5e6 / RATE  # its own gradient and parameters, at least
        assert loose.step_s == pytest.approx(2 * 3 * 5e6 / RATE, rel=0.05)  # the hot line

    def test_unlike_hosts_share_rows_where_they_wait_for_each_other(self):
        unlike = survey(workers=made.survey(4, speeds=(1, 1, 0.5, 0.5)).workers)
        alike = survey()
        even = StrategyConfig(kind="all-reduce", settings={"balance": "even"})
        balanced = costs.predict(unlike, ALL_REDUCE, 4)
        assert balanced.compute_s < costs.predict(unlike, even, 4).compute_s
        assert balanced.compute_s > costs.predict(alike, ALL_REDUCE, 4).compute_s

    def test_packing_is_what_was_measured_of_that_strategy(self):
        measured = (
            LocalCost(strategy=ALL_REDUCE, num_workers=4, step_s=0.02),
            LocalCost(strategy=ALL_REDUCE, num_workers=4, step_s=0.03),
            LocalCost(strategy=_diloco(sync_every=4), num_workers=4, step_s=0.5),
        )
        found = costs.predict(survey(costs=measured), ALL_REDUCE, 4)
        assert found.pack_s == 0.03  # the slowest worker's

    def test_packing_in_a_share_of_a_core_takes_as_much_longer(self):
        """By the clock it took a moment: a quota is not used up so soon."""
        shares = made.survey(4).workers
        quarter = tuple(
            dataclasses.replace(
                one, slices=tuple(dataclasses.replace(s, cpu_s=s.step_s / 4) for s in one.slices)
            )
            for one in shares
        )
        cost = LocalCost(strategy=ALL_REDUCE, num_workers=4, step_s=0.02, cpu_s=0.02)
        there = survey(costs=(cost,), workers=quarter)
        assert costs.predict(there, ALL_REDUCE, 4).pack_s == pytest.approx(0.08)
        assert costs.predict(survey(costs=(cost,)), ALL_REDUCE, 4).pack_s == 0.02
        unknown = dataclasses.replace(cost, cpu_s=0.0)
        there = dataclasses.replace(there, costs=(unknown,))
        assert costs.predict(there, ALL_REDUCE, 4).pack_s == 0.02

    def test_what_is_packed_aside_delays_what_travels_and_takes_from_computing(self):
        overlapped = _diloco(sync_every=4, overlap=3)
        fast = exchanges(rate=RATE * 1000, latency_s=1e-6)
        cost = LocalCost(strategy=overlapped, num_workers=4, step_s=0.0, aside_s=0.01)
        with_it = costs.predict(survey(costs=(cost,), exchanges=fast), overlapped, 4)
        without = costs.predict(survey(exchanges=fast), overlapped, 4)
        assert with_it.step_s - without.step_s == pytest.approx(0.01, rel=0.05)
        slow = survey(costs=(cost,))
        before = costs.predict(survey(), overlapped, 4)
        late_s = costs.predict(slow, overlapped, 4).step_s - before.step_s
        assert late_s == pytest.approx(0.01, rel=0.05)  # it is sent so much later

    def test_a_trial_takes_the_place_of_a_prediction(self):
        trial = Trial(strategy=ALL_REDUCE, num_workers=4, step_s=7.0, num_steps=5)
        found = costs.predict(survey(trials=(trial,)), ALL_REDUCE, 4)
        assert found.step_s == 7.0
        assert found.is_measured
        assert max(span.end_s for span in found.timeline) == pytest.approx(7.0)
        assert not costs.predict(survey(trials=(trial,)), ALL_REDUCE, 2).is_measured

    def test_settings_that_do_not_suit_are_refused(self):
        strategy = StrategyConfig(kind="all-reduce", settings={"balance": "2:1"})
        with pytest.raises(UsageError, match="balance"):
            costs.predict(survey(), strategy, 4)


@pytest.mark.parametrize("candidate", candidates(relaxed=True), ids=lambda one: one.label)
def test_every_candidate_can_be_predicted(candidate):
    found = costs.predict(survey(), candidate.strategy, 4, candidate.label)
    assert found.exact == candidate.exact
    assert found.step_s >= found.compute_s > 0
    assert bool(found.quality) == (not candidate.exact)
    assert all(0 <= span.begin_s < span.end_s for span in found.timeline)


def test_quality_is_told_only_where_it_was_measured():
    assert "Fashion-MNIST" in quality_of(_diloco(sync_every=1, batch="worker"))
    assert quality_of(_diloco(sync_every=1000)) == "not measured"
    dotted = {"sync_every": 1, "compressor.kind": "quantize", "compressor.bits": 1}
    told = quality_of(StrategyConfig(kind="diloco", settings=dotted))
    assert told == quality_of(_diloco(sync_every=1))
    assert quality_of(StrategyConfig(kind="gossip")) == "not measured"


def _diloco(**settings):
    compressor = {"kind": "quantize", "bits": 1} if settings.get("sync_every") == 1 else None
    more = {"compressor": compressor} if compressor else {}
    return StrategyConfig(kind="diloco", settings={**settings, **more})


def _server(settings):
    return StrategyConfig(kind="parameter-server", settings=settings)


def rehearsal(strategy, step_s, num_workers=4):
    return Rehearsal(strategy=strategy, num_workers=num_workers, step_s=step_s, num_steps=5)


def test_what_was_played_is_believed_before_what_was_added_up():
    plain = costs.predict(survey(), ALL_REDUCE, 4)
    heard = costs.predict(survey(rehearsals=(rehearsal(ALL_REDUCE, 0.7),)), ALL_REDUCE, 4)
    assert heard.step_s == 0.7 != plain.step_s
    assert not heard.is_measured
    assert (
        costs.predict(survey(rehearsals=(rehearsal(ALL_REDUCE, 0.7, 2),)), ALL_REDUCE, 4) == plain
    )


def test_what_was_played_tells_about_its_like():
    """Computing took half as long again; only those that compute in the same way learn of it."""
    quick = survey(exchanges=exchanges(rate=100 * RATE))
    known = costs.predict(quick, ALL_REDUCE, 4)
    longer = rehearsal(ALL_REDUCE, 1.5 * (known.compute_s + known.pack_s) + known.exchange_s)
    server, local = (StrategyConfig(kind=kind) for kind in ("parameter-server", "local-sgd"))
    for strategy, factor in ((server, 1.5), (local, 1.0)):
        before = costs.predict(quick, strategy, 4)
        after = costs.predict(dataclasses.replace(quick, rehearsals=(longer,)), strategy, 4)
        assert after.compute_s == pytest.approx(factor * before.compute_s)


def test_a_server_that_does_not_wait_is_no_faster_than_its_slowest_worker_for_long():
    unlike = survey(speeds=(1, 0.5, 1, 0.5))
    stale = StrategyConfig(kind="parameter-server", settings={"mode": "stale", "batch": "worker"})
    assert costs.predict(unlike, stale, 4).step_s >= 0.19


def test_a_batch_each_is_shared_out_in_proportion_unless_batches_are_loaded_whole():
    unlike = survey(speeds=(1, 0.5, 1, 0.5))
    each = StrategyConfig(kind="all-reduce", settings={"batch": "worker"})
    whole = dataclasses.replace(
        unlike, profile=dataclasses.replace(unlike.profile, loads_whole=True)
    )
    assert costs.predict(unlike, each, 4).compute_s < 0.8 * costs.predict(whole, each, 4).compute_s


def test_replicas_apart_are_predicted_by_how_they_compute_apart():
    made = survey()
    slower = dataclasses.replace(
        made,
        workers=tuple(
            dataclasses.replace(
                one,
                slices=(
                    *(
                        dataclasses.replace(part, forward_s=3 * part.forward_s, apart=True)
                        for part in one.slices
                    ),
                    *one.slices,
                ),
            )
            for one in made.workers
        ),
    )
    local = StrategyConfig(kind="local-sgd")
    assert (
        costs.predict(slower, local, 4).compute_s > 1.5 * costs.predict(made, local, 4).compute_s
    )
    assert (
        costs.predict(slower, ALL_REDUCE, 4).compute_s
        == costs.predict(made, ALL_REDUCE, 4).compute_s
    )
