"""Second moments, levelled: as large on every worker as over all of them, block by block.

    worker 0   ▁▁▁▁ ▅▅▅▅ ____        mean of each block over workers        ▁▁▁▁ ▃▃▃▃ ▃▃▃▃
    worker 1   ▁▁▁▁ ▂▂▂▂ ▅▅▅▅    ──► (few numbers to send: 1 of 256)   ──► ▁▁▁▁ ▃▃▃▃ ▃▃▃▃

Adam divides by the root of the second moment. A row of an embedding that one worker alone has seen
lately has a large moment there and none elsewhere: apart, workers step differently, and a rare row
moves a fraction of its way when their drifts are averaged. Within a block each worker keeps the
proportions that it has found.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.strategies._base import ParameterSet

BLOCK = 256
#: What torch's optimizers call the second moment.
_NAMES = ("exp_avg_sq", "square_avg")


class Levels:
    """The block means of a set's second moments on this worker, and over all.

    Made where a round is sent; applied where it lands.

    Args:
        parameters: The set; its optimizer has made a step.
    """

    def __init__(self, parameters: ParameterSet) -> None:
        self._optimizer: Any = parameters.optimizer
        self._tensors = [one for one in parameters.tensors if one.is_floating_point()]
        means = [_block_means(one, self._moment(one)) for one in self._tensors]
        self._own = torch.cat(means) if means else torch.zeros(0)
        self._common = self._own

    @property
    def has_any(self) -> bool:
        """Whether the optimizer has second moments."""
        return any(self._moment(one) is not None for one in self._tensors)

    @property
    def size_bytes(self) -> int:
        """What is sent."""
        return self._own.numel() * self._own.element_size()

    def meet(self, group: Group) -> None:
        """Find the means over all workers; collective."""
        self._common = group.sum(self._own / group.size())

    def apply(self) -> None:
        """Scale this worker's moments; where it has none, take the mean.

        What the moments have grown by since the round was sent is this worker's own, and stays.
        """
        counts = [_num_blocks(one.numel()) for one in self._tensors]
        for tensor, own, common in zip(
            self._tensors, self._own.split(counts), self._common.split(counts), strict=True
        ):
            moment = self._moment(tensor)
            if moment is None:
                continue
            now = _block_means(tensor, moment)
            wanted = common + (now - own).clamp_min_(0.0)
            has = now > 0
            factors = torch.where(has, wanted / now.clamp_min(torch.finfo(now.dtype).tiny), 1.0)
            added = torch.where(has, 0.0, wanted)
            _scale(moment.view(-1), factors.to(moment), added.to(moment))

    def _moment(self, tensor: Tensor) -> Tensor | None:
        state = self._optimizer.state.get(tensor, {}) if self._optimizer is not None else {}
        for name in _NAMES:
            value = state.get(name)
            if isinstance(value, Tensor) and value.shape == tensor.shape and value.is_contiguous():
                return value
        return None


def level_bytes(num_elements: int) -> int:
    """What levelling sends for so many parameters."""
    return 4 * _num_blocks(num_elements)


def _num_blocks(num_elements: int) -> int:
    return -(-num_elements // BLOCK)


def _block_means(tensor: Tensor, moment: Tensor | None) -> Tensor:
    """Of whole blocks, and of the rest at the end."""
    count = _num_blocks(tensor.numel())
    if moment is None:
        return torch.zeros(count, device=tensor.device)
    flat = moment.view(-1)
    whole = flat.numel() // BLOCK * BLOCK
    means = flat[:whole].view(-1, BLOCK).mean(1)
    return torch.cat([means, flat[whole:].mean().view(1)] if whole < flat.numel() else [means]).to(
        torch.float32
    )


def _scale(flat: Tensor, factors: Tensor, added: Tensor) -> None:
    whole = flat.numel() // BLOCK * BLOCK
    count = whole // BLOCK
    blocks = flat[:whole].view(-1, BLOCK)
    blocks.mul_(factors[:count, None]).add_(added[:count, None])
    if whole < flat.numel():
        flat[whole:].mul_(factors[-1]).add_(added[-1])
