"""Gossip: each worker averages with a few neighbours, and waits for those only.

ring          0 ─ 1 ─ 2 ─ 3 ─ 0          both neighbours
exponential   r with r ± 1, r ± 2, r ± 4, … one distance a round
random        pairs, drawn anew in every round, alike on all workers
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Cluster, Message, Profile, Traffic
from reparto.strategies import _base, compressors
from reparto.strategies._base import ParameterSet
from reparto.strategies._flat import padded
from reparto.strategies._parameter_server import refuse_gpus
from reparto.strategies._replicas import Part, Replica
from reparto.strategies.compressors import PowerSGD, RandomK, Uncompressed

Graph = Literal["ring", "exponential", "random"]


class Gossip(_base.Strategy):
    """Averages parameters with neighbours on a graph.

    With a compressor each worker keeps a public copy of itself and of its neighbours, and what
    travels is the way from the public copy to the true parameters (CHOCO).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Relaxed):
        """Settings.

        Attributes:
            graph: ``ring``, ``exponential`` or ``random``.
            sync_every: Local steps in a round.
            consensus: How far a worker goes towards its neighbours' public copies, where a
                compressor is used.
            compressor: How what travels is made smaller; on a ring only.
            seed: Of the random graph.
        """

        kind: ClassVar[str] = "gossip"
        summary: ClassVar[str] = "parameters are averaged with a few neighbours, peer to peer"
        formula: ClassVar[str] = "S to 1 (random) or 2 neighbours every sync_every steps"
        paper: ClassVar[str] = (
            "Lian et al. 2017 (D-PSGD), arXiv:1705.09056; Assran et al. 2019 (SGP), "
            "arXiv:1811.10792; Koloskova et al. 2019 (CHOCO), arXiv:1902.00340"
        )
        graph: Graph = "exponential"
        sync_every: int = 1
        consensus: float = 0.5
        compressor: compressors.Config = field(default_factory=Uncompressed.Config)
        seed: int = 0

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.sync_every < 1:
                raise UsageError("sync_every is below 1", remedy="give 1 or more steps")
            if isinstance(self.compressor, (RandomK.Config, PowerSGD.Config)):
                raise UsageError(
                    f"{self.compressor.kind} adds up over all workers at once",
                    remedy="neighbours decode each other alone: take quantize, cast or topk",
                )
            if self.compressor.is_lossy and self.graph != "ring":
                raise UsageError(
                    f"a compressor on a graph that is {self.graph}",
                    remedy="set graph=ring: public copies are kept of lasting neighbours only",
                )

        @property
        def changes(self) -> str:
            """Replicas differ."""
            return self.told(
                "workers step by their own gradients and average with a few neighbours only",
                self.compressor,
            )

        def lead(self, num_workers: int) -> int:
            """One round for each neighbour on the way to the other."""
            return num_workers * self.sync_every

        @property
        def waits(self) -> bool:
            """For neighbours only: looking at everyone's speed would make all wait."""
            return False

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """The parameters to each neighbour."""
            size = profile.gradient_bytes
            if self.compressor.is_lossy:
                size = self.compressor.encoded_bytes(profile.num_parameters)
            num_workers = max(1, len(cluster.hosts))
            if self.graph == "random":  # of an odd number, one worker a round talks to nobody
                size = round(size * (num_workers // 2 * 2) / num_workers)
                every = self.sync_every
                return (Message(pattern="swap", size_bytes=size, every=every, ready_at=1.0),)
            rounds = range(len(distances(self, num_workers)))
            every = self.sync_every * len(rounds)
            return tuple(
                Message(pattern="swap", size_bytes=size, every=every, ready_at=1.0)
                for number in rounds
                for _ in neighbours(self, 0, num_workers, number)
            )

        def build(self, group: Group) -> Gossip:
            """The live strategy."""
            return Gossip(group, self)

    def __init__(self, group: Group, config: Gossip.Config) -> None:
        super().__init__(group)
        self.apart = group.size() > 1
        self.config = config
        self.compressor = config.compressor.build(group)
        self.replicas: dict[str, Replica] = {}
        self.public: dict[str, dict[int, Tensor]] = {}
        self._rounds: dict[str, int] = {}

    def start(self, parameters: ParameterSet) -> None:
        """Learn of a set of parameters; all workers begin alike."""
        refuse_gpus(parameters)
        replica = self.replicas[parameters.name] = Replica(parameters)
        for part in replica.parts if self.config.compressor.is_lossy else ():
            members = {*neighbours(self.config, self.group.rank(), self.group.size(), 0)}
            members.add(self.group.rank())
            self.public[part.key] = {member: part.flat() for member in members}

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """The worker's own gradient is what it steps by."""
        return riders

    def after_step(self, parameters: ParameterSet) -> None:
        """Talk to the neighbours when the round is over."""
        replica = self.replicas[parameters.name]
        replica.stepped()
        if replica.num_steps < self.config.sync_every:
            return
        number = self._rounds.get(parameters.name, 0)
        self._rounds[parameters.name] = number + 1
        peers = neighbours(self.config, self.group.rank(), self.group.size(), number)
        for part in replica.parts:
            if self.config.compressor.is_lossy:
                self._towards_public(part, peers)
            else:
                self._average(part, peers)
        replica.met()

    def _average(self, part: Part, peers: Sequence[int]) -> None:
        mine = part.flat()
        total = mine.clone()
        for theirs in self._swapped(mine, peers):
            total += theirs
        part.put(total / (len(peers) + 1))

    def _towards_public(self, part: Part, peers: Sequence[int]) -> None:
        rank, public = self.group.rank(), self.public[part.key]
        mine = part.flat()
        way = mine - public[rank]
        self.compressor.forget()  # what was not sent is part of the way already
        wanted = padded(way, self.compressor.block)
        payload = self.compressor.encode(wanted, part.key)
        received = self._swapped(payload, peers)
        for member, one in ((rank, payload), *zip(peers, received, strict=True)):
            public[member] += self.compressor.decode(one, wanted)[: way.numel()]
        for peer in peers:
            mine += self.config.consensus / len(peers) * (public[peer] - public[rank])
        part.put(mine)

    def _swapped(self, mine: Tensor, peers: Sequence[int]) -> list[Tensor]:
        """Send to every neighbour, and what they sent.

        Receives are posted first: else gloo sends one direction after the other.
        """
        found = [torch.empty_like(mine) for _ in peers]
        works = [
            self.group.recv([theirs], peer, 0) for theirs, peer in zip(found, peers, strict=True)
        ]
        works += [self.group.send([mine], peer, 0) for peer in peers]
        for work in works:
            work.wait()
        return found

    def settle(self) -> None:
        """The mean over all workers."""
        if self.group.size() == 1:
            return
        for replica in self.replicas.values():
            for part in replica.parts:
                part.put(self.group.sum(part.flat()) / self.group.size())
                for member in self.public.get(part.key, ()):
                    self.public[part.key][member] = part.flat()
            replica.met()
        self.compressor.forget()

    def reload(self) -> None:
        """The script has set the parameters itself, alike on all workers."""
        for replica in list(self.replicas.values()):
            self.start(replica.parameters)


def neighbours(config: Gossip.Config, rank: int, size: int, number: int) -> list[int]:
    """Whom a worker averages with in a round; whoever I name names me."""
    if size == 1:
        return []
    if config.graph == "random":
        order = list(range(size))
        random.Random(config.seed * 1000003 + number).shuffle(order)
        place = order.index(rank) ^ 1
        return [order[place]] if place < size else []
    ways = distances(config, size)
    distance = ways[number % len(ways)]
    return sorted({(rank + distance) % size, (rank - distance) % size} - {rank})


def distances(config: Gossip.Config, size: int) -> list[int]:
    """How far away the neighbours of successive rounds are; one number where it is always so."""
    if config.graph != "exponential":
        return [1]
    return [2**power for power in range((size - 1).bit_length()) if 2**power < size] or [1]
