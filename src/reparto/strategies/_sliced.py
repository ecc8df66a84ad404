"""Sliced: a tensor of which every worker keeps a slice, and that is whole while somebody looks.

It presents the shape and strides of the whole and has no memory of its own; views of it are Sliced
too and share its slice (`_shelf.py`).

An operation of torch's that meets a Sliced comes here below autograd (``__torch_dispatch__``), so
graphs are recorded as ever, what they save is a Sliced, and a backward pass gathers again. By
default the operation runs on the gathered whole and gives a plain tensor. What treats each element
on its own runs on slices. What a script writes into the whole is cut again.

A Sliced is the same on every worker, as a replicated tensor is: all of them come to the same
operations in the same order. A *plain* tensor beside it may be one worker's own (in a backward
pass), so an operation on both never gives a Sliced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from reparto.comm import MAX, SUM
from reparto.errors import RefusedError
from reparto.strategies._base import grad_of, set_grad
from reparto.strategies._buckets import num_uses
from reparto.strategies._shelf import WIDER, Kept, Shelf, dense, is_dense

# As they are before the runtime watches the script's.
_data: Any = torch._C.TensorBase.data
_Parameter, _empty_strided = nn.Parameter, torch.empty_strided
_no_functions = torch._C.DisableTorchFunctionSubclass
_no_autocast = torch._C._DisableAutocast

#: What a rule returns when it cannot handle a call; the call then runs on the whole.
_WHOLE: Any = object()


class Sliced(Tensor):
    """A tensor of which this worker keeps a slice.

    Attributes:
        _kept: What it keeps.
    """

    _kept: Kept

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation."""
        with _no_functions(), _no_autocast():
            for rule in (_by_element, _reduction, _unscaling, _view):
                result = rule(func, args, kwargs or {})
                if result is not _WHOLE:
                    return result
            return _on_whole(func, args, kwargs or {})

    def plain(self) -> Tensor:
        """The whole, or the view of it that this is; no copy."""
        whole = self._kept.shelf.whole(self._kept)
        return whole.as_strided(self.size(), self.stride(), self.storage_offset())

    # What does not go by way of operations.

    @property
    def data(self) -> Any:
        """The same tensor, without a graph."""
        return _data.__get__(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Sliced) or not _is_entire(value):
            value = presented(self._kept.shelf.keep(dense(plain(value))))
        _data.__set__(self, value)
        before, self._kept = self._kept, value._kept
        if before.unit and not self._kept.unit:  # it takes the other's place beside the rest
            before.unit[before.unit.index(before)] = self._kept
            self._kept.unit = before.unit

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """A copy, which nobody may write into: it would not be seen."""
        return _read_only(self._read_copy().numpy(*args, **kwargs))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return _read_only(self._read_copy().__array__(*args, **kwargs))

    def _read_copy(self) -> Tensor:
        return self.plain().clone().requires_grad_(self.requires_grad)

    def tolist(self) -> Any:
        """Numbers."""
        return self.plain().tolist()

    def data_ptr(self) -> int:
        """There is none."""
        raise RefusedError(
            "the address of a parameter is asked for, of which every worker keeps a slice only",
            remedy="make a plain copy: torch.from_numpy(tensor.numpy(force=True))",
        )

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]
        return repr(self._as_plain())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._as_plain().__reduce_ex__(protocol)

    def _as_plain(self) -> Tensor:
        whole = self.plain().clone()
        if getattr(self, "_is_param", False):
            return _Parameter(whole, self.requires_grad)
        return whole.requires_grad_(self.requires_grad and self.is_leaf)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) in memo:
            found: Tensor = memo[id(self)]
            return found
        made: Any = self.detach().clone()
        if getattr(self, "_is_param", False):
            made._is_param = True
        memo[id(self)] = made.requires_grad_(self.requires_grad)
        return made  # type: ignore[no-any-return]


def _read_only(array: Any) -> Any:
    array.setflags(write=False)
    return array


def can_slice(tensor: Tensor) -> bool:
    """Whether a plain leaf can become a Sliced; not while others hold its memory."""
    is_known = type(tensor) in (Tensor, _Parameter) and tensor.layout is torch.strided
    if not is_known or not tensor.is_leaf or not is_dense(tensor):
        return False
    is_shared = num_uses(tensor) > num_uses(tensor.new_empty(1))
    return not (is_shared or tensor._use_count() > 1)  # type: ignore[attr-defined]


