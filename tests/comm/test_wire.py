"""The model of a line, by a clock that stands still: to the digit, and nobody sleeps."""

from types import SimpleNamespace

import pytest

from reparto.comm import Departure, Wire
from reparto.comm._wire import PACKET_BYTES
from reparto.errors import UsageError
from reparto.spec import Line

MEGABIT = 1e6
BYTES = 125_000  # one second at one megabit


@pytest.fixture
def clock(monkeypatch):
    """Two clocks that stand still; tests move them."""
    clock = SimpleNamespace(now=100.0, day=5000.0)
    clock.monotonic, clock.time = lambda: clock.now, lambda: clock.day
    monkeypatch.setattr("reparto.comm._wire.time", clock)
    return clock


def test_an_operation_takes_as_long_as_its_slower_direction(clock):
    wire = Wire(Line(up_bits_per_s=MEGABIT, down_bits_per_s=4 * MEGABIT))
    assert wire.book(BYTES, BYTES, hops=1) == pytest.approx(101.0)
    assert Wire(Line()).book(BYTES, BYTES, hops=4) == 100.0


def test_operations_queue_in_each_direction_of_its_own(clock):
    wire = Wire(Line(up_bits_per_s=MEGABIT, down_bits_per_s=MEGABIT))
    assert [wire.book(BYTES, 0, 0) for _ in range(3)] == pytest.approx([101.0, 102.0, 103.0])
    assert wire.book(0, BYTES, 0) == pytest.approx(101.0)
    assert wire.book(0, 0, 0) == 100.0
    clock.now = 110.0
    assert wire.book(BYTES, 0, 0) == pytest.approx(111.0)


def test_delay_adds_up_over_hops_and_is_no_occupation(clock):
    wire = Wire(Line(up_bits_per_s=MEGABIT, delay_s=0.25))
    assert wire.book(BYTES, 0, hops=6) == pytest.approx(102.5)
    assert wire.book(BYTES, 0, hops=0) == pytest.approx(102.0)


def test_jitter_varies_around_the_delay_never_backwards_and_by_the_seed(clock):
    def times(seed, delay_s, hops=1):
        wire = Wire(Line(delay_s=delay_s, jitter_s=0.25), seed)
        return [wire.book(0, 0, hops) - 100 for _ in range(400)]

    found = times(0, 1.0)
    assert 0.75 <= min(found) < 0.8 and 1.2 < max(found) <= 1.25
    assert sum(found) / 400 == pytest.approx(1.0, abs=0.03)
    assert sum(times(0, 1.0, hops=9)) / 400 == pytest.approx(9.0, abs=0.1)
    assert min(times(0, 0.0)) == 0.0
    assert found == times(0, 1.0) != times(1, 1.0)


def test_lost_packets_take_the_line_again_and_a_round_trip_each(clock):
    packets, loss = 100_000, 0.2
    size = packets * PACKET_BYTES
    again = packets * loss / (1 - loss)  # those that are sent again are lost as often
    wire = Wire(Line(up_bits_per_s=8 * size, loss=loss, delay_s=0.5))
    assert wire.book(size, 0, 0) - 100 == pytest.approx(1 + again / packets + again, rel=0.02)
    wire = Wire(Line(loss=loss))
    assert wire.book(size, 0, 0) - 100 == pytest.approx(again * 0.001, rel=0.02)
    assert wire.book(0, size, 0) == 100.0  # what comes is lost on the line of who sends it


def test_a_message_takes_the_slower_of_both_ends_and_the_senders_delay(clock):
    for up, down, there_s in ((1, 4, 1.0), (4, 1, 1.0), (2, None, 0.5), (None, 2, 0.5)):
        rates = [rate and rate * MEGABIT for rate in (up, down)]
        sender = Wire(Line(up_bits_per_s=rates[0], delay_s=0.125))
        left_at, departure = sender.depart(BYTES)
        assert left_at == pytest.approx(100 + (1 / up if up else 0))
        receiver = Wire(Line(down_bits_per_s=rates[1], delay_s=9.0))
        assert receiver.arrive(BYTES, departure) == pytest.approx(100 + there_s + 0.125)


def test_messages_queue_at_a_receiver_and_pass_while_nobody_waits(clock):
    departures = [Wire(Line()).depart(BYTES)[1] for _ in range(3)]
    server = Wire(Line(down_bits_per_s=MEGABIT))
    clock.now, clock.day = 101.5, 5001.5  # it computes until then
    assert [server.arrive(BYTES, one) for one in departures] == pytest.approx([101, 102, 103])


def test_message_that_is_still_far_away_holds_up_none_that_is_here(clock):
    wire = Wire(Line(down_bits_per_s=MEGABIT))
    far = Departure(handed_at=clock.day, begin_s=0.0, end_s=0.0, travel_s=10.0)
    near = far._replace(travel_s=0.0)
    arrivals = [wire.arrive(BYTES, one) for one in (far, near, far, near)]
    assert arrivals == pytest.approx([111, 101, 112, 102])


def test_only_the_latest_times_of_a_line_are_remembered(clock):
    wire = Wire(Line(up_bits_per_s=MEGABIT))
    found = [wire.book(BYTES, 0, 0) for _ in range(200)]
    assert found == pytest.approx([101.0 + n for n in range(200)])
    assert len(wire._up._taken) < 100


def test_clock_of_a_sender_that_is_fast_makes_no_message_slower(clock):
    departure = Departure(handed_at=clock.day + 3600, begin_s=0.0, end_s=1.0, travel_s=0.5)
    assert Wire(Line()).arrive(BYTES, departure) == pytest.approx(101.5)


@pytest.mark.parametrize(
    "line",
    [
        Line(up_bits_per_s=0),
        Line(down_bits_per_s=-1),
        Line(loss=1),
        Line(delay_s=-1),
        Line(delay_s=float("nan")),
        Line(jitter_s=float("inf")),
    ],
    ids=str,
)
def test_lines_that_cannot_be_are_refused(line):
    with pytest.raises(UsageError, match="no such line"):
        Wire(line)
