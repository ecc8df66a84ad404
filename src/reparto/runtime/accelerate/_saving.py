"""Files that the script writes are those of the script: tensors that were moved come back."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor, nn

from reparto.runtime.accelerate._home import Home


def saving(home: Home, original: Any) -> Any:
    """``torch.save`` for a script that knows nothing of the GPU.

    Args:
        home: Knows whether the script itself has asked for the GPU.
        original: As torch does it.
    """

    @functools.wraps(original)
    def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            found = obj if home.is_asked_for else _on_cpu(obj)
            return original(found, *args, **kwargs)

    return save


def _on_cpu(value: Any) -> Any:
    if isinstance(value, nn.Parameter):
        return nn.Parameter(value.detach().cpu(), value.requires_grad) if value.is_cuda else value
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, nn.Module):
        if all(not tensor.is_cuda for tensor in (*value.parameters(), *value.buffers())):
            return value
        return copy.deepcopy(value).cpu()
    if isinstance(value, dict):
        moved = copy.copy(value)  # an OrderedDict keeps its metadata
        for key, one in value.items():
            moved[key] = _on_cpu(one)
        return moved
    if type(value) in (list, tuple):
        return type(value)(map(_on_cpu, value))
    return value
