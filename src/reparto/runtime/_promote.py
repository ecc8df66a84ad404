"""Run a user's script in float64, and move parameters by ulps: what ``verify`` compares with.

In float32 two *correct* runs may differ by 2e-1 (a convolution's bias before BatchNorm under
Adam). In float64 rounding stays below 1e-12 for a few dozen steps, so a difference is a mistake.

The names themselves are rebound: after ``promote()``, ``torch.float32 is torch.float64``. That
covers every ``dtype=`` argument, every ``x.dtype == torch.float32`` and the code inside torch that
asks by name, at no cost for an operation. What does not ask by name is wrapped:

    ================================  =======================================
    ``x.float()``, ``half`` …         bound to ``x.double()``
    ``torch.FloatTensor`` …           bound to ``torch.DoubleTensor``
    from_numpy, tensor, frombuffer …  their float32 results are converted
    torch.load, pickle                tensors are converted as they are rebuilt
    safetensors                       read under the true names, then converted
    GradScaler                        its two kernels take float32 only: rewritten
    optimizers with ``fused=True``    likewise: they run unfused
    torch.compile                     returns its argument: the script runs eagerly
    ================================  =======================================

autocast needs nothing: it never casts float64. Integer and boolean tensors stay as they are.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch

_REAL = ("float32", "float", "float16", "half", "bfloat16")
_COMPLEX = ("complex64", "cfloat", "complex32", "chalf")
_LEGACY = ("FloatTensor", "HalfTensor", "BFloat16Tensor")
_CONSTRUCTORS = ("tensor", "as_tensor", "asarray", "from_numpy", "from_dlpack")
_TRUE_NAMES = {name: getattr(torch, name) for name in (*_REAL, *_COMPLEX)}
_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_FLOAT32 = torch.float32

_promoted = False


def promote(on_note: Callable[[str], None] | None = None) -> None:
    """Make everything that this process computes from now on float64.

    Call it before the script is imported, once a process; later calls do nothing. There is no way
    back: it is for worker processes only.

    Args:
        on_note: Is told, once each, what runs otherwise than the script says (``torch.compile``).

    Example:
        >>> promote()
        >>> torch.zeros(2, dtype=torch.float32).dtype
        torch.float64
    """
    global _promoted
    if _promoted:
        return
    _promoted = True
    _fill_tables()
    torch.set_default_dtype(torch.float64)
    _rebind_names()
    _rebind_conversions()
    for name in _CONSTRUCTORS:
        setattr(torch, name, _widening(getattr(torch, name)))
        torch.jit._builtins._register_builtin(getattr(torch, name), f"aten::{name}")
    torch.Tensor.new_tensor = _widening(torch.Tensor.new_tensor)  # type: ignore[method-assign]
    torch.frombuffer = _frombuffer(torch.frombuffer)
    _widen_checkpoints()
    _widen_safetensors()
    _rewrite_grad_scaler()
    _unfuse_optimizers()
    _run_eagerly(on_note or (lambda text: None))


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 (complex128), itself if it is that already or not floating."""
    wider = _WIDER.get(tensor.dtype)
    if wider is None:
        return tensor
    if tensor.is_leaf:  # stays a leaf: gradients must arrive at what the script holds
        return tensor.detach().to(wider).requires_grad_(tensor.requires_grad)
    return tensor.to(wider)


def leave_out_autocast(on_note: Callable[[str], None]) -> None:
    """Let ``autocast`` do nothing: its rounding, 1e-3, would hide what ``verify`` compares."""
    init = torch.autocast.__init__
    note = functools.cache(on_note)  # once

    @functools.wraps(init)
    def without(self: Any, *args: Any, **kwargs: Any) -> None:
        note("autocast is left out where float32 is compared")
        init(self, *args, **kwargs)
        self._enabled = False

    torch.autocast.__init__ = without  # type: ignore[method-assign]


def nudge(parameters: Iterable[torch.Tensor], trial: int) -> None:
    """Move each floating parameter by one unit in the last place, up or down.

    The signs come from a generator of their own, the same in every process: the script's random
    state is not touched.

    Args:
        parameters: Changed in place, outside of autograd.
        trial: Which signs; 0 changes nothing.
    """
    if not trial:
        return
    signs = np.random.default_rng(trial)  # not torch's: its draws may be watched
    for parameter in parameters:
        data = parameter.detach()
        if not data.is_floating_point() or data.numel() == 0:
            continue
        up = torch.from_numpy(signs.random(data.numel()) < 0.5).reshape(data.shape)
        target = torch.where(up, torch.inf, -torch.inf).to(data.device, data.dtype)
        with torch.no_grad():
            data.copy_(torch.nextafter(data, target))


@contextmanager
def true_names() -> Iterator[None]:
    """``torch.float32`` and the like mean what they say, inside (for readers of raw bytes)."""
    bound = {name: getattr(torch, name) for name in _TRUE_NAMES}
    _bind(_TRUE_NAMES)
    try:
        yield
    finally:
        _bind(bound)


def _bind(names: dict[str, Any]) -> None:
    for name, value in names.items():
        setattr(torch, name, value)


def _fill_tables() -> None:
    # torch fills these tables on first use, by name: under the new names they would be wrong.
    import torch._weights_only_unpickler as unpickler

    torch.storage._dtype_to_storage_type_map()
    torch.storage._storage_type_to_dtype_map()
    unpickler._get_allowed_globals()


def _rebind_names() -> None:
    _bind({name: torch.float64 for name in _REAL})
    _bind({name: torch.complex128 for name in _COMPLEX})
    for name in _LEGACY:
        setattr(torch, name, torch.DoubleTensor)
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, torch.cuda.DoubleTensor)  # type: ignore[attr-defined]


