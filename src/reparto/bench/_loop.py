"""The plain loop, as people write it, with its data on the host."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from reparto.bench._cells import Cell
from reparto.bench._data import HELD
from reparto.bench._device import Device
from reparto.bench._subject import Subject

_CHUNK = 256


class Loop:
    """Trains a model, batch by batch.

    Args:
        subject: The model and its data.
        cell: How.
        device: Where.
    """

    def __init__(self, subject: Subject, cell: Cell, device: Device) -> None:
        self._x, self._y, self._rows = subject.x, subject.y, cell.batch_rows
        if cell.batch_rows > len(self._x):
            raise ValueError(f"there are only {len(self._x)} samples")
        self._device, self._dtype = device, cell.dtype
        self.model: nn.Module = subject.model(device.torch)
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=subject.rate)
        self._batch_of = self._batches()

    def step(self) -> Tensor:
        """Make one step."""
        x, y = next(self._batch_of)
        x, y = x.to(self._device.torch), y.to(self._device.torch)
        with self._device.autocast(self._dtype):  # of each step: it remembers weights it has cast
            loss = nn.functional.mse_loss(self.model(x), y)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss

    def steps(self, count: int) -> None:
        """Make several."""
        self.model.train()
        with self._device.precision(self._dtype):
            for _ in range(count):
                self.step()

    def held_loss(self) -> float:
        """The mean loss of the held samples, as it is now."""
        self.model.eval()
        total = 0.0
        with torch.inference_mode(), self._device.computing(self._dtype):
            for first in range(0, min(HELD, len(self._x)), _CHUNK):
                last = min(first + _CHUNK, HELD, len(self._x))
                x = self._x[first:last].to(self._device.torch)
                y = self._y[first:last].to(self._device.torch)
                loss = nn.functional.mse_loss(self.model(x).float(), y)
                total += loss.item() * (last - first)
        return total / min(HELD, len(self._x))

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for first in range(0, len(self._x) - self._rows + 1, self._rows):
                part = slice(first, first + self._rows)
                yield self._x[part], self._y[part]
