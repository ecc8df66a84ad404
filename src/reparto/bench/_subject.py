"""Subject: a model with its data, made once and then measured in many ways.

The first weights are made on the CPU by a fixed seed, and kept: each measurement starts from the
same numbers, on whatever device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from reparto.bench import _data, _grid, _models, _recipe
from reparto.bench._cells import Cell
from reparto.bench._data import DataSet
from reparto.spec import Work

SEED = 0


class Subject:
    """What cells of one model have in common.

    Args:
        cell: One of them.
    """

    def __init__(self, cell: Cell) -> None:
        self.source, self.suite, self.name = cell.source, cell.suite, cell.model
        self.hidden = _grid.hidden_of(cell.model) if cell.source == "grid" else ()
        self.make: Callable[[], nn.Module] = (
            partial(_models.perceptron, self.hidden)
            if cell.source == "grid"
            else _models.cnn
            if cell.source == "cnn"
            else partial(_models.of_user, cell.where)
        )
        self.data = _data_of(cell.source, cell.input_shape)
        self.sample = tuple(self.data.x.shape[1:])
        self.rate = _recipe.rate_of(self.hidden)
        torch.manual_seed(SEED)
        self._pristine = self.make()
        self.num_parameters = _models.num_parameters(self._pristine)

    def model(self, device: torch.device) -> nn.Module:
        """The model with its first weights, on a device."""
        if self.source == "model":  # whatever a user's model holds besides its state
            torch.manual_seed(SEED)
            return self.make().to(device)
        with torch.device("meta"):
            empty = self.make()
        made = empty.to_empty(device=device)
        made.load_state_dict(self._pristine.state_dict())
        return made

    @cached_property
    def x(self) -> Tensor:
        """Inputs, on the host."""
        return torch.from_numpy(self.data.x)

    @cached_property
    def y(self) -> Tensor:
        """What the model is to say, on the host; of random inputs a linear function of them."""
        if self.data.y is not None:
            return torch.from_numpy(self.data.y)
        with torch.inference_mode():
            out = self._pristine.eval()(self.x[:2])
        if not isinstance(out, Tensor):
            raise TypeError(f"the model answers with a {type(out).__name__}, not with a tensor")
        flat = self.data.x.reshape(len(self.data.x), -1)[:, :1024]
        size = out[0].numel()
        line = np.random.default_rng(SEED).standard_normal((flat.shape[1], size))
        told = (flat @ line.astype(np.float32)) / np.float32(np.sqrt(flat.shape[1]))
        return torch.from_numpy(told).reshape(len(flat), *out.shape[1:])

    def flops(self, rows: int, *, train: bool) -> float:
        """Of a step or a call; 0.0 where they cannot be counted."""
        if self.source == "grid":
            return _recipe.grid_flops(self.hidden, rows, train=train)
        if self.source == "cnn":
            return _recipe.cnn_flops(rows, train=train)
        return _models.flops_of_step(self.make, self.sample, rows, train=train)

    def work(self, cell: Cell) -> Work:
        """What a cell of this model computes."""
        train = cell.mode == "train"
        return Work(
            suite=self.suite,
            model=self.name,
            num_parameters=self.num_parameters,
            num_samples=len(self.data.x) if train else cell.batch_rows,
            batch_rows=cell.batch_rows,
            data=self.data.digest,
            target_steps=self._target_steps(cell.batch_rows) if train else 0,
        )

    def _target_steps(self, rows: int) -> int:
        return _recipe.target_steps(self.num_parameters, self.flops(rows, train=True), rows)


@lru_cache(maxsize=1)
def _data_of(source: str, shape: tuple[int, ...]) -> DataSet:
    if source == "grid":
        return _data.grid_data()
    return _data.cnn_data() if source == "cnn" else _data.random_data(shape)
