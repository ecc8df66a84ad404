"""Home: where tensors belong when a script that was written for the CPU trains on a GPU.

Parameters move when an optimizer is made of them, buffers when they first meet something on the
GPU, and both stay there. Other tensors of the CPU are copied when an operation mixes them with
tensors of the GPU; a copy is kept as long as the original is there and has not changed. What the
script reads as numbers or arrays comes back to the CPU.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from reparto.runtime.accelerate._calls import BACKWARD
from reparto.runtime.accelerate._found import is_foreign, mapped, tensors_in

#: Calls that hand numbers to the script's own memory: of the CPU.
_READERS: frozenset[Any] = frozenset(getattr(Tensor, name) for name in ("numpy", "__array__"))
#: Where passes of gradients have the gradients that they begin with, and the name of their roots.
_BEGINS: dict[Any, tuple[int, str, str]] = {
    Tensor.backward: (1, "gradient", "self"),
    torch.autograd.backward: (1, "grad_tensors", "tensors"),
    torch.autograd.grad: (2, "grad_outputs", "outputs"),
}
#: Calls that cross devices by themselves.
_CROSSING = {Tensor.copy_, Tensor.to, Tensor.cpu, Tensor.cuda, Tensor.type_as}
#: Calls that may be given sizes of batches, which torch wants on the CPU, behind the data.
_SIZED: frozenset[Any] = frozenset(
    getattr(torch._C._VariableFunctions, name)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "_pad_packed_sequence")
)


class Home:
    """Keeps tensors together.

    Args:
        device: Where the training runs.
        draws_on_cpu: Draw random numbers on the CPU, as the script would alone (``verify``).
    """

    def __init__(self, device: torch.device, *, draws_on_cpu: bool = False) -> None:
        self.device, self.draws_on_cpu = device, draws_on_cpu
        self._is_gpu = device.type == "cuda"
        #: Whether the script itself has asked for the GPU.
        self.is_asked_for = False
        #: Whether it names a GPU anywhere.
        self.may_ask = True
        self._allowed_tf32 = torch.backends.cudnn.allow_tf32
        self._copies: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}
        self._met: set[int] = set()

    def take_in(self, tensors: Any) -> None:
        """Move parameters, for good; they stay the same objects."""
        if not self._is_gpu:
            return
        for tensor in tensors:
            if isinstance(tensor, Tensor) and tensor.device.type == "cpu":
                self._move(tensor)

    def _move(self, tensor: Tensor) -> None:
        with torch.no_grad():
            tensor.data = tensor.detach().to(self.device)
            if tensor.grad is not None:
                tensor.grad = tensor.grad.to(self.device)

    def run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; tensors on different devices are brought together before."""
        if not self._is_gpu:
            return func(*args, **kwargs)
        if func in _READERS:
            return func(args[0].cpu(), *args[1:], **kwargs)
        if func is Tensor.cuda or func is Tensor.to or func is Tensor.cpu:
            return self._sent(func, args, kwargs)
        if func is torch._C._VariableFunctions._pack_padded_sequence:
            lengths = args[1].cpu() if isinstance(args[1], Tensor) else args[1]
            args = (args[0], lengths, *args[2:])  # it wants them so, wherever the batch is
            return func(*args, **kwargs)
        if func in BACKWARD:
            return self._back(func, args, kwargs)
        found = tensors_in(args)
        if kwargs:
            found += tensors_in(kwargs)
        own = getattr(func, "tensors", None)  # of a module
        if own:
            found += own
        if len(found) > 1 and func not in _CROSSING:
            kinds = {tensor.device.type for tensor in found}
            if len(kinds) > 1:
                self.take_in(own or ())
                return self._together(func, args, kwargs)
        return func(*args, **kwargs)

    def _back(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A pass of gradients: those that it begins with belong beside what they are of.

        Leaves stay where they are, on the CPU too: gradients find the way to them.
        """
        place, name, roots = _BEGINS[func]
        root = args[0] if args else kwargs.get(roots)
        if len(args) > place:
            args = (*args[:place], self._beside(root, args[place]), *args[place + 1 :])
        elif name in kwargs:
            kwargs = {**kwargs, name: self._beside(root, kwargs[name])}
        return func(*args, **kwargs)

    def _beside(self, root: Any, beginning: Any) -> Any:
        """Gradients to begin with, each where its root is; roots may be on the CPU, too."""
        if isinstance(root, Tensor) and isinstance(beginning, Tensor):
            is_here = root.device.type == self.device.type
            return self.on_device(beginning) if is_here else beginning.to(root.device)
        roots = root if isinstance(root, (tuple, list)) else [root]
        if isinstance(beginning, (tuple, list)):
            if len(roots) != len(beginning):  # torch says so
                return beginning
            return [self._beside(*pair) for pair in zip(roots, beginning, strict=True)]
        is_of_one = roots is root and len(roots) == 1
        return self._beside(roots[0], beginning) if is_of_one else beginning

    def _sent(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Sent somewhere: what the script calls the CPU is the GPU, if it knows none."""
        if func is Tensor.cuda or _names(_GPU, (*args, *kwargs.values())):
            self.asked()
        if self.is_asked_for:
            return func(*args, **kwargs)
        if func is Tensor.cpu:
            return args[0]
        args = tuple(self.device if _names(_CPU, (one,)) else one for one in args)
        kwargs = {k: self.device if _names(_CPU, (v,)) else v for k, v in kwargs.items()}
        return func(*args, **kwargs)

    def asked(self) -> None:
        """The script itself has asked for the GPU: it gets what torch gives to such scripts.

        A script that never names one has only handed on where a tensor already is.
        """
        if self.may_ask and not self.is_asked_for:
            self.is_asked_for = True
            torch.backends.cudnn.allow_tf32 = self._allowed_tf32

    def _together(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(getattr(func, "__name__", ""))
        changes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        changes = changes or name.startswith("__i")
        target = args[0] if args and isinstance(args[0], Tensor) else None
        stays = target is not None and changes and target.device.type == "cpu"
        if stays and not self._belongs(target):
            cpu = torch.device("cpu")
            return func(*mapped(args, lambda t: t.to(cpu)), **mapped(kwargs, lambda t: t.to(cpu)))
        if name == "__getitem__" and target is not None and target.device.type == "cpu":
            rest = mapped(args[1:], lambda tensor: tensor.cpu())
            return func(target, *rest)  # data on the CPU, cut by numbers that were computed
        stay = _sizes_in(func, args, kwargs)

        def moved(tensor: Tensor) -> Tensor:
            return tensor if id(tensor) in stay else self.on_device(tensor)

        return func(*mapped(args, moved), **mapped(kwargs, moved))

    def _belongs(self, tensor: Any) -> bool:
        return isinstance(tensor, nn.Parameter) or getattr(tensor, "_reparto_buffer", False)

    def on_device(self, tensor: Tensor) -> Tensor:
        """The tensor, or its like on the GPU."""
        if not self._is_gpu or tensor.device.type != "cpu":
            return tensor
        if self._belongs(tensor):
            self._move(tensor)
            return tensor
        if tensor.requires_grad or is_foreign(tensor):
            return tensor.to(self.device)
        known = self._copies.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == tensor._version:
            return known[2]
        copy = tensor.to(self.device)
        if id(tensor) in self._met:  # it comes again and again
            key = id(tensor)
            ref = weakref.ref(tensor, lambda _: self._copies.pop(key, None))
            self._copies[key] = (ref, tensor._version, copy)
        else:
            self._met.add(id(tensor))
            weakref.finalize(tensor, self._met.discard, id(tensor))
        return copy


def _sizes_in(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """Tensors that stay on the CPU: the sizes of batches of packed sequences."""
    found = [
        one.batch_sizes for one in (*args, *kwargs.values()) if isinstance(one, PackedSequence)
    ]
    if func in _SIZED and isinstance(args[1], Tensor) and not args[1].is_floating_point():
        found.append(args[1])
    return set(map(id, found))


_GPU, _CPU = "cuda", "cpu"


def _names(kind: str, values: tuple[Any, ...]) -> bool:
    """Whether one of some arguments is such a device."""
    return any(
        (isinstance(value, torch.device) and value.type == kind)
        or (isinstance(value, str) and value.partition(":")[0] == kind)
        for value in values
    )


def mark_buffers() -> Callable[[], None]:
    """Remember which tensors are buffers, from now on; returns how to stop that."""
    original = nn.Module.register_buffer

    def register_buffer(
        self: nn.Module, name: str, tensor: Tensor | None, persistent: bool = True
    ) -> None:
        original(self, name, tensor, persistent)
        if tensor is not None:
            tensor._reparto_buffer = True  # type: ignore[attr-defined]

    nn.Module.register_buffer = register_buffer  # type: ignore[method-assign]

    def stop() -> None:
        nn.Module.register_buffer = original  # type: ignore[method-assign]

    return stop