def slice_in_place(tensor: Tensor, shelf: Shelf) -> None:
    """Make a plain leaf a Sliced, for all who hold it: modules, optimizers, the script's lists."""
    _guard_data()
    grad, needs_grad = grad_of(tensor), tensor.requires_grad
    is_parameter = type(tensor) is not Tensor
    kept = shelf.keep(tensor)
    made: Any = presented(kept)
    set_grad(tensor, None)
    torch._C._swap_tensor_impl(tensor, made)
    made.__class__ = Tensor  # it has the memory now, and goes
    now: Any = tensor
    now.__class__, now._kept = Sliced, kept
    if is_parameter:
        now._is_param = True
    now.requires_grad_(needs_grad)
    # Hooks belong to the memory as well: hang them up again.
    now._backward_hooks = now._backward_hooks
    now._post_accumulate_grad_hooks = now._post_accumulate_grad_hooks
    set_grad(tensor, grad)


def _guard_data() -> None:
    """Have ``plain.data = sliced`` take the whole: a Sliced has no memory to hand over."""
    if "data" in vars(Tensor):
        return

    def assign(self: Tensor, value: Any) -> None:
        is_strange = isinstance(value, Sliced) and not isinstance(self, Sliced)
        _data.__set__(self, value.plain().clone() if is_strange else value)

    Tensor.data = property(_data.__get__, assign)  # type: ignore[assignment]


def unguard_data() -> None:
    """Leave ``Tensor.data`` as torch has it."""
    if "data" in vars(Tensor):
        del Tensor.data


def plain(tensor: Tensor) -> Tensor:
    """The whole behind a Sliced; another tensor as it is."""
    return tensor.plain() if isinstance(tensor, Sliced) else tensor


# Rules.

#: What treats each element on its own; those that write have an underscore at the end.
_ELEMENTWISE = frozenset(
    "_to_copy abs add addcdiv addcmul clamp clamp_max clamp_min clone copy div empty_like exp "
    "fill full_like lerp log maximum minimum mul neg ones_like pow reciprocal rsqrt sign sqrt sub "
    "tanh zero zeros_like".split()
)


def _by_element(func: Any, args: Any, kwargs: Any) -> Any:
    writes = func._schema.is_mutable
    name = func.overloadpacket.__name__
    if (name.removesuffix("_") if writes else name) not in _ELEMENTWISE:
        return _WHOLE
    if not isinstance(args[0], Sliced) or not _is_entire(args[0]) or not _is_usual(kwargs):
        return _WHOLE
    kept, local = args[0]._kept, []
    for arg in args:
        if isinstance(arg, Sliced):
            if not _is_entire(arg) or not arg._kept.is_like(kept):
                return _WHOLE
            local.append(arg._kept.mine)
        elif not isinstance(arg, Tensor):
            local.append(arg)
        elif not writes or arg.layout is not torch.strided:
            return _WHOLE  # it may be this worker's own
        else:
            local.append(arg if arg.dim() == 0 else kept.cut(arg.expand(kept.shape)))
    result = func(*local, **kwargs)
    if not writes:
        return presented(kept.alike(result))
    kept.shelf.changed(kept)
    return args[0]


def _is_usual(kwargs: Any) -> bool:
    """Whether options of an operation leave the order of elements as it is."""
    dtype = kwargs.get("dtype")
    return (
        kwargs.get("memory_format") in (None, torch.preserve_format)
        and kwargs.get("layout") in (None, torch.strided)
        and (dtype is None or dtype.is_floating_point)
        and not any(isinstance(value, Tensor) for value in kwargs.values())
        and not kwargs.get("pin_memory")
    )


def _reduction(func: Any, args: Any, kwargs: Any) -> Any:
    """A number that is made of all elements: from the slices' numbers."""
    combine = _REDUCTIONS.get(func)
    if combine is None or not isinstance(args[0], Sliced) or not _is_entire(args[0]):
        return _WHOLE
    return combine(args[0]._kept, *args[1:], **kwargs)


def _sum(kept: Kept, *, dtype: Any = None) -> Tensor:
    return kept.shelf.number(kept, ("sum", dtype), lambda mine: mine.sum(dtype=dtype), SUM)


def _count_nonzero(kept: Kept, dim: Any = None) -> Any:
    if dim is not None:
        return _WHOLE
    return kept.shelf.number(kept, "count", torch.count_nonzero, SUM)


