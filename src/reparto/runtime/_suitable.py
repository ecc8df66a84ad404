"""Which modules may run as regions, told from what they hold, return and say in their code.

A watched call shows what a module did; this is about what it may do another time, or has done
where nobody watched: kept a tensor of the batch, drawn by a generator of its own, handed the batch
size to somebody in C.
"""

from __future__ import annotations

import contextlib
import random
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reparto.runtime._layout import Split
from reparto.runtime._sizes import uses_batch_size
from reparto.runtime._tensors import Shard, Tracked


def unsuitable(module: nn.Module, result: Any, split: Split, dims: frozenset[int]) -> str:
    """Why what is seen after a watched call keeps it from being a region, or nothing."""
    if any(getattr(torch.nn.modules.module, name) for name in _GLOBAL_HOOKS):
        return "a hook of all modules may look at local tensors"
    for child in module.modules():
        if any(getattr(child, name, None) for name in _HOOKS):
            return "a hook may look at local tensors"
        if isinstance(child, torch.jit.ScriptModule):
            return "scripted modules cannot be watched"
        for name, value in vars(child).items():
            if isinstance(value, _GENERATORS):
                return f"draws by a generator of its own, .{name}"
            if name != "_modules" and _holds_tracked(value):
                return f"keeps a tensor of the batch in .{name}"
        if (reason := _unsuitable_code(child, dims)) != "":
            return reason
    return "" if _is_simple(result, split) else "returns an object of its own kind"


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)


def numbers_of(module: nn.Module) -> list[Any]:
    """The plain numbers that a module of the script's and its children hold as attributes."""
    return [
        (name, value)
        for child in module.modules()
        if not type(child).__module__.startswith("torch.")
        for name, value in vars(child).items()
        if type(value) in (int, float, bool) and name != "training"
    ]


def _reached(function: Any) -> Iterator[Any]:
    """What a function can reach by name: globals, and what it closes over."""
    code, names = function.__code__, function.__globals__
    yield from (names[name] for name in code.co_names if name in names)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty one
            yield cell.cell_contents


def _with_helpers(function: Any, depth: int = 3) -> Iterator[Any]:
    """A function and those of the script's own that it reaches by name."""
    yield function
    for one in _reached(function) if depth else ():
        module = getattr(one, "__module__", None) or ""
        if isinstance(one, types.FunctionType) and not module.startswith(("torch.", "reparto.")):
            yield from _with_helpers(one, depth - 1)


def _unsuitable_code(module: nn.Module, dims: frozenset[int]) -> str:
    """What can be told of a module's own code."""
    methods = _functions_of(type(module))
    for function in {id(f): f for one in methods for f in _with_helpers(one)}.values():
        if "print" in function.__code__.co_names:
            return "prints what it sees"
        if dims and uses_batch_size(function, dims):
            return "uses the batch size as a number"
        if any(isinstance(one, _GENERATORS) for one in _reached(function)):
            return "draws by a generator of its own"
        if any(type(one) in _CONTAINERS and _holds_tracked(one) for one in _reached(function)):
            return "keeps a tensor of the batch in a list of others"
    return ""


_CONTAINERS = (list, dict, set, deque)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)


def _holds_tracked(value: Any, depth: int = 3) -> bool:
    if isinstance(value, Tracked):
        return True
    if isinstance(value, dict):
        return any(_holds_tracked(part, depth) for part in value.values())
    if isinstance(value, (list, tuple, set, deque)):
        return any(_holds_tracked(part, depth) for part in value)
    if depth and hasattr(value, "__dict__") and not isinstance(value, (nn.Module, type, Tensor)):
        return _holds_tracked(vars(value), depth - 1)
    return False


def _is_simple(result: Any, split: Split) -> bool:
    if isinstance(result, Shard):
        return result._place.split == split
    if type(result) in (tuple, list):
        return all(_is_simple(part, split) for part in result)
    if type(result) is dict:
        return all(_is_simple(part, split) for part in result.values())
    return type(result) in (Tensor, nn.Parameter, int, float, str, bool, type(None))


def _functions_of(kind: type) -> Iterator[Any]:
    """The functions that a class of the script's own defines or inherits from such."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch.") or base is object:
            return
        yield from (one for one in vars(base).values() if hasattr(one, "__code__"))
