"""A device whose captured graphs run recorded operations in the same memory, without Python."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from reparto.bench._device import Device


def tensors(value):
    return [one for one in tree_leaves(value) if isinstance(one, Tensor)]


class Operations(TorchDispatchMode):
    """Writes down operations, and the memory that they read and write."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        memory = (args, kwargs or {}, tensors(result))
        self.made.append(
            (func, *tree_map(lambda one: one.detach() if isinstance(one, Tensor) else one, memory))
        )
        return result

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, results in self.made:
                for there, now in zip(results, tensors(func(*args, **kwargs)), strict=True):
                    if there.data_ptr() != now.data_ptr():
                        there.copy_(now)


class Graphs(Device):
    """Captures as CUDA does: nothing is computed meanwhile."""

    def captured(self, work):
        loop = work.__self__
        state = [*loop.model.parameters(), *tensors(list(loop._optimizer.state.values()))]
        before = [one.detach().clone() for one in state]
        operations = Operations()
        with operations:
            work()
        with torch.no_grad():
            for one, kept in zip(state, before, strict=True):
                one.copy_(kept)
        self.num_operations = len(operations.made)
        return operations.replay
