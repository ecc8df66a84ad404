"""Compressor: how flat tensors become fewer bytes, and how they are added up as such."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.spec import Message, Pattern, wire_bytes

Shapes = Sequence[Sequence[int]]

# As they are before the runtime watches the script's.
_zeros, _empty = torch.zeros, torch.empty


@dataclass(frozen=True, kw_only=True)
class Config(ABC):
    """Settings of a compressor: frozen, picklable, readable by the planner.

    Attributes:
        kind: Its name on the command line.
        summary: One line for people.
        paper: Where it comes from.
    """

    kind: ClassVar[str]
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""

    @property
    def is_lossy(self) -> bool:
        """Whether sums come out otherwise than without it."""
        return True

    @abstractmethod
    def parts(self, shapes: Shapes, num_workers: int) -> tuple[tuple[Pattern, int], ...]:
        """What one worker hands over when tensors of these shapes are added up once.

        Args:
            shapes: Of the tensors that travel together; elements of four bytes.
            num_workers: How many add up.

        Returns:
            For each operation its pattern and payload in bytes.
        """

    @abstractmethod
    def build(self, group: Group) -> Compressor:
        """The live compressor of one worker."""

    def ratio(self, shape: Sequence[int], num_workers: int = 2) -> float:
        """How many times fewer bytes a sum puts on the wire, without compressing anything."""
        sent = sum(wire_bytes(*part, num_workers) for part in self.parts([shape], num_workers))
        return wire_bytes("all-reduce", 4 * prod(shape), num_workers) / sent if sent else 1.0

    def encoded_bytes(self, numel: int) -> int:
        """How many bytes a flat tensor becomes."""
        return self.parts([(numel,)], 1)[-1][1]

    def messages(
        self,
        shapes: Shapes,
        num_workers: int,
        *,
        every: int = 1,
        ready_at: float = 1.0,
        width: float = 4.0,
    ) -> tuple[Message, ...]:
        """The same as recurring messages.

        Args:
            shapes: As of `parts`.
            num_workers: As of `parts`.
            every: In how many steps.
            ready_at: When in the step.
            width: Bytes of an element. What compression makes of other than four is not foretold.
        """
        scale = 1.0 if self.is_lossy else width / 4
        return tuple(
            Message(
                pattern=pattern, size_bytes=round(scale * size), every=every, ready_at=ready_at
            )
            for pattern, size in self.parts(shapes, num_workers)
        )


class Compressor(ABC):
    """Adds up flat tensors over workers in fewer bytes; one object a worker.

    What is lost in one call is kept by ``key`` and added in the next one with that key. The sum is
    the same on every worker, to the bit.

    Args:
        group: The workers that add up.

    Attributes:
        block: ``encode`` takes multiples of so many elements.
    """

    block: int = 1

    def __init__(self, group: Group) -> None:
        self.group = group
        self._owed: dict[str, Tensor] = {}

    @abstractmethod
    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """A flat tensor as bytes; what is lost is remembered under the key."""

    @abstractmethod
    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """What another worker encoded, as a flat tensor shaped like this one."""

    @abstractmethod
    def sum_over(self, flat: Tensor, shapes: Shapes, key: str) -> Tensor:
        """The sum over workers; a fresh flat tensor.

        Args:
            flat: This worker's term: tensors laid end to end.
            shapes: Of those tensors.
            key: Stands for what is added up, the same from step to step and on every worker.
        """

    def forget(self) -> None:
        """Drop what is owed (the workers have agreed by other means)."""
        self._owed.clear()

    def left(self, key: str, numel: int) -> Tensor | None:
        """What this worker's last term has lost, of which the caller takes care from now on."""
        return self._owed.pop(key, None)

    def with_owed(self, tensor: Tensor, key: str) -> Tensor:
        """A term plus what earlier calls owe; fresh."""
        owed = self._owed.get(key)
        if owed is None or owed.shape != tensor.shape or owed.dtype != tensor.dtype:
            return tensor.clone()
        return tensor + owed

    def owe(self, key: str, wanted: Tensor, sent: Tensor) -> None:
        """Remember what a call has lost; what is no number was sent as such, and is not owed."""
        self._owed[key] = (wanted - sent).nan_to_num_(0.0, 0.0, 0.0)


class Chunked(Compressor):
    """Adds up in two rounds, so that bytes do not grow with the number of workers.

        worker r ── chunk j, encoded ──► worker j    adds up the chunks j of all
        worker j ── its sum, encoded ──► everyone

    Both rounds lose, and both losses are owed.
    """

    def sum_over(self, flat: Tensor, shapes: Shapes, key: str) -> Tensor:
        """Exchange chunks, add up one's own, and gather the sums."""
        size, rank = self.group.size(), self.group.rank()
        chunk = chunk_length(flat.numel(), size, self.block)
        padded = _zeros(size * chunk, dtype=flat.dtype, device=flat.device)
        padded[: flat.numel()].copy_(flat)
        sent = torch.stack(
            [
                self.encode(part, f"{key}/to {number}")
                for number, part in enumerate(padded.view(size, chunk))
            ]
        )
        received = self.group.exchange(sent)
        like = padded[:chunk]
        total = self.decode(received[0], like)
        for payload in received[1:]:
            total += self.decode(payload, like)
        sums = self.group.gather_all(self.encode(total, f"{key}/sum of {rank}"))
        whole = torch.cat([self.decode(payload, like) for payload in sums])
        return whole[: flat.numel()]

    def left(self, key: str, numel: int) -> Tensor | None:
        """That of the chunks; what their sums lose is still owed."""
        found = [self._owed.pop(f"{key}/to {one}", None) for one in range(self.group.size())]
        chunks = [one for one in found if one is not None]
        return torch.cat(chunks)[:numel] if len(chunks) == len(found) else None


def chunk_length(numel: int, num_workers: int, block: int) -> int:
    """Elements of each worker's chunk, a multiple of the block."""
    return -(-numel // (num_workers * block)) * block
