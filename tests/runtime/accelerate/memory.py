"""A captured graph without a GPU: operations that run again in the same memory, with no Python.

What a CUDA graph does to a script can be seen on a CPU so: whatever Python decided while it was
captured is fixed, results come into the memory that they had then, and nothing is attached to
``param.grad`` when it runs again.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from reparto.runtime.accelerate._player import CapturedPlayer
from reparto.runtime.accelerate._precision import kept_state


class _Operations(TorchDispatchMode):
    """Writes down operations and the memory that they worked on."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        given = {t.untyped_storage().data_ptr() for t in _tensors((args, kwargs))}
        results = [t for t in _tensors(result) if t.untyped_storage().data_ptr() not in given]
        is_view = not func._schema.is_mutable and not results
        if not is_view:
            there = tree_map(_memory, (args, kwargs, _tensors(result)))
            self.operations.append((func, *there, given))
        return result


def _memory(value):
    """The memory of a tensor, whatever else becomes of the tensor."""
    return value.detach() if isinstance(value, Tensor) else value


def _tensors(value):
    return [one for one in tree_leaves(value) if isinstance(one, Tensor)]


class MemoryPlayer(CapturedPlayer):
    """Plays a tape as a captured graph would."""

    def _capture(self, body):
        generator = torch.get_rng_state()
        mode = _Operations()
        with kept_state(self.tape), mode:
            body()
        torch.set_rng_state(generator)
        self._operations = mode.operations
        self._counters.zero_()  # a capture computes nothing
        self.rest()

    def _replay(self):
        with torch.no_grad():
            for func, args, kwargs, results, given in self._operations:
                again = _tensors(func(*args, **kwargs))
                for memory, now in zip(results, again, strict=True):
                    if memory.untyped_storage().data_ptr() not in given:
                        memory.copy_(now)
