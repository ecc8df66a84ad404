"""Which of torch's functions only look, which read numbers, and which stand outside of a step."""

from __future__ import annotations

import sys
from collections.abc import Sized
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._found import tensors_in

_BASE = torch._C.TensorBase

_LOOKS = (
    "shape dtype device layout ndim requires_grad itemsize nbytes is_cuda is_cpu is_sparse "
    "is_quantized is_meta is_nested is_mkldnn is_mps is_xla is_sparse_csr name names"
).split()
_SIZES = (
    "size dim ndimension numel nelement stride storage_offset is_contiguous is_floating_point "
    "is_complex is_signed is_inference is_conj is_neg element_size get_device is_pinned "
    "is_shared is_coalesced is_same_size has_names __len__ __hash__"
).split()


_OWN = (
    "is_leaf output_nr _version grad_fn retains_grad _backward_hooks _post_accumulate_grad_hooks"
)


def _getters(names: list[str]) -> set[Any]:
    found: list[Any] = [getattr(Tensor, name, None) for name in names]
    return {attribute.__get__ for attribute in found if hasattr(attribute, "__get__")}


def _quiet() -> set[Any]:
    found = _getters(_LOOKS)
    for owner in (Tensor, _BASE):
        found |= {getattr(owner, name) for name in _SIZES if hasattr(owner, name)}
    for name in ("is_floating_point", "is_complex", "is_tensor", "numel", "is_same_size"):
        found.add(getattr(torch, name))
    found.add(torch._C._set_grad_enabled)
    profiler = torch.ops.profiler
    for name in ("_record_function_enter_new", "_record_function_exit"):
        packet = getattr(profiler, name)
        found |= {getattr(packet, overload) for overload in packet.overloads()}
    return found


#: Calls that compute nothing, or whose effect shows in `modes_now`.
QUIET = frozenset(_quiet())

#: Looks that only the tensor itself can answer, not one that stands for it.
OWN_LOOKS = frozenset([*_getters(_OWN.split()), Tensor.data_ptr, Tensor.untyped_storage])

#: Ways to cut a batch out of data: the numbers in them change from step to step.
CUTS = frozenset(
    [
        Tensor.__getitem__,
        Tensor.narrow,
        Tensor.select,
        Tensor.split,
        Tensor.chunk,
        Tensor.unbind,
        Tensor.detach,
        torch.narrow,
        torch.select,
        torch.split,
        torch.chunk,
        torch.unbind,
        torch.detach,
    ]
)

_DETACHES = frozenset([Tensor.detach, torch.detach])

#: Ways to bring numbers in from outside of torch.
BRINGS = frozenset([torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy])

#: Hangs on a tensor what no tape would call.
HOOKS = frozenset([Tensor.register_hook, Tensor.register_post_accumulate_grad_hook])
#: The memory of a tensor, for others to change.
DATA = vars(_BASE)["data"].__get__
SET_GRAD = vars(_BASE)["grad"].__set__

#: Calls that no tape can hold, and why.
REFUSED = {
    Tensor.register_hook: "hangs a hook on a tensor",
    Tensor.retain_grad: "keeps the gradient of a tensor between",
    Tensor.requires_grad_: "asks for gradients of something else than parameters",
    vars(_BASE)["data"].__set__: "exchanges the memory of a tensor",
    vars(_BASE)["requires_grad"].__set__: "switches gradients of a tensor on or off",
    torch.manual_seed: "sets a seed",
    Tensor.register_post_accumulate_grad_hook: "hangs a hook on a tensor",
}

#: Passes of gradients.
BACKWARD = frozenset([Tensor.backward, torch.autograd.backward, torch.autograd.grad])

#: Reads of a number, or of several.
READS = frozenset([Tensor.item, Tensor.__float__, Tensor.__int__, Tensor.__bool__, Tensor.tolist])

_NAMES = (
    "zeros ones empty full arange linspace logspace eye rand randn randint randperm normal tensor "
    "as_tensor empty_strided tril_indices triu_indices scalar_tensor hann_window"
).split()
#: What makes a tensor of numbers alone; on a tape it is made on the device.
FACTORIES = frozenset(getattr(torch, name) for name in _NAMES)


def comes_anew(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call cuts a batch out of data, or brings one in; of what no step has made."""
    if func in CUTS:
        return func in _DETACHES or not any(one.requires_grad for one in tensors_in(args))
    return func in BRINGS and bool(args) and isinstance(args[0], Sized) and not tensors_in(args)


def is_loading(frame: FrameType | None) -> bool:
    """Whether it is torch's own loading of data that runs."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("reparto.", "torch.overrides", "torch._tensor")):
            return str(name).startswith("torch.utils.data")
        frame = frame.f_back
    return False


def place_in_script(frame: FrameType | None) -> str:
    """The line of the user's that is being run, as file:line."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("torch.", "reparto.")) and name != "torch":
            return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def here() -> str:
    """The line of the user's that is being run."""
    return place_in_script(sys._getframe(1))
