"""A group on a slow line: the same numbers, later."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from tests.patience import measured

from reparto.comm import Departure, GlooGroup, Meeting, ThreadGroup, ThrottledGroup, Wire
from reparto.comm._arrivals import Arrival, Arrivals
from reparto.comm._throttled import _in_tree
from reparto.errors import UsageError
from reparto.measure.links import measure_links
from reparto.runtime import _meeting
from reparto.spec import Line, to_json
from reparto.testing import GroupContract, run_members

FAST = Line(up_bits_per_s=1e10, down_bits_per_s=1e10, delay_s=1e-5, jitter_s=1e-6, loss=1e-6)
SLOW = Line(up_bits_per_s=80e6, down_bits_per_s=80e6)  # ten megabytes a second
MEGABYTE = 250_000  # of floats


class TestThrottledThreadGroup(GroupContract):
    @pytest.fixture
    def make_group(self, request):
        leaves = "leaves" in request.node.name  # who waits for it shall not wait for long
        meeting = Meeting(self.size, timeout_s=3 if leaves else 60)
        return lambda rank, size: ThrottledGroup(ThreadGroup(meeting, rank), Wire(FAST, rank))


class TestThrottledGlooGroup(GroupContract):
    @pytest.fixture
    def make_group(self):
        store = dist.HashStore()
        return lambda rank, size: ThrottledGroup(
            GlooGroup(store, rank=rank, size=size, timeout_s=60), Wire(FAST, rank)
        )


def on_lines(lines, work):
    """Run a function as each member of a group over gloo, each on its line."""
    store = dist.HashStore()

    def make(rank, size):
        return ThrottledGroup(GlooGroup(store, rank=rank, size=size), Wire(lines[rank], rank))

    def begun(group):
        group.inner.barrier().wait()  # none of them connects any longer
        return work(group)

    return run_members(len(lines), make, begun)


def seconds(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def summing(group, size=MEGABYTE):
    return seconds(lambda: group.sum(torch.ones(size)))


@pytest.mark.alone
@pytest.mark.parametrize("members", [2, 4])
@measured()
def test_sums_take_as_long_as_a_ring_on_that_line(members):
    expected = 0.1 * 2 * (members - 1) / members
    for found in on_lines([SLOW] * members, summing):
        assert found == pytest.approx(expected, rel=0.1)


@pytest.mark.alone
@measured()
def test_operations_queue_on_the_line_also_those_of_a_group_beside():
    def work(group):
        other = group.beside("other")

        def both():
            works = [one.allreduce([torch.ones(MEGABYTE)]) for one in (group, other)]
            assert not any(one.is_completed() for one in works)
            for one in works:
                one.wait()

        return seconds(both)

    for found in on_lines([SLOW] * 2, work):
        assert found == pytest.approx(0.2, rel=0.1)


@pytest.mark.alone
@measured()
def test_what_passes_while_the_worker_computes_is_not_waited_for():
    def work(group):
        under_way = group.allreduce([torch.ones(MEGABYTE)])
        time.sleep(0.07)
        rest = seconds(under_way.wait)
        return rest, seconds(under_way.wait), under_way.is_completed()

    for rest, again, is_completed in on_lines([SLOW] * 2, work):
        assert 0.02 < rest < 0.04
        assert again < 0.001 and is_completed


@pytest.mark.alone
@measured()
def test_each_hop_of_an_operation_costs_the_delay():
    def work(group):
        one = torch.ones(3)
        calls = {
            4: lambda: group.sum(one),
            2: lambda: group.gather_all(one),
            1: lambda: group.exchange(one),
        }
        found = {hops: seconds(call) for hops, call in calls.items()}
        return found, seconds(lambda: group.barrier().wait())

    for found, barrier_s in on_lines([Line(delay_s=0.02)] * 3, work):
        for hops, taken_s in found.items():
            assert 0.02 * hops <= taken_s < 0.02 * hops + 0.008
        assert 0.04 <= barrier_s < 0.048


@pytest.mark.alone
@pytest.mark.parametrize(
    ("sender", "receiver"),
    [(Line(up_bits_per_s=80e6), Line()), (Line(), Line(down_bits_per_s=80e6))],
    ids=["up", "down"],
)
@measured()
def test_a_message_is_limited_by_either_end(sender, receiver):
    def work(group):
        payload = torch.ones(MEGABYTE)
        if group.rank() == 0:
            return seconds(lambda: group.send([payload], 1, 0).wait())
        return seconds(lambda: group.recv([payload], 0, 0).wait())

    sent_s, received_s = on_lines([sender, receiver], work)
    assert received_s == pytest.approx(0.1, rel=0.1)
    assert sent_s == pytest.approx(0.1, rel=0.1) if sender.up_bits_per_s else sent_s < 0.03


@pytest.mark.alone
@measured()
def test_a_server_takes_what_comes_one_after_the_other_from_whoever_sends():
    def work(group):
        payload = torch.ones(MEGABYTE)
        if group.rank():
            return group.send([payload], 0, 3).wait()

        def serve():
            works = [group.recv_anysource([torch.zeros(MEGABYTE)], 3) for _ in range(2)]
            for one in works:
                one.wait()
            sources.extend(one._source_rank() for one in works)

        sources = []
        return seconds(serve), sorted(sources)

    taken_s, sources = on_lines([Line(down_bits_per_s=80e6), Line(), Line()], work)[0]
    assert taken_s == pytest.approx(0.2, rel=0.1)
    assert sources == [1, 2]


@pytest.mark.alone
@measured()
def test_a_distant_sender_holds_up_no_near_one():
    def work(group):
        if group.rank():
            if group.rank() == 2:  # the distant one has announced its message by then
                group.inner.recv([torch.zeros(1)], 1, 9).wait()
            sent = group.send([torch.ones(1)], 0, 3)
            if group.rank() == 1:
                sent.wait()
                group.inner.send([torch.ones(1)], 2, 9).wait()
            return sent.wait()
        began, found = time.perf_counter(), []
        for _ in range(2):
            one = group.recv_anysource([torch.zeros(1)], 3)
            one.wait()
            found.append((one._source_rank(), time.perf_counter() - began))
        return found

    lines = [Line(), Line(delay_s=0.4), Line()]
    (near, near_s), (far, far_s) = on_lines(lines, work)[0]
    assert (near, far) == (2, 1)
    assert near_s < 0.3 and far_s == pytest.approx(0.4, abs=0.1)


def test_messages_of_one_sender_keep_their_order_whatever_the_jitter():
    wire = Wire(Line())
    late, soon = (Departure(time.time(), 0.0, 0.0, travel_s) for travel_s in (1.5, 0.0))
    arrivals = Arrivals(None, None, wire)
    arrivals._kept = [Arrival(1, late, ["a"]), Arrival(1, soon, ["b"]), Arrival(2, soon, ["c"])]
    arrivals._is_reading = True
    assert [arrivals.take([]).tensors for _ in range(3)] == [["c"], ["a"], ["b"]]


def test_failure_of_the_group_inside_is_raised_to_whoever_waits():
    def broken(note):
        raise RuntimeError("connection closed")

    with pytest.raises(RuntimeError, match="connection closed"):
        Arrivals(broken, None, Wire(Line())).take([])


@pytest.mark.alone
@measured()
def test_loss_makes_it_slower():
    lossy = Line(up_bits_per_s=80e6, delay_s=0.002, loss=0.02)
    for found in on_lines([lossy] * 2, summing):
        assert 0.1 + 6 * 0.004 < found < 0.1 + 40 * 0.004  # of 691 packets some 14


@pytest.mark.alone
@measured()
def test_a_line_without_limits_adds_less_than_a_millisecond():
    def work(group):
        def median(carrier):
            return sorted(summing(carrier, 10) for _ in range(50))[25]

        return median(group) - median(group.inner)

    assert max(on_lines([Line()] * 2, work)) < 0.001


@pytest.mark.alone
@measured()
def test_links_are_measured_as_the_line_has_them():
    line = Line(up_bits_per_s=20e6, down_bits_per_s=50e6, delay_s=0.005)
    (link,) = on_lines([line] * 2, lambda group: measure_links(group, ["a", "b"]))[0]
    assert link.rate_bits_per_s == pytest.approx(20e6, rel=0.15)
    assert link.latency_s == pytest.approx(0.005, rel=0.2)


@pytest.mark.alone
@measured()
def test_a_wait_ends_at_its_time_out():
    def work(group):
        under_way = group.allreduce([torch.ones(MEGABYTE)])
        with pytest.raises(RuntimeError, match="more than the time-out"):
            under_way.wait(timedelta(seconds=0.03))

    assert on_lines([SLOW] * 2, lambda group: seconds(lambda: work(group)))[0] < 0.09


def test_the_result_is_in_the_future_that_ddp_asks_for():
    def work(group):
        return group.allreduce([torch.ones(2)]).get_future().wait()[0].tolist()

    assert on_lines([FAST] * 2, work) == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_in_the_tree_of_a_broadcast_everyone_but_the_root_has_one_parent(size):
    places = [_in_tree(place, size) for place in range(size)]
    assert sum(children for children, _ in places) == size - 1
    assert [depth == 0 for _, depth in places] == [place == 0 for place in range(size)]


def test_workers_read_their_line_from_the_environment(monkeypatch):
    monkeypatch.delenv("REPARTO_LINE", raising=False)
    assert _meeting.wire_of(0) is None
    monkeypatch.setenv("REPARTO_LINE", to_json(FAST))
    assert _meeting.wire_of(0).line == FAST
    monkeypatch.setenv("REPARTO_LINE", '{"up": 3}')
    with pytest.raises(UsageError, match="up"):
        _meeting.wire_of(0)
