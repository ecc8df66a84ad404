"""One worker: nothing to agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from reparto.comm import Group
from reparto.spec import Cluster, Profile, Traffic
from reparto.strategies import _base


class Single(_base.Strategy):
    """Leaves every gradient as it is."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Config):
        """No settings."""

        kind: ClassVar[str] = "single"
        summary: ClassVar[str] = "one worker, the script as it is"
        formula: ClassVar[str] = "nothing"

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """Nothing is sent."""
            return ()

        def build(self, group: Group) -> Single:
            """The live strategy."""
            return Single(group)

    def gradients_needed(
        self, parameters: _base.ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """The local gradient is the global one."""
        return riders
