"""Tensors inside of what calls are given and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, through tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    found: list[Tensor] = []
    if isinstance(value, (tuple, list)):
        for one in value:
            found += tensors_in(one)
    elif isinstance(value, Mapping):
        for one in value.values():
            found += tensors_in(one)
    elif type(value) is slice:
        found += tensors_in((value.start, value.stop, value.step))
    return found


def is_foreign(tensor: Tensor) -> bool:
    """Whether it may change unseen: its memory is numpy's or a process's, or nobody counts."""
    if tensor.is_inference():
        return True
    if tensor.layout != torch.strided:
        return False
    storage = tensor.untyped_storage()
    return not storage.resizable() or storage.is_shared()


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same value with other tensors; whatever has none comes back as it is."""
    if isinstance(value, Tensor):
        return change(value)
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([mapped(one, change) for one in value])
    if kind is dict:
        return {key: mapped(one, change) for key, one in value.items()}
    if kind is slice:
        return slice(*(mapped(one, change) for one in (value.start, value.stop, value.step)))
    if isinstance(value, tuple):
        return rebuilt(value, [mapped(one, change) for one in value])
    return value


def rebuilt(like: Any, parts: list[Any]) -> Any:
    """A tuple of the same kind: a plain one, a named one, or one of ``torch.return_types``."""
    kind = type(like)
    return kind(*parts) if hasattr(like, "_fields") else kind(parts)
