"""The models themselves: perceptrons and the CNN of the grid, and a user's class."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from reparto.bench import _grid
from reparto.errors import UsageError


def perceptron(hidden: tuple[int, ...]) -> nn.Module:
    """Linear layers with rectifiers between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise((_grid.NUM_INPUTS, *hidden)):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], _grid.NUM_OUTPUTS))


def cnn() -> nn.Module:
    """Two convolutions, pooling, two dense layers, with dropout; for maps of 50×50."""
    side = (_grid.MAP_SIDE - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
        *(nn.Linear(64 * side * side, 128), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(128, _grid.NUM_OUTPUTS),
    )


def of_user(where: str) -> nn.Module:
    """Make a model of a class, or by a function, without arguments.

    Args:
        where: ``package.module:Model`` or ``path/to/file.py:Model``.

    Raises:
        UsageError: If it cannot be imported, or makes no model.
    """
    module, _, name = where.rpartition(":")
    try:
        found = getattr(_imported(module), name)
    except (ImportError, AttributeError, OSError) as error:
        raise UsageError(
            f"{where}: {error}", remedy="is it on the path, and is it called so?"
        ) from error
    try:
        model = found()
    except TypeError as error:
        raise UsageError(
            f"{where} cannot be made without arguments: {error}",
            remedy="name a function that makes it, as path/to/file.py:make_model",
        ) from error
    if not isinstance(model, nn.Module):
        raise UsageError(f"{where} makes a {type(model).__name__}, not a torch.nn.Module")
    return model


def num_parameters(model: nn.Module) -> int:
    """Trainable ones, each counted once."""
    return sum(one.numel() for one in model.parameters() if one.requires_grad)


def flops_of_step(
    make: Callable[[], nn.Module], sample: tuple[int, ...], rows: int, *, train: bool
) -> float:
    """Multiplications and additions of a step or a call, counted on tensors without numbers.

    Returns:
        0.0 where the model computes on numbers that are not there.
    """
    from torch.utils.flop_counter import FlopCounterMode

    try:
        with torch.device("meta"), torch.set_grad_enabled(train):
            ghost = make().train(train)
            x = torch.empty(rows, *sample)
            with FlopCounterMode(display=False) as counter:
                out = ghost(x)
                if train:
                    (out**2).mean().backward()
    except Exception:  # a user's model may do anything with numbers that are not there
        return 0.0
    return float(counter.get_total_flops())


def _imported(module: str) -> object:
    if not module.endswith(".py"):
        sys.path.insert(0, "")  # as `python -m` finds it
        return importlib.import_module(module)
    path = Path(module)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise OSError("no such file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    sys.path.insert(0, str(path.parent))  # its neighbours, as `python file.py` finds them
    spec.loader.exec_module(loaded)
    return loaded
