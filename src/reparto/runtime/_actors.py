"""Sets of parameters shaped like the script's, which are trained by a live strategy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reparto import strategies
from reparto.comm import Group
from reparto.runtime import _local_costs

#: Updates of all parameters that are timed, the first of them in vain.
UPDATES = 12


class Actor:
    """One set of parameters, shaped like the script's, under a live strategy.

    Args:
        strategy: Adopts them.
        group: Who takes part.
        owner: The script's set.
        update_s: What `update_s` tells of it.
    """

    def __init__(
        self, strategy: strategies.Strategy, group: Group, owner: Any, update_s: float
    ) -> None:
        tensors = _tensors_like(owner)
        self.gradients = [torch.randn_like(tensor) for tensor in tensors]
        self.parameters = strategies.ParameterSet(owner.name, tensors)
        self.optimizer = _local_costs.alike(owner.optimizer, tensors)
        self.parameters.optimizer_ref = lambda: self.optimizer
        self.parameters.share, self.parameters.is_stepping = 1 / group.size(), True
        self.num_steps = 0
        self.parameters.loss_ref = lambda: 1.0 / (1 + self.num_steps)  # it falls
        self.update_s = update_s
        self.strategy = strategy
        strategy.adopt(self.parameters)
        strategy.start(self.parameters)

    def forward(self, work: Callable[[], None]) -> None:
        """Parameters are looked at one after the other."""
        for tensor in self.parameters.tensors:
            self.strategy.whole(tensor)
            work()

    def backward(self, work: Callable[[], None]) -> None:
        """Gradients come one after the other, the last layer's first."""
        _local_costs.lay(self.parameters.tensors, self.gradients)
        self.strategy.backward_begins()
        for index in range(len(self.parameters.tensors) - 1, -1, -1):
            self.strategy.whole(self.parameters.tensors[index])
            work()
            self.strategy.on_gradient(self.parameters, index)
        self.strategy.backward_ends()

    def step(self) -> None:
        """The optimizer's step, wherever it is made."""
        self.strategy.gradients_needed(self.parameters, [0.0, 0.0])
        local_step = self.optimizer.step if self.optimizer is not None else lambda: None
        self.strategy.step(self.parameters, local_step)
        self.strategy.after_step(self.parameters)
        self.num_steps += 1


def _tensors_like(owner: Any) -> list[Tensor]:
    """Parameters shaped like the script's."""
    tensors = [torch.zeros_like(t).normal_(std=0.02) for t in owner.tensors if t.requires_grad]
    return [tensor.requires_grad_() for tensor in tensors]


def update_s(owner: Any) -> float:
    """Processor time of making gradients and of the optimizer's step.

    Both are in that of the script's, too. The first times take longer: memory is new.
    """
    tensors = _tensors_like(owner)
    gradients = [torch.randn_like(tensor) for tensor in tensors]
    optimizer = _local_costs.alike(owner.optimizer, tensors)
    found = []
    for _ in range(UPDATES):
        began = time.process_time()
        _local_costs.lay(tensors, gradients)
        if optimizer is not None:
            optimizer.step()
        found.append(time.process_time() - began)
    return statistics.median(found[UPDATES // 4 :])