def _rebind_conversions() -> None:
    tensor: Any = torch.Tensor
    for name in ("float", "half", "bfloat16"):
        setattr(tensor, name, tensor.double)
    for name in ("cfloat", "chalf"):
        setattr(tensor, name, tensor.cdouble)
    by_type = tensor.type

    @functools.wraps(by_type)
    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        return by_type(self) if dtype is None else by_type(self, _wide(dtype), *args, **kwargs)

    tensor.type = type_
    set_type = torch.set_default_tensor_type

    @functools.wraps(set_type)
    def set_default_tensor_type(t: Any) -> None:
        set_type(_wide(t))

    torch.set_default_tensor_type = set_default_tensor_type


def _wide(dtype: Any) -> Any:
    if isinstance(dtype, torch.dtype):
        return _WIDER.get(dtype, dtype)
    place, _, kind = dtype.rpartition(".") if isinstance(dtype, str) else ("", "", "")
    return f"{place}.DoubleTensor" if kind in _LEGACY else dtype


def _widening(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return widened(result) if isinstance(result, torch.Tensor) else result

    return call


def _frombuffer(function: Callable[..., Any]) -> Callable[..., Any]:
    # Raw bytes: here "float32" is the layout. The name no longer tells; the caller's line does.
    @functools.wraps(function)
    def frombuffer(buffer: Any, *, dtype: torch.dtype, **kwargs: Any) -> torch.Tensor:
        if dtype is torch.float64 and _says_float32(sys._getframe(1)):
            dtype = _FLOAT32
        return widened(function(buffer, dtype=dtype, **kwargs))

    return frombuffer


def _says_float32(frame: FrameType) -> bool:
    where = inspect.getframeinfo(frame, context=0).positions
    if where is None or where.lineno is None or where.end_lineno is None:
        return False
    lines = range(where.lineno, where.end_lineno + 1)
    text = "".join(linecache.getline(frame.f_code.co_filename, line) for line in lines)
    return bool(re.search(r"\bfloat(32)?\b", text)) and not re.search(
        r"\b(float64|double)\b", text
    )


def _widen_checkpoints() -> None:
    # Everything that is unpickled passes through these, torch.load's safe unpickler included.
    import torch._weights_only_unpickler as unpickler
    import torch.multiprocessing.reductions as reductions

    allowed = unpickler._get_allowed_globals()
    for name in ("_rebuild_tensor", "_rebuild_tensor_v3"):  # the second version calls the first
        widening = _widening(getattr(torch._utils, name))
        setattr(torch._utils, name, widening)
        if f"torch._utils.{name}" in allowed:
            allowed[f"torch._utils.{name}"] = widening
    # DataLoader workers that were spawned, not forked, know nothing of all this.
    reductions.rebuild_tensor = _widening(reductions.rebuild_tensor)


def _widen_safetensors() -> None:
    import safetensors
    import safetensors.torch

    modules: tuple[Any, ...] = (safetensors, safetensors.torch)
    opened = safetensors.safe_open

    class SafeOpen:
        """``safetensors.safe_open`` under the true names."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._file: Any = opened(*args, **kwargs)

        def __enter__(self) -> SafeOpen:
            self._file.__enter__()
            return self

        def __exit__(self, *details: Any) -> None:
            self._file.__exit__(*details)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def get_tensor(self, name: str) -> Any:
            with true_names():
                tensor = self._file.get_tensor(name)
            return widened(tensor) if isinstance(tensor, torch.Tensor) else tensor

        def get_tensors(self) -> dict[str, Any]:
            return {name: self.get_tensor(name) for name in self._file.keys()}  # noqa: SIM118

    for module in modules:
        module.safe_open = SafeOpen


def _rewrite_grad_scaler() -> None:
    def unscale(grads: list[torch.Tensor], found: torch.Tensor, inverse: torch.Tensor) -> None:
        for grad in grads:
            if not grad.isfinite().all():
                found.fill_(1.0)
            grad.mul_(inverse)

    def update(
        scale: torch.Tensor,
        tracker: torch.Tensor,
        found: torch.Tensor,
        growth: float,
        backoff: float,
        interval: int,
    ) -> torch.Tensor:
        if found.any():
            scale.mul_(backoff)
            tracker.zero_()
        elif int(tracker) + 1 == interval:
            scale.mul_(growth)
            tracker.zero_()
        else:
            tracker.add_(1)
        return scale

    kernels: Any = torch
    kernels._amp_foreach_non_finite_check_and_unscale_ = unscale
    kernels._amp_update_scale_ = update
    scaler: Any = torch.amp.GradScaler
    unscale_grads = scaler._unscale_grads_

    @functools.wraps(unscale_grads)
    def allowing(self: Any, optimizer: Any, inverse: Any, found: Any, allow_fp16: bool) -> Any:
        # float64 gradients go by the name of float16 now, and are welcome.
        return unscale_grads(self, optimizer, inverse, found, True)

    scaler._unscale_grads_ = allowing


def _unfuse_optimizers() -> None:
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and "fused" in inspect.signature(kind).parameters:
            kind.__init__ = _without_fused(kind.__init__)  # type: ignore[misc]


def _without_fused(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def unfused(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("fused", None)
        init(self, *args, **kwargs)

    return unfused


def _run_eagerly(on_note: Callable[[str], None]) -> None:
    note = functools.cache(on_note)  # once
    told = "torch.compile is skipped in float64: the model runs eagerly"

    def compile_(model: Any = None, **settings: Any) -> Any:
        note(told)
        return (lambda function: function) if model is None else model

    def compile_module(self: torch.nn.Module, *args: Any, **settings: Any) -> None:
        note(told)

    torch.compile = compile_
    torch.nn.Module.compile = compile_module  # type: ignore[method-assign]