def _norm(
    kept: Kept, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    if dim is not None or keepdim or dtype is not None or order <= 0:
        return _WHOLE
    own = kept.mine.dtype
    wide = WIDER.get(own, own)
    if order == float("inf"):
        return kept.shelf.number(kept, "largest", _largest, MAX)

    def local(mine: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(mine, order, dtype=wide)
        return norm.pow(order)

    return kept.shelf.number(kept, ("norm", order), local, SUM).pow(1 / order).to(own)


def _largest(mine: Tensor) -> Tensor:
    return mine.abs().max() if mine.numel() else mine.new_zeros(())


_aten: Any = torch.ops.aten
_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    _aten.sum.default: _sum,
    _aten.count_nonzero.default: _count_nonzero,
    _aten.linalg_vector_norm.default: _norm,
}


def _unscaling(func: Any, args: Any, kwargs: Any) -> Any:
    """``GradScaler.unscale_``: each element on its own, but for whether one is not finite."""
    if func is not _aten._amp_foreach_non_finite_check_and_unscale_.default:
        return _WHOLE
    grads, found, scale = args
    sliced = [grad for grad in grads if isinstance(grad, Sliced)]
    if not all(map(_is_entire, sliced)):
        return _WHOLE
    func([one._kept.mine if isinstance(one, Sliced) else one for one in grads], found, scale)
    for grad in sliced:
        grad._kept.shelf.changed(grad._kept)
    sliced[0]._kept.shelf.group.reduce_all(found, MAX).wait()
    return None


def _view(func: Any, args: Any, kwargs: Any) -> Any:
    """A view of a Sliced is one; nothing is gathered for it."""
    schema = func._schema
    is_view = not schema.is_mutable and any(one.alias_info for one in schema.returns)
    if not is_view or not isinstance(args[0], Sliced):
        return _WHOLE
    source = args[0]
    kept = source._kept
    if func is _aten.detach.default or func is _aten.alias.default:
        return _present(kept, source.size(), source.stride(), source.storage_offset())
    like = _empty_strided(kept.shape, kept.strides, dtype=kept.mine.dtype, device="meta")
    like = like.as_strided(source.size(), source.stride(), source.storage_offset())
    result = func(like, *args[1:], **kwargs)
    views = [result] if isinstance(result, Tensor) else result
    if any(view.dtype != like.dtype for view in views):
        return _WHOLE
    made = [_present(kept, one.size(), one.stride(), one.storage_offset()) for one in views]
    return made[0] if isinstance(result, Tensor) else made


def _on_whole(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on gathered tensors, and cut what it has written."""
    opened, named = _opened(args), _opened(kwargs)
    result = func(*opened, **named)
    schema = func._schema
    if not schema.is_mutable:
        return result
    written = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            is_here = position < len(args)
            given = args[position] if is_here else kwargs.get(argument.name)
            written.append(given)
            _cut_again(given, opened[position] if is_here else named.get(argument.name))
    # In-place operations give back what they were given.
    return written[0] if len(schema.returns) == 1 and len(written) == 1 else result


def _cut_again(given: Any, opened: Any) -> None:
    if isinstance(given, (list, tuple)):
        for pair in zip(given, opened, strict=True):
            _cut_again(*pair)
    elif isinstance(given, Sliced):
        given._kept.written(opened)


def _opened(value: Any) -> Any:
    if isinstance(value, Sliced):
        return value.plain()
    if type(value) in (list, tuple):
        return type(value)(_opened(part) for part in value)
    if type(value) is dict:
        return {name: _opened(part) for name, part in value.items()}
    return value


# Presenting.


def presented(kept: Kept) -> Sliced:
    """What is kept, as scripts see it."""
    return _present(kept, kept.shape, kept.strides)


def _present(kept: Kept, size: Any, stride: Any, offset: Any = 0) -> Sliced:
    make: Any = Tensor._make_wrapper_subclass
    mine = kept.mine
    made: Sliced = make(
        Sliced, size, strides=stride, storage_offset=offset, dtype=mine.dtype, device=mine.device
    )
    made._kept = kept
    return made


def _is_entire(tensor: Sliced) -> bool:
    """Whether it is no view of a part, nor one in another order."""
    kept = tensor._kept
    return (
        tuple(tensor.size()) == kept.shape
        and tuple(tensor.stride()) == kept.strides
        and tensor.storage_offset() == 0
    )
