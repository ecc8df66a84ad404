"""RemoteWorker: a worker on another host, as a supervisor here sees it.

    host ──bytes, end──► a thread that listens ──► feed, end ──► pipes ──► the supervisor's poll
    host ◄─────────────── signal, go ◄──────────────────────────────────── the supervisor

The supervisor reads the same pipes as those of a worker of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from signal import SIGINT, SIGKILL, Signals
from typing import IO

from reparto.engines._worker import Stream, Worker
from reparto.spec import Begin, Event, Failed, Failure, Usage

#: Name of the "error" of a worker whose host does not answer any more.
LOST = "HostLost"


class ToldWorker(Worker):
    """A worker that somebody else looks after and tells of, by ``end`` or ``lose``."""

    def __init__(self, rank: int, host: str) -> None:
        super().__init__(rank, host)
        self.pipes = {}
        self._end: int | None = None

    def end(self, status: int) -> None:
        """Take note that it has ended, as of `subprocess.Popen.returncode`."""
        if self._end is None:
            self._end = status

    def lose(self, why: str) -> None:
        """Take note that nothing will be heard of it any more."""
        if self._end is None:
            lost = Failure(
                rank=self.rank, host=self.host, error=LOST, message=why, time_s=time.time()
            )
            self.fail(lost)
            self.end(-SIGKILL)

    def go(self) -> None:
        """Nothing to do: whoever looks after it tells it."""

    def has_died(self) -> bool:
        """Whether its end was told."""
        return self._end is not None

    def reap(self, *, sweep: bool) -> None:
        """Take note of its end; whoever looks after it has swept already."""
        self.status = self._end


class RemoteWorker(ToldWorker):
    """Stands in for a worker; the one who listens to its host calls ``feed`` and ``end``.

    Args:
        rank: Its rank.
        host: The name of its host.
        send_signal: Passes a signal on to its host; must not wait.
        mirror: Folder of that host under which the user's paths lie; told paths lose it.
        clock_ahead_s: By how much that host's clock is ahead of ours.
    """

    def __init__(
        self,
        rank: int,
        host: str,
        *,
        send_signal: Callable[[int, int], object],
        mirror: str = "",
        clock_ahead_s: float = 0.0,
    ) -> None:
        super().__init__(rank, host)
        self._send_signal = send_signal
        self._mirror = mirror
        self._clock_ahead_s = clock_ahead_s
        self._sent: set[Signals] = set()
        self._writers: dict[Stream, IO[bytes]] = {}
        streams: tuple[Stream, ...] = ("events", "stdout", "stderr")
        for stream in streams if rank == 0 else streams[:1]:
            reader, writer = os.pipe()
            self.pipes[stream] = os.fdopen(reader, "rb", buffering=0)
            self._writers[stream] = os.fdopen(writer, "wb", buffering=0)

    # ------------------------------------------------- for the one who listens to the host

    def feed(self, stream: Stream, data: bytes) -> None:
        """Take in what the worker told; waits while the supervisor does not read."""
        if stream != "events" and self._mirror:
            data = data.replace(self._mirror.encode(), b"")
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more; it was lost
            while data:
                data = data[self._writers[stream].write(data) or 0 :]

    def end(self, status: int) -> None:
        """Take note that it has ended, as of `subprocess.Popen.returncode`."""
        if self._end is None:
            for writer in self._writers.values():
                writer.close()
        super().end(status)

    # ------------------------------------------------------------------ for the supervisor

    def decode(self, data: bytes) -> list[Event]:
        """Cut into events, and translate: our clock, the user's own paths."""
        events = super().decode(data)
        return [self._at_home(in_our_time(event, self._clock_ahead_s)) for event in events]

    def _at_home(self, event: Event) -> Event:
        if not isinstance(event, Failed) or not self._mirror:
            return event
        failure = dataclasses.replace(
            event.failure,
            message=event.failure.message.replace(self._mirror, ""),
            traceback=event.failure.traceback.replace(self._mirror, ""),
            file=event.failure.file.replace(self._mirror, ""),
        )
        return dataclasses.replace(event, failure=failure)

    def signal(self, how: Signals) -> None:
        """Pass a signal on; all but requests to end only once."""
        if self.status is None and (how == SIGINT or how not in self._sent):
            self._sent.add(how)
            self._send_signal(self.rank, how)


def in_our_time(event: Event, clock_ahead_s: float) -> Event:
    """Translate the times of an event that was told by a clock that is ahead of ours."""
    if isinstance(event, Begin):
        return dataclasses.replace(event, time_s=event.time_s - clock_ahead_s)
    if isinstance(event, Usage):
        time_s = event.sample.time_s - clock_ahead_s
        return dataclasses.replace(event, sample=dataclasses.replace(event.sample, time_s=time_s))
    if isinstance(event, Failed):
        time_s = event.failure.time_s - clock_ahead_s
        failure = dataclasses.replace(event.failure, time_s=time_s)
        return dataclasses.replace(event, failure=failure)
    return event
