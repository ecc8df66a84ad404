"""Post-local SGD: all-reduce at first, local SGD afterwards."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.strategies._local_sgd import LocalSGD


class PostLocalSGD(LocalSGD):
    """Sums gradients for some steps, while replicas are equal, and averages parameters then."""

    @dataclass(frozen=True, kw_only=True)
    class Config(LocalSGD.Config):
        """Settings.

        Attributes:
            begin_after: Steps of all-reduce.
        """

        kind: ClassVar[str] = "post-local-sgd"
        summary: ClassVar[str] = "all-reduce for the first steps, then local-sgd"
        formula: ClassVar[str] = "2 (1 − 1/N) S a step at first, then every sync_every steps"
        paper: ClassVar[str] = "Lin et al. 2020, arXiv:1808.07217"
        begin_after: int = 100

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.begin_after < 0:
                raise UsageError("begin_after is negative", remedy="give 0 or more steps")

        @property
        def settled(self) -> LocalSGD.Config:
            """Local SGD."""
            kept = {field.name: getattr(self, field.name) for field in fields(LocalSGD.Config)}
            return LocalSGD.Config(**kept)

        def build(self, group: Group) -> PostLocalSGD:
            """The live strategy."""
            return PostLocalSGD(group, self, self.begin_after)
