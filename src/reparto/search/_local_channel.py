"""Channel: messages between a crew and a worker process, over a socket. Length, then pickle."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct("<q")
#: Read at most so much at once.
_CHUNK = 1 << 20


class Channel:
    """The worker's end: it waits, and has nothing else to do."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            Exception: Whatever pickle raises for what it cannot take; nothing is sent then.
        """
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._line.sendall(_LENGTH.pack(len(data)))
        self._line.sendall(data)

    def receive(self) -> Any:
        """Wait for a message.

        Raises:
            EOFError: If the crew is gone.
        """
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(size))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size:
            count = self._line.recv_into(view[have:])
            if not count:
                raise EOFError("the crew is gone")
            have += count
        return data


class Inbox:
    """The crew's end: it takes what is there, and never waits for one worker.

    Args:
        line: Is made non-blocking.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        line.setblocking(False)
        self._data = bytearray(_LENGTH.size)
        self._have = 0
        self._is_length = True

    def fileno(self) -> int:
        """For selectors."""
        return self._line.fileno()

    def take(self) -> tuple[list[Any], bool]:
        """Messages that have arrived whole, and whether no more can come."""
        found: list[Any] = []
        while True:
            view = memoryview(self._data)[self._have : self._have + _CHUNK]
            try:
                count = self._line.recv_into(view)
            except BlockingIOError:
                return found, False
            except OSError:
                return found, True
            if not count:
                return found, True
            self._have += count
            if self._have == len(self._data):
                self._whole(found)

    def _whole(self, found: list[Any]) -> None:
        data, self._have = self._data, 0
        self._is_length = not self._is_length
        if self._is_length:
            found.append(pickle.loads(data))
            self._data = bytearray(_LENGTH.size)
        else:
            (size,) = _LENGTH.unpack(data)
            self._data = bytearray(size)

    def send(self, message: Any) -> None:
        """Send something small; a worker that is gone has told so otherwise."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._line.setblocking(True)
        try:
            self._line.sendall(_LENGTH.pack(len(data)) + data)
        except OSError:
            return
        finally:
            self._line.setblocking(False)

    def close(self) -> None:
        """Let the worker know that there is nobody any more."""
        self._line.close()
