"""torch's old constructors, ``torch.Tensor(x)`` and ``torch.FloatTensor(x)``, of a Shard.

They are made in C and ask nobody: a Shard would come back as a plain tensor of this worker's rows,
and be taken for the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reparto.runtime._tensors import Tracked

NAMES = (
    "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor "
    "CharTensor ByteTensor BoolTensor"
).split()


class _Kind(type):
    """A class that stands for one of torch's types."""

    original: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Tracked):
            return _same(args[0], cls.original.dtype, cls.original.__name__)
        return cls.original(*args, **kwargs)

    def __instancecheck__(cls, one: Any) -> bool:
        return isinstance(one, cls.original)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.original, name)


def standing_for(original: Any) -> Any:
    """What takes the place of ``torch.FloatTensor`` and the like."""
    # Tensor.type() goes by the name of the class, and wants the whole one.
    name = f"{original.__module__}.{original.__name__}"
    return _Kind(name, (), {"original": original, "__module__": original.__module__})


def true_kind(kind: Any) -> Any:
    """What a class stands for, or what was given."""
    return kind.original if isinstance(kind, _Kind) else kind


def set_default_type(original: Any) -> Any:
    """``torch.set_default_tensor_type`` that takes ours for torch's."""

    def set_default_tensor_type(t: Any) -> Any:
        return original(true_kind(t))

    return set_default_tensor_type


def new_tensor(original: Callable[..., Any]) -> Any:
    """``torch.Tensor.__new__``."""

    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is Tensor and args and isinstance(args[0], Tracked):
            return _same(args[0], torch.get_default_dtype(), "Tensor")
        return original(cls, *args, **kwargs)

    return staticmethod(__new__)


def _same(tensor: Any, dtype: torch.dtype, name: str) -> Any:
    if tensor.dtype != dtype:
        raise TypeError(f"torch.{name}: expected {dtype} (got {tensor.dtype})")
    return tensor.detach()
