"""Random numbers drawn on the CPU, as the script alone would draw them: for ``verify``.

A GPU draws other numbers than a CPU from the same seed, so two trainings with dropout could not
be compared. Here each draw is made on the CPU, in the script's order, and handed to the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_FACTORIES = frozenset(
    [torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli]
)
_LIKE = frozenset([torch.rand_like, torch.randn_like])
_DROPOUTS = frozenset(
    [
        F.dropout,
        F.alpha_dropout,
        F.dropout1d,
        F.dropout2d,
        F.dropout3d,
        F.feature_alpha_dropout,
        torch.dropout,
    ]
)
_ATTENTION = F.scaled_dot_product_attention
_IN_PLACE = frozenset(
    [Tensor.normal_, Tensor.uniform_, Tensor.bernoulli_, Tensor.random_, Tensor.exponential_]
)


def draws(func: Any) -> bool:
    """Whether a call draws random numbers in a way that is known here."""
    known = func in _FACTORIES or func in _LIKE or func in _DROPOUTS or func in _IN_PLACE
    return known or func is _ATTENTION


def on_cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any | Call:
    """Draw on the CPU.

    Returns:
        What was drawn, or, for dropout, the call that applies it: a function with its arguments.
    """
    if func in _FACTORIES:
        kwargs = {name: value for name, value in kwargs.items() if name != "device"}
        return func(*(_plain(one) for one in args), **kwargs)
    if func in _LIKE:
        dtype = kwargs.get("dtype") or args[0].dtype
        return func(_like(args[0], dtype))
    if func in _IN_PLACE:
        made = torch.empty_strided(args[0].shape, stride_of(args[0]), dtype=args[0].dtype)
        func(made, *args[1:], **kwargs)
        return Tensor.copy_, (args[0], made), {}
    if func is _ATTENTION:
        return _attention(args, kwargs)
    return _mask(func, args, kwargs)


def _attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    rate = given.pop("dropout_p", 0.0)
    if not rate:
        return _ATTENTION, args, kwargs
    query, key = given["query"], given["key"]
    heads = query.shape[:-2]
    if not given.get("enable_gqa"):  # there the heads of keys are repeated to those of queries
        heads = torch.broadcast_shapes(heads, key.shape[:-2])
    shape = (*heads, query.shape[-2], key.shape[-2])
    kept = F.dropout(torch.ones(shape, dtype=query.dtype), rate)
    return _attended, (kept,), given


def _attended(
    kept: Tensor,
    *,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention as torch's formula has it, with weights that are kept or dropped as told."""
    if enable_gqa:
        heads = query.shape[-3]
        key, value = (one.repeat_interleave(heads // one.shape[-3], -3) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights: Tensor = torch.ops.aten._safe_softmax(scores, -1)
    return (weights * kept) @ value


def _mask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    names = ("input", "p", "training", "inplace")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    inputs = given.pop("input")
    given.setdefault("p", 0.5)
    training = given.get("training", given.pop("train", True))
    is_plain = func in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, torch.dropout)
    if not training or given["p"] == 0 or not is_plain:
        return func, args, kwargs
    given = {name: value for name, value in given.items() if name in ("p", "training", "train")}
    if func is torch.dropout:
        given = {"p": given["p"], "train": True}
    ones = _like(inputs, inputs.dtype).fill_(1)
    return torch.mul, (inputs, func(ones, **given)), {}


def stride_of(tensor: Tensor) -> tuple[int, ...]:
    """How a tensor lies in memory; of a stand-in, how what it stands for does."""
    found: tuple[int, ...] = getattr(tensor, "_reparto_stride", None) or tensor.stride()
    return found


def _like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Memory of the CPU laid out as torch lays out what it makes of a tensor: draws fill it."""
    layout = torch.empty_strided(tensor.shape, stride_of(tensor), dtype=dtype, device="meta")
    return torch.empty_like(layout, device="cpu")


def _plain(value: Any) -> Any:
    return value.cpu() if isinstance(value, Tensor) else value
