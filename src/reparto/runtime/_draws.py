"""The states of all generators that a script may draw from without naming one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_state() -> tuple[Any, Any, Any]:
    """Of torch, of Python and of NumPy."""
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def same_state(one: Any, two: Any) -> bool:
    """Whether nothing was drawn in between."""
    same_numpy = all(np.array_equal(a, b) for a, b in zip(one[2], two[2], strict=True))
    return bool(torch.equal(one[0], two[0])) and one[1] == two[1] and same_numpy


def restore_state(state: tuple[Any, Any, Any]) -> None:
    """Put a state back."""
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    np.random.set_state(state[2])
