"""Attributes and methods that tell about a tensor rather than compute with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from reparto.runtime._rules._base import BY_NAME, named, wrapped
from reparto.runtime._tensors import GATHER, Shard, Summand, shard

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _same_on_slice(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return func(*args, **kwargs)


for _name in (
    "dim ndimension ndim.__get__ dtype.__get__ device.__get__ requires_grad.__get__ "
    "requires_grad.__set__ is_leaf.__get__ grad_fn.__get__ is_cuda.__get__ layout.__get__ "
    "is_floating_point is_complex is_sparse.__get__ is_contiguous get_device element_size "
    "is_quantized.__get__ is_mps.__get__ is_cpu.__get__ is_meta.__get__ names.__get__ is_signed "
    "is_nested.__get__ is_xpu.__get__ is_mkldnn.__get__ _version.__get__ output_nr.__get__ "
    "is_same_size __hash__ is_conj is_neg is_inference itemsize.__get__ is_tensor "
    "is_sparse_csr.__get__ is_hpu.__get__ is_mtia.__get__ retains_grad.__get__ is_pinned "
    "_backward_hooks.__get__ _base.__get__ is_distributed is_vulkan.__get__ has_names "
    "is_ipu.__get__ is_ort.__get__ is_xla.__get__ is_maia.__get__ _is_view"
).split():
    BY_NAME[_name] = _same_on_slice


@named("requires_grad_", "retain_grad", "detach_")
def _on_itself(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    func(*args, **kwargs)
    return args[0] if func.__name__ != "retain_grad" else None


@named("grad.__get__")
def _grad(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    found = func(*args)
    return found if found is None else shard(found, args[0]._place)


@named("grad.__set__")
def _set_grad(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    value = args[1].as_subclass(Tensor) if isinstance(args[1], Shard) else args[1]
    func(args[0], value)
    return None


@named("data.__get__")
def _data(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return wrapped(world, args[0].as_subclass(Tensor).detach(), args[0]._place)


@named("data.__set__")
def _set_data(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, value = args
    if isinstance(target, Shard) and isinstance(value, Shard) and target._place == value._place:
        func(target, value.as_subclass(Tensor))
        return None
    return GATHER


@named("register_hook")
def _register_hook(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, hook = args
    place = getattr(tensor, "_place", None)
    if isinstance(tensor, Summand) or place is None:
        return GATHER

    def on_slice(grad: Tensor) -> Any:
        result = hook(shard(grad, place))
        return result.as_subclass(Tensor) if isinstance(result, Shard) else result

    return func(tensor, on_slice)


@named("__deepcopy__")
def _deepcopy(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    copy = args[0].as_subclass(Tensor).detach().clone()
    copy.requires_grad_(args[0].requires_grad)
    return wrapped(world, copy, args[0]._place)


@named("broadcast_tensors", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d")
def _whole_only(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return GATHER


@named("is_same_shape", "equal", "allclose")
def _equal(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return GATHER


@named("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "new")
def _new(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return world.made_by_sizes(func, args, kwargs, has_self=True)


