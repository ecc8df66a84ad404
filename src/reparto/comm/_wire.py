"""Wire: the line of one worker, as a model of when its bytes have passed. Sends nothing.

Each direction is a queue: what is booked passes after all that was booked before it, whoever
booked it, or before it where the line is free for long enough: a message that has yet to come
from far away holds up none that is here. What has left is then on its way for a while:

    sender's line      ├ queue ┤██ 8·bytes / up ██┤
                       handed  begin              end (the line is free, a send is done)
    on its way                 ├──delay─►         ├──delay, lost packets─►
    receiver's line                      ├██ 8·bytes / down ██┤      ▲
                                                              the later of both: it is there

A lost packet takes the line once more, and a round trip until that is noticed, one after the
other. That is kinder than TCP, which also slows down when packets are lost.
"""

from __future__ import annotations

import time
from bisect import insort
from math import inf, isfinite
from threading import Lock
from typing import NamedTuple

import numpy as np

from reparto.errors import UsageError
from reparto.spec import Line

#: Payload of a packet of TCP on Ethernet.
PACKET_BYTES = 1448
#: What a lost packet costs where the line itself has no delay.
LEAST_ROUND_TRIP_S = 0.001
#: Of so many times at which the line is taken it is known whether there is room between them.
_REMEMBERED = 64


class Departure(NamedTuple):
    """When a message goes over its sender's line; it travels with the message.

    Attributes:
        handed_at: When it was handed over, in seconds of the day's clock (`time.time`), which
            hosts have in common, more or less.
        begin_s: Seconds from then until its first byte leaves.
        end_s: Seconds from then until its last byte has left.
        travel_s: Seconds that it is on its way besides.
    """

    handed_at: float
    begin_s: float
    end_s: float
    travel_s: float


class Wire:
    """The line of this worker; all of its groups share it. Threads: any.

    Args:
        line: What is emulated.
        seed: Of jitter and loss, which draw from a generator of their own.

    Raises:
        UsageError: If no line can be like that.
    """

    def __init__(self, line: Line, seed: int = 0) -> None:
        rates = [line.up_bits_per_s, line.down_bits_per_s]
        is_possible = all(rate is None or rate > 0 for rate in rates) and 0 <= line.loss < 1
        times = (line.delay_s, line.jitter_s)
        if not is_possible or not all(isfinite(one) and one >= 0 for one in times):
            raise UsageError(
                f"there is no such line: {line}",
                remedy="rates are above 0, times are finite and not below 0, loss is from 0 to "
                "below 1",
            )
        self.line = line
        self._lock = Lock()
        self._up, self._down = (_Direction(rate) for rate in rates)
        self._draw = np.random.default_rng(seed)

    def book(self, sent_bytes: float, received_bytes: float, hops: int) -> float:
        """Let an operation pass that sends and receives at once.

        Args:
            sent_bytes: What leaves; of 0 the direction is not used.
            received_bytes: What comes.
            hops: Messages that have to follow one another.

        Returns:
            When it is done, in seconds of `time.monotonic`.
        """
        with self._lock:
            now = time.monotonic()
            again = self._packets_sent_again(sent_bytes)
            _, sent_at = self._up.take(now, sent_bytes + again * PACKET_BYTES)
            _, received_at = self._down.take(now, received_bytes)
            return max(sent_at, received_at) + self._travel_s(hops, again)

    def depart(self, sent_bytes: int) -> tuple[float, Departure]:
        """Let a message leave.

        Returns:
            When it has left, in seconds of `time.monotonic`, and what its receiver must know.
        """
        with self._lock:
            now = time.monotonic()
            again = self._packets_sent_again(sent_bytes)
            begin, end = self._up.take(now, sent_bytes + again * PACKET_BYTES)
            travel_s = self._travel_s(1, again)
        return end, Departure(time.time(), begin - now, end - now, travel_s)

    def due(self, departure: Departure) -> float:
        """When a message would be here if this line were free and fast."""
        handed_at = time.monotonic() - max(0.0, time.time() - departure.handed_at)
        return handed_at + departure.travel_s + departure.end_s

    def arrive(self, received_bytes: int, departure: Departure) -> float:
        """Let a message come that is here in truth; say when it would be on this line."""
        with self._lock:
            now = time.monotonic()
            # Clocks of two hosts differ; it was not handed over after it came.
            handed_at = now - max(0.0, time.time() - departure.handed_at)
            under_way = handed_at + departure.travel_s
            _, end = self._down.take(under_way + departure.begin_s, received_bytes)
            return max(end, under_way + departure.end_s)

    def _packets_sent_again(self, sent_bytes: float) -> int:
        lost = -int(-sent_bytes // PACKET_BYTES) if self.line.loss else 0
        total = 0
        while lost := int(self._draw.binomial(lost, self.line.loss)) if lost else 0:
            total += lost  # and some of them are lost again
        return total

    def _travel_s(self, hops: int, packets_again: int) -> float:
        delay_s, jitter_s = self.line.delay_s, self.line.jitter_s
        if jitter_s:
            drawn = self._draw.uniform(delay_s - jitter_s, delay_s + jitter_s, hops)
            total_s = float(np.maximum(drawn, 0.0).sum())
        else:
            total_s = hops * delay_s
        return total_s + packets_again * (2 * delay_s or LEAST_ROUND_TRIP_S)


class _Direction:
    """One of the two directions of a line: a queue."""

    def __init__(self, rate_bits_per_s: float | None) -> None:
        self._s_per_byte = 8 / rate_bits_per_s if rate_bits_per_s else 0.0
        self._taken: list[tuple[float, float]] = []  # from when to when, in their order
        self._since = -inf  # what was before is forgotten

    def take(self, at: float, num_bytes: float) -> tuple[float, float]:
        """From when to when bytes pass that could begin at some time; of none, that time."""
        if not num_bytes:
            return at, at
        length_s = num_bytes * self._s_per_byte
        begin = max(at, self._since)
        for taken_from, taken_to in self._taken:
            if begin + length_s <= taken_from:
                break
            begin = max(begin, taken_to)
        insort(self._taken, (begin, begin + length_s))
        if len(self._taken) > _REMEMBERED:
            self._since = self._taken.pop(0)[1]
        return begin, begin + length_s
