"""A training step as one captured graph: what `reparto run` makes of a script on a GPU by itself.

    first steps: as they are ──► captured once ──► copy a batch into its place, launch; and again
                                                   (batches are cut from data on the device)

It is the same training as the plain loop: the same first numbers, batches, and number of steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from reparto.bench._cells import Cell
from reparto.bench._device import Device
from reparto.bench._loop import Loop
from reparto.bench._subject import Subject


class CapturedLoop(Loop):
    """Trains a model by launching one graph a step.

    Args:
        subject: The model and its data.
        cell: How.
        device: Where.
    """

    def __init__(self, subject: Subject, cell: Cell, device: Device) -> None:
        super().__init__(subject, cell, device)
        self._x, self._y = self._x.to(device.torch), self._y.to(device.torch)
        self._inputs = torch.empty_like(self._x[: cell.batch_rows])
        self._targets = torch.empty_like(self._y[: cell.batch_rows])
        self._optimizer = torch.optim.Adam(
            self.model.parameters(), lr=subject.rate, fused=True, capturable=device.is_gpu
        )
        self._launch: Callable[[], None] | None = None

    def steps(self, count: int) -> None:
        """Make several. The first time they are made as they are, and then one is captured."""
        self.model.train()
        with self._device.precision(self._dtype):
            if self._launch is None:
                with self._device.aside():
                    self._repeat(self._in_place, count)
                self._launch = self._device.captured(self._in_place)
            else:
                self._repeat(self._launch, count)

    def _repeat(self, work: Callable[[], None], count: int) -> None:
        for _ in range(count):
            x, y = next(self._batch_of)
            self._inputs.copy_(x)
            self._targets.copy_(y)
            work()

    def _in_place(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._device.autocast(self._dtype):
            loss = nn.functional.mse_loss(self.model(self._inputs), self._targets)
        loss.backward()
        self._optimizer.step()
