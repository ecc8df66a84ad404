"""What all workers must agree on: the batches that they share out, the parameters they begin with.

loader ─► add ─► digest ─► rides along with the gradients ─► compare: N times one's own?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reparto.errors import DisagreementError

if TYPE_CHECKING:
    from reparto.runtime._world import World


class Agreement:
    """A digest of what this worker has seen since the last comparison.

    Args:
        world: The worker's world.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._digest = 0

    def add(self, number: int) -> None:
        """Mix something into what all workers must agree on."""
        self._digest = hash((self._digest, number))

    def digest(self) -> tuple[float, float]:
        """What all workers must agree on, as two small numbers that float32 holds exactly."""
        return float(self._digest & 0xFFF), float((self._digest >> 12) & 0xFFF)

    def compare(self, totals: Sequence[float]) -> None:
        """Compare with the sums over workers."""
        world = self.world
        if world.size == 1 or len(totals) < 2:
            return
        mine = self.digest()
        if any(round(total) != world.size * own for total, own in zip(totals, mine, strict=True)):
            raise DisagreementError(
                f"worker {world.rank} works on other data than its peers at step "
                f"{world.num_steps + 1}"
            )
        self._digest = 0

    def check_replicas(self, tensors: list[Tensor]) -> None:
        """Make sure that every worker begins with the same parameters."""
        world = self.world
        if world.size == 1 or not tensors:
            return
        real = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
        sums = [_sums(t.detach()) for t in real if t.is_floating_point()]
        if not sums:
            return
        mine = torch.stack(sums)
        theirs = world.data.gather_all(mine)
        if all(torch.equal(one, theirs[0]) for one in theirs):
            return
        world.note("workers began with different parameters; worker 0's were taken")
        with torch.no_grad():
            for tensor in tensors:
                world.data.share(tensor)


def _sums(tensor: Tensor) -> Tensor:
    """Two numbers that tell a tensor from another; one at a time is made wide."""
    wide = tensor.double()
    return torch.stack([wide.sum(), wide.abs().sum()])
