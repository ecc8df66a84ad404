"""Attributes and methods that tell about a tensor rather than compute with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from reparto.runtime._factories import made
from reparto.runtime._layout import Placement
from reparto.runtime._rules._base import BY_NAME, argument, named, viewed, wrapped
from reparto.runtime._tensors import GATHER, Shard, shard, sliced, whole

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _same_on_slice(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return func(*args, **kwargs)


for _name in (
    "dim ndimension ndim.__get__ dtype.__get__ device.__get__ requires_grad.__get__ "
    "is_leaf.__get__ grad_fn.__get__ is_cuda.__get__ layout.__get__ "
    "is_floating_point is_complex is_sparse.__get__ is_contiguous get_device element_size "
    "is_quantized.__get__ is_mps.__get__ is_cpu.__get__ is_meta.__get__ names.__get__ is_signed "
    "is_nested.__get__ is_xpu.__get__ is_mkldnn.__get__ _version.__get__ output_nr.__get__ "
    "__hash__ is_conj is_neg is_inference itemsize.__get__ is_tensor "
    "is_sparse_csr.__get__ is_hpu.__get__ is_mtia.__get__ retains_grad.__get__ is_pinned "
    "_backward_hooks.__get__ _base.__get__ is_distributed is_vulkan.__get__ has_names "
    "is_ipu.__get__ is_ort.__get__ is_xla.__get__ is_maia.__get__ _is_view"
).split():
    BY_NAME[_name] = _same_on_slice


@named("requires_grad_", "requires_grad.__set__", "retain_grad", "detach_")
def _on_itself(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    func(*args, **kwargs)
    world.has_leaves = True  # whose gradients belong to nobody who would set them right
    return args[0] if func.__name__.endswith("_") else None


@named("grad.__get__")
def _grad(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    found = func(*args)
    if found is None:
        return None
    world.gradients.read_rows(args[0], found)
    return shard(found, args[0]._place)


@named("grad.__set__")
def _set_grad(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    func(args[0], _slice_like(world, args[1], args[0]._place))
    return None


def _slice_like(world: World, value: Any, place: Placement) -> Any:
    if isinstance(value, Shard) and value._place == place:
        return value.as_subclass(Tensor)
    return sliced(world, whole(world, value), place) if isinstance(value, Tensor) else value


@named("data.__get__", "detach")
def _data(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    return viewed(world, tensor.as_subclass(Tensor).detach(), tensor._place, tensor)


@named("data.__set__")
def _set_data(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, value = args
    if isinstance(target, Shard) and isinstance(value, Shard) and target._place == value._place:
        func(target, value.as_subclass(Tensor))
        return None
    return GATHER


@named("register_hook")
def _register_hook(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, hook = args[0], argument(args, kwargs, 1, "hook")
    place = tensor._place
    world.impure("a hook may look across the batch")

    def on_slice(grad: Tensor) -> Any:
        return _slice_like(world, hook(shard(grad, place)), place)

    return func(tensor, on_slice)


@named("__deepcopy__")
def _deepcopy(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    copy = args[0].as_subclass(Tensor).detach().clone()
    copy.requires_grad_(args[0].requires_grad)
    return wrapped(world, copy, args[0]._place)


@named("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "new")
def _new(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return made(world, func, args, kwargs, start=1)
