"""TF_CONFIG: which hosts there are and which one this is, as TensorFlow's users write it. Pure.

    {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]},
     "task": {"type": "worker", "index": 1}}          this is c, the third of a, b, c

The chief comes before the workers. Servers of reparto are workers themselves, and it evaluates
where the script does: tasks of the types ``ps`` and ``evaluator`` have no part.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reparto.errors import UsageError

VARIABLE = "TF_CONFIG"

_TRAINING = ("chief", "master", "worker")
_IDLE = ("ps", "evaluator")
_PORT = re.compile("[0-9]{1,5}")
_EXAMPLE = (
    'write {"cluster": {"worker": ["10.0.0.1:23456", "10.0.0.2:23456"]}, '
    '"task": {"type": "worker", "index": 0}}, on each machine with its own index; '
    "--engine local does not read it"
)


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A host that trains.

    Attributes:
        name: As shown to people: the address, with the port where one address stands for several.
        address: Its name or its IPv4 address.
        port: On which the first one listens.
    """

    name: str
    address: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """The part of this machine.

    Attributes:
        kind: ``chief``, ``worker``, ``ps`` and so on.
        index: Among those of its kind.
        peers: The hosts that train, the first one first.
        position: Of this machine among them; None if it does not train.
    """

    kind: str
    index: int
    peers: tuple[Peer, ...]
    position: int | None

    def told(self) -> str:
        """Say it in a line."""
        who = f"TF_CONFIG: this is {self.kind} {self.index}"
        if self.position is None:
            return f"{who}: nothing to do, servers of reparto are workers; the others train"
        hosts = ", ".join(peer.name for peer in self.peers)
        return f"{who}, host {self.position + 1} of {len(self.peers)} ({hosts})"


def task_of(env: Mapping[str, str]) -> Task | None:
    """Read TF_CONFIG.

    Args:
        env: The environment.

    Returns:
        The part of this machine; None if the variable is not set.

    Raises:
        UsageError: If it cannot be understood; says what is wrong and how to write it.
    """
    text = env.get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _wrong(f"is no JSON: {error}") from error
    cluster, task = _part(config, "cluster"), _part(config, "task")
    hosts = {kind: _addresses(cluster, kind) for kind in _TRAINING}
    peers = _named([host for kind in _TRAINING for host in hosts[kind]])
    if not peers:
        raise _wrong("names neither a chief nor a worker")
    kind, index = task.get("type"), _index(task)
    if kind in _IDLE:
        return Task(kind=kind, index=index, peers=peers, position=None)
    if kind not in _TRAINING:
        raise _wrong(f"has a task of the type {kind!r}")
    if not 0 <= index < len(hosts[kind]):
        raise _wrong(f"has the index {index}, but {len(hosts[kind])} of the type {kind!r}")
    before = sum(len(hosts[each]) for each in _TRAINING[: _TRAINING.index(kind)])
    return Task(kind=kind, index=index, peers=peers, position=before + index)


def _part(config: Any, key: str) -> dict[str, Any]:
    part = config.get(key) if isinstance(config, dict) else None
    if not isinstance(part, dict):
        raise _wrong(f"has no {key!r}")
    return part


def _index(task: Mapping[str, Any]) -> int:
    found = re.fullmatch(r"-?[0-9]{1,9}", json.dumps(task.get("index")).strip('"'))
    if found is None:
        raise _wrong("has no index in its task that is a whole number")
    return int(found[0])


def _addresses(cluster: Mapping[str, Any], kind: str) -> list[tuple[str, int]]:
    listed = cluster.get(kind, [])
    if not isinstance(listed, list):
        raise _wrong(f"has no list of addresses in {kind!r}")
    return [_address(text) for text in listed]


def _address(text: Any) -> tuple[str, int]:
    address, colon, port = str(text).rpartition(":")
    if not colon or not address or not _PORT.fullmatch(port) or not 0 < int(port) < 1 << 16:
        raise _wrong(f"has the address {text!r}", "write host:port, as in 10.0.0.1:23456")
    if ":" in address:
        raise _wrong(f"has the address {text!r}", "workers talk over IPv4: give a name or that")
    return address, int(port)


def _named(hosts: list[tuple[str, int]]) -> tuple[Peer, ...]:
    twice = [host for host, count in Counter(hosts).items() if count > 1]
    if twice:
        raise _wrong("names {}:{} twice".format(*twice[0]))
    places = Counter(address for address, _ in hosts)
    return tuple(
        Peer(
            name=address if places[address] == 1 else f"{address}:{port}",
            address=address,
            port=port,
        )
        for address, port in hosts
    )


def _wrong(what: str, remedy: str = _EXAMPLE) -> UsageError:
    return UsageError(f"{VARIABLE} {what}", remedy=remedy)
