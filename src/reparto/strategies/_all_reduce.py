"""All-reduce: every worker sums every gradient, in buckets, during the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Cluster, Message, Profile, Traffic
from reparto.strategies import _base, compressors
from reparto.strategies._base import ParameterSet, grad_of
from reparto.strategies._buckets import NUM_RIDERS, Bucket, make_buckets
from reparto.strategies._sparse import sum_sparse
from reparto.strategies.compressors import Uncompressed

#: Sums of gradients that are so many times smaller have lost much.
ROUGH = 5.0


class AllReduce(_base.Strategy):
    """Sums gradients over all workers, exactly.

    Buckets go from the last tensor to the first and are sent in that order, each as soon as the
    gradients of it and of those before it have arrived. The last bucket waits for
    ``gradients_needed`` and carries the riders.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Shared):
        """Settings.

        Attributes:
            bucket_bytes: Gradients are sent in pieces of about that size.
            compressor: How they are made smaller.
        """

        kind: ClassVar[str] = "all-reduce"
        summary: ClassVar[str] = "every worker sums every gradient, during the backward pass"
        formula: ClassVar[str] = "2 (1 − 1/N) S a step, around a ring"
        paper: ClassVar[str] = "Patarasuk and Yuan 2009; Li et al. 2020, arXiv:2006.15704"
        bucket_bytes: int = 25 * 2**20
        compressor: compressors.Config = field(default_factory=Uncompressed.Config)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.bucket_bytes < 1:
                raise UsageError(f"bucket_bytes={self.bucket_bytes}", remedy="give 1 or more")

        @property
        def can_average(self) -> bool:
            """Yes."""
            return True

        @property
        def changes(self) -> str:
            """Compression loses, and so may larger batches."""
            told = [self.changes_of_batch]
            if self.compressor.is_lossy:
                told.append(f"gradients are added up lossily ({self.compressor.summary})")
            return "; ".join(filter(None, told))

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """One message a bucket, ready as the backward pass goes on."""
            if self.compressor.is_lossy:
                shapes = profile.shapes or ((profile.num_parameters,),)
                return self.compressor.messages(shapes, max(1, len(cluster.hosts)))
            count = max(1, -(-profile.gradient_bytes // self.bucket_bytes))
            begin, span = profile.forward_fraction, 1 - profile.forward_fraction
            size = profile.gradient_bytes // count
            return tuple(
                Message(
                    pattern="all-reduce", size_bytes=size, ready_at=begin + span * (i + 1) / count
                )
                for i in range(count)
            )

        def build(self, group: Group) -> AllReduce:
            """The live strategy."""
            if self.horizon:
                from reparto.strategies._average import AveragedAllReduce

                return AveragedAllReduce(group, self)
            return AllReduce(group, self)

    def __init__(self, group: Group, config: AllReduce.Config) -> None:
        super().__init__(group)
        self.config = config
        self._buckets: dict[str, list[Bucket]] = {}
        self._slots: dict[str, dict[int, tuple[int, int]]] = {}
        self._sparse: dict[str, list[int]] = {}
        self._launched: dict[str, int] = {}
        self._has_warned = False
        self._compressor = config.compressor.build(group) if config.compressor.is_lossy else None

    def _warn(self, parameters: ParameterSet) -> None:
        """Adam divides by the variance of gradients, to which rough compression adds its own."""
        if self._has_warned or self._compressor is None:
            return
        groups = getattr(parameters.optimizer, "param_groups", ())
        is_rough = self.config.compressor.ratio([2**20]) > ROUGH
        if is_rough and any("betas" in group for group in groups):
            self._has_warned = True
            self.tell(
                "gradients that are compressed so much spoil Adam: --strategy diloco --set "
                "sync_every=1 compresses the steps it takes instead, in as few bytes"
            )

    def start(self, parameters: ParameterSet) -> None:
        """Fix the buckets; tensors with sparse gradients go on their own."""
        self._warn(parameters)
        sparse = self._sparse_ones(parameters)
        dense = [
            index
            for index, tensor in enumerate(parameters.tensors)
            if index not in sparse and tensor.requires_grad
        ]
        buckets = make_buckets([parameters.tensors[i] for i in dense], self.config.bucket_bytes)
        self._buckets[parameters.name] = buckets
        self._sparse[parameters.name] = sparse
        self._launched[parameters.name] = 0
        self._slots[parameters.name] = {
            dense[position]: (number, slot)
            for number, bucket in enumerate(buckets[:-1])  # the last one waits anyway
            for slot, position in enumerate(bucket.indices)
        }

    def _sparse_ones(self, parameters: ParameterSet) -> list[int]:
        """Which tensors have sparse gradients; on some workers they may have none yet."""
        grads = [grad_of(tensor) for tensor in parameters.tensors]
        flags = torch.tensor([grad is not None and grad.is_sparse for grad in grads])
        votes = self.group.sum(flags.to(torch.int64)).tolist() if grads else []
        return [index for index, count in enumerate(votes) if count]

    def on_gradient(self, parameters: ParameterSet, index: int) -> None:
        """Send what is complete, in order."""
        name = parameters.name
        found = self._slots[name].get(index)
        if found is None or self._compressor is not None:
            return
        number, slot = found
        buckets = self._buckets[name]
        buckets[number].arrived.add(slot)
        while self._launched[name] < len(buckets) - 1:
            bucket = buckets[self._launched[name]]
            if len(bucket.arrived) < len(bucket.tensors):
                return
            bucket.launch(self.group)
            self._launched[name] += 1

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Send the rest, wait for all, and put the sums on the tensors."""
        name = parameters.name
        buckets = self._buckets[name]
        carries = bool(buckets) and buckets[-1].num_riders == NUM_RIDERS
        for number in range(self._launched[name], len(buckets)):
            riding = riders if number == len(buckets) - 1 and carries else ()
            if self._compressor is None:
                buckets[number].launch(self.group, riding)
            else:
                buckets[number].sum_by(self._compressor, f"{name}/{number}", riding)
        self._launched[name] = 0
        totals: Sequence[float] = ()
        for bucket in buckets:
            totals = bucket.finish()
        for index in self._sparse[name]:
            sum_sparse(self.group, parameters.tensors[index])
        if carries:
            return totals[: len(riders)]
        return self._sum_apart(riders)

    def discard(self, parameters: ParameterSet) -> None:
        """Let what was sent arrive, and drop it."""
        name = parameters.name
        for bucket in self._buckets.get(name, []):
            if bucket.work is not None:
                bucket.work.wait()
            bucket.reset()
        self._launched[name] = 0

    def _sum_apart(self, riders: Sequence[float]) -> Sequence[float]:
        if not riders:
            return ()
        totals: list[float] = self.group.sum(torch.tensor(riders, dtype=torch.float64)).tolist()
        return totals
