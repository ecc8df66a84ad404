"""Circle: the ``reparto run`` commands of several machines, each with a line to the first one.

    machine 1 ──hello──► machine 0          hello: who I am, and what I am about to run
              ◄──here───                    it is the same; others are still missing
              ◄─complete                    all are here: go
              ◄─────────►                   what workers tell and how they end, requests to stop
    machine 2 ◄─────────►  └─ passes on what comes from one machine to all others

Everybody hears everything, and a thing never before its cause: all of it goes through machine 0.
The lines are apart from those on which workers talk, so that a machine is missed at once even if
no worker waits for it. `Circle.turn` does what can be done now. It waits only to reach the first
machine (two seconds an address, and as long as the system takes to look up a name) and to hang up
(half a second at most).
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from reparto.engines._statement import Statement, differences
from reparto.engines._tf_config import Peer
from reparto.errors import EngineError

MEET_LIMIT_S = 120.0  # as that of torch's store
TRY_EVERY_S = 0.5
CONNECT_LIMIT_S = 2.0
CLOSE_LIMIT_S = 0.5
SILENT_LIMIT_S = 10  # a machine that vanished without a word is missed after that
LINE_BYTES = 16 << 20
CHUNK = 1 << 16

Message = dict[str, Any]

_FOR_THE_FIRST = frozenset({"stopping"})  # it alone counts who has heard


class Line:
    """JSON objects, one a line, over a socket; never waits.

    Args:
        connection: A connected socket, owned from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        _notice_silence(connection)
        self._socket = connection
        self._in = self._out = b""
        self.is_open = True

    def send(self, message: Message) -> None:
        """Send as soon as the other side takes it."""
        self._out += json.dumps(message).encode() + b"\n"
        self._flush()

    def receive(self) -> list[Message]:
        """Return what has come."""
        self._flush()
        try:
            while self.is_open:
                data = self._socket.recv(CHUNK)
                self._in += data
                self.is_open = bool(data) and len(self._in) < LINE_BYTES
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False
        *lines, self._in = self._in.split(b"\n")
        return [message for line in lines if (message := _decoded(line)) is not None]

    def close(self, until: float = 0.0) -> None:
        """Send what is left, and hang up when the other side has read it.

        Args:
            until: How long that may take, by `time.monotonic`; 0 for strangers: at once.
        """
        with contextlib.suppress(OSError), self._socket:
            self._socket.settimeout(max(0.0, until - time.monotonic()))
            self._socket.sendall(self._out)
            self._socket.shutdown(socket.SHUT_WR)
            while (left_s := until - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                if not self._socket.recv(CHUNK):  # unread, it would take away what was sent
                    return

    def _flush(self) -> None:
        try:
            while self._out and self.is_open:
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False


class Circle(ABC):
    """One machine's end of it.

    Call order: ``turn`` again and again; ``tell`` at any time; ``close`` once.

    Args:
        peers: All machines.
        position: Of this one among them.
        statement: What this one is about to run.

    Attributes:
        is_complete: Whether all machines are there.
        clocks: By how many seconds each machine's clock is ahead of the first one's.
    """

    def __init__(self, peers: Sequence[Peer], position: int, statement: Statement) -> None:
        self.peers, self.position, self.statement = peers, position, statement
        self.is_complete = False
        self.clocks: dict[int, float] = {0: 0.0}
        self._is_over = False
        self._until = time.monotonic() + MEET_LIMIT_S

    def turn(self) -> list[Message]:
        """Do what can be done now; return what others have told.

        A message has a ``kind``, and ``from``: the position of the machine that told it. Kinds
        that are made here: ``complete`` once, and ``gone`` when a machine is.

        Raises:
            EngineError: If the machines do not come together; says why. Only once.
        """
        if self._is_over:
            return []
        try:
            return self._turn()
        except EngineError:
            self._is_over = True
            raise

    @abstractmethod
    def _turn(self) -> list[Message]: ...

    @abstractmethod
    def tell(self, **message: Any) -> None:
        """Tell all other machines that are there."""

    @abstractmethod
    def missing(self) -> str:
        """Name whom this machine waits for."""

    @abstractmethod
    def close(self) -> None:
        """Hang up."""


class Hub(Circle):
    """The end at machine 0, to which all others come.

    Args:
        listen: Listens at the first peer's port. It stays the caller's.
        peers: All machines.
        statement: What this one is about to run.
    """

    def __init__(self, listen: socket.socket, peers: Sequence[Peer], statement: Statement) -> None:
        super().__init__(peers, 0, statement)
        self._listen = listen
        self._listen.setblocking(False)
        self._strangers: list[Line] = []
        self._lines: dict[int, Line] = {}

    def tell(self, **message: Any) -> None:
        """Tell all others."""
        self._pass_on({"from": 0, **message})

    def missing(self) -> str:
        """Name those that have not come."""
        late = (p.name for k, p in enumerate(self.peers) if k and k not in self._lines)
        return ", ".join(late)

    def close(self) -> None:
        """Hang up."""
        self._is_over = True
        until = time.monotonic() + CLOSE_LIMIT_S
        for line in self._strangers:
            line.close()
        for line in self._lines.values():
            line.close(until)

    def _turn(self) -> list[Message]:
        heard: list[Message] = []
        for position, line in tuple(self._lines.items()):
            for message in line.receive():
                heard.append({**message, "from": position})
            if not line.is_open:
                line.close()
                del self._lines[position]
                if self.is_complete:
                    heard.append({"kind": "gone", "from": position})
        if not self.is_complete and self._all_are_here():
            self.is_complete = True
            heard.append({"kind": "complete", "from": 0})
        for message in heard:
            if message["kind"] not in _FOR_THE_FIRST:
                self._pass_on(message)
        return heard

    def _pass_on(self, message: Message) -> None:
        for position, line in self._lines.items():
            if position != message["from"]:
                line.send({**message, "clocks": self.clocks} if _completes(message) else message)

    def _all_are_here(self) -> bool:
        while (connection := _accepted(self._listen)) is not None:
            self._strangers.append(Line(connection))
        for line in tuple(self._strangers):
            messages = line.receive()
            if messages or not line.is_open:
                self._strangers.remove(line)
                self._greet(line, messages[0] if messages else {})
        if self.missing() and time.monotonic() > self._until:
            first = self.peers[0]
            self._refuse(
                f"{self.missing()} did not come to {first.address}:{first.port} within "
                f"{MEET_LIMIT_S:.0f} s",
                "start the same `reparto run` there, with its own index in TF_CONFIG; see whether "
                f"a firewall keeps it from port {first.port}",
            )
        return not self.missing()

    def _greet(self, line: Line, hello: Message) -> None:
        try:
            position, statement = int(hello["position"]), dict(hello["statement"])
            clock_ahead_s = float(hello["time_s"]) - time.time()
        except (KeyError, TypeError, ValueError):
            line.close()  # whoever that is
            return
        is_ours = 0 < position < len(self.peers)  # else its TF_CONFIG is another
        names = (
            self.peers[0].name,
            self.peers[position].name if is_ours else f"host {position + 1}",
        )
        if what := differences(self.statement, statement, names):
            self._refuse(
                f"{names[0]} and {names[1]} do not run the same: {what}",
                "give all machines the same files, the same reparto and the same command",
                line,
            )
        if position in self._lines or not is_ours:
            why = f"two machines say that they are host {position + 1} of TF_CONFIG"
            line.send(_refusal(why, "give each machine its own index"))
            line.close(time.monotonic() + CLOSE_LIMIT_S)
            return
        self._lines[position], self.clocks[position] = line, clock_ahead_s
        line.send({"kind": "here", "from": 0})

    def _refuse(self, why: str, remedy: str, newcomer: Line | None = None) -> None:
        self._pass_on({**_refusal(why, remedy), "from": 0})
        if newcomer is not None:
            newcomer.send(_refusal(why, remedy))
            newcomer.close(time.monotonic() + CLOSE_LIMIT_S)
        raise EngineError(why, remedy=remedy)


class Spoke(Circle):
    """The end at a machine other than the first."""

    def __init__(self, peers: Sequence[Peer], position: int, statement: Statement) -> None:
        super().__init__(peers, position, statement)
        self._line: Line | None = None
        self._is_greeted = False
        self._try_at = 0.0

    def tell(self, **message: Any) -> None:
        """Tell machine 0, which passes it on."""
        if self._line is not None:
            self._line.send(message)

    def missing(self) -> str:
        """Name the first machine, or others if it is there."""
        first = self.peers[0]
        return "the other machines" if self._is_greeted else f"{first.address}:{first.port}"

    def close(self) -> None:
        """Hang up."""
        self._is_over = True
        if self._line is not None:
            self._line.close(time.monotonic() + CLOSE_LIMIT_S)

    def _turn(self) -> list[Message]:
        now = time.monotonic()
        if self._line is None:
            self._reach(now)
            return []
        heard = self._line.receive()
        for message in heard:
            if message["kind"] == "here":
                self._is_greeted = True
            elif message["kind"] == "refused":
                raise EngineError(message["why"], remedy=message["remedy"])
            elif _completes(message):
                self.is_complete = True
                self.clocks = {int(key): ahead for key, ahead in message["clocks"].items()}
        if not self._line.is_open:
            if self.is_complete:
                heard.append({"kind": "gone", "from": 0})
                self._is_over = True
            else:  # it starts anew, or has ended before all were there
                self._line.close()
                if self._is_greeted:  # it was a `reparto run`, and may come back
                    self._until = now + MEET_LIMIT_S
                elif now > self._until:
                    raise self._unreached("it hung up")
                self._line, self._is_greeted = None, False
        elif not self._is_greeted and now > self._until:
            raise self._unreached("what listens there is no `reparto run`")
        return heard

    def _reach(self, now: float) -> None:
        if now < self._try_at:
            return
        self._try_at = now + TRY_EVERY_S
        first = self.peers[0]
        try:
            connection = socket.create_connection((first.address, first.port), CONNECT_LIMIT_S)
        except OSError as error:
            if now > self._until:
                raise self._unreached(error.strerror or str(error)) from error
            return
        self._line = Line(connection)
        self._line.send(
            {
                "kind": "hello",
                "position": self.position,
                "statement": self.statement,
                "time_s": time.time(),
            }
        )

    def _unreached(self, why: str) -> EngineError:
        first = self.peers[0]
        return EngineError(
            f"{first.address}:{first.port}, the first host of TF_CONFIG, was not reached within "
            f"{MEET_LIMIT_S:.0f} s: {why}",
            remedy="start the same `reparto run` there, with the index 0; see whether a firewall "
            f"keeps this machine from its port {first.port}, and whether address and index in "
            "TF_CONFIG are right",
        )


def _accepted(listen: socket.socket) -> socket.socket | None:
    with contextlib.suppress(OSError):  # nobody is there, or is gone again
        return listen.accept()[0]
    return None


def _decoded(line: bytes) -> Message | None:
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict) and isinstance(message.get("kind"), str):
            return message
    return None


def _completes(message: Message) -> bool:
    return bool(message["kind"] == "complete")


def _refusal(why: str, remedy: str) -> Message:
    return {"kind": "refused", "why": why, "remedy": remedy}


def _notice_silence(connection: socket.socket) -> None:
    """Let the system find out when the other machine is gone without having said so."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": SILENT_LIMIT_S // 2,
        "TCP_KEEPINTVL": 1,
        "TCP_KEEPCNT": SILENT_LIMIT_S // 2,
        "TCP_USER_TIMEOUT": SILENT_LIMIT_S * 1000,
    }
    for name, value in options.items():
        if hasattr(socket, name):  # on Linux all are there
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
