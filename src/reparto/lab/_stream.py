"""One end of a stream of bytes between two hosts; run as a process on each.

    python -m reparto.lab._stream receive ADDRESS PORT          prints JSON when the stream ends
    python -m reparto.lab._stream send ADDRESS PORT SECONDS

What comes in the first part of the stream is not counted: there the bucket is full and TCP learns.
"""

from __future__ import annotations

import json
import socket
import sys
import time

SKIPPED_S = 0.5
_BLOCK = 1 << 16
_CONNECT_S = 60.0


def receive(address: str, port: int) -> dict[str, float]:
    """Take what comes, from one sender: payload bytes and seconds after the skipped part."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        server.settimeout(_CONNECT_S)
        stream, _ = server.accept()
    counted, began, last = 0, 0.0, 0.0
    buffer = bytearray(_BLOCK)
    with stream:
        first = time.perf_counter()
        while count := stream.recv_into(buffer):
            now = time.perf_counter()
            if began:
                counted, last = counted + count, now
            elif now - first >= SKIPPED_S:
                began = now
    return {"bytes": counted, "seconds": last - began}


def send(address: str, port: int, seconds: float) -> None:
    """Send for so long, as fast as it goes."""
    block = bytes(_BLOCK)
    with socket.create_connection((address, port), timeout=_CONNECT_S) as stream:
        until = time.perf_counter() + SKIPPED_S + seconds
        while time.perf_counter() < until:
            stream.sendall(block)


def round_trips(address: str, port: int, count: int) -> dict[str, float]:
    """Seconds of the quickest of some round trips of one byte: who answers is `echo`."""
    found = []
    with socket.create_connection((address, port), timeout=_CONNECT_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            began = time.perf_counter()
            stream.sendall(b".")
            stream.recv(1)
            found.append(time.perf_counter() - began)
    return {"seconds": min(found)}


def echo(address: str, port: int) -> None:
    """Send back what comes, byte by byte."""
    with socket.create_server((address, port)) as server:
        print("ready", flush=True)
        server.settimeout(_CONNECT_S)
        stream, _ = server.accept()
    with stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while told := stream.recv(1):
            stream.sendall(told)


def main(words: list[str]) -> None:
    """Be the end that the command line asks for."""
    what, address, port, *more = words
    if what == "receive":
        print(json.dumps(receive(address, int(port))), flush=True)
    elif what == "send":
        send(address, int(port), float(more[0]))
    elif what == "echo":
        echo(address, int(port))
    else:
        print(json.dumps(round_trips(address, int(port), int(more[0]))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
