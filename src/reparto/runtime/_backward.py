"""The wrappers of backward passes and of ``Tensor.grad``: where gradients are made and read."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._collective import sum_all
from reparto.runtime._tensors import (
    Shard,
    Summand,
    Tracked,
    in_transform,
    plain,
    shard,
    sliced,
    whole,
)
from reparto.strategies import set_grad

if TYPE_CHECKING:
    from collections.abc import Callable

    from reparto.runtime._world import World

    Current = Callable[[], "World | None"]


def get_grad(current: Current) -> Any:
    base: Any = torch._C.TensorBase.grad
    of = base.__get__

    def grad(self: Tensor) -> Tensor | None:  # rules look the attribute up by this name
        found: Tensor | None = of(self)
        if (world := current()) is None:
            return found
        gradients = world.gradients
        if gradients.quiet or (found is None and not gradients.has_aside()):
            return found
        if type(self) is Shard or type(self) is Summand or not gradients.read(self):
            return found
        return of(self)  # type: ignore[no-any-return]

    return grad


def grad_attribute(current: Current) -> tuple[Any, Any, Any]:
    base: Any = torch._C.TensorBase.grad

    def put(self: Tensor, value: Any) -> None:
        if isinstance(self, Tracked):
            base.__set__(self, value)
            return
        world = current()
        if world is not None and not world.gradients.quiet:
            value = whole(world, value) if isinstance(value, Tracked) else value
            world.gradients.put_by_hand(self, value)
        set_grad(self, value)

    return get_grad(current), put, lambda self: put(self, None)


def backward(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def backward(
        self: Tensor,
        gradient: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    return backward


def autograd_backward(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def backward(
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> None:
        world = current()
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if world is None:
            original(roots, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            return
        seeds = grad_tensors if grad_tensors is not None else grad_variables
        inputs = [_edge(one) for one in _listed(inputs)] if inputs is not None else None
        if not world.gradients.in_pass:  # else a checkpointed part within another pass
            world.before_backward(roots)
        local, grads = _rooted(world, roots, seeds)
        with world.gradients.passing():
            original(local, grads, retain_graph, create_graph, inputs=inputs)

    return backward


def lone_backward(current: Current, original: Any) -> Any:
    """For a worker without others: what is passed back is looked at, and nothing else."""

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        world = current()
        if world is None or world.gradients.quiet or world.gradients.in_pass:
            original(tensors, *args, **kwargs)
            return
        world.leave_if_done()
        world.loss_scale = 1.0
        world.saw_loss(None, _listed(tensors))
        world.gradients.in_pass = True
        try:
            original(tensors, *args, **kwargs)
        finally:
            world.gradients.in_pass = False
        world.gradients.lone_pass()

    return backward


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _edge(leaf: Any) -> Any:
    """What torch is told to differentiate by: for a Shard its place in the graph."""
    if not isinstance(leaf, Tracked):
        return leaf
    with torch._C.DisableTorchFunctionSubclass():  # torch makes a view, which has to be plain
        return torch.autograd.graph.get_gradient_edge(leaf)


def _rooted(world: World, roots: list[Tensor], seeds: Any) -> tuple[list[Tensor], list[Any]]:
    """Local roots and seeds, so that the workers' terms add up to the script's objective."""
    given = [seeds] if isinstance(seeds, Tensor) or seeds is None else list(seeds)
    given += [None] * (len(roots) - len(given))
    local, grads = [], []
    for root, seed in zip(roots, given, strict=True):
        if isinstance(root, Shard):
            if seed is None:
                _needs_scalar(root)
                seed = torch.ones_like(plain(root))
            elif isinstance(seed, Shard) and seed._place == root._place:
                seed = plain(seed)
            else:
                seed = sliced(world, whole(world, seed), root._place)
            if root._place.split.is_ghost(world.rank):
                seed = torch.zeros_like(seed)
        elif isinstance(root, Summand):
            seed = whole(world, seed) if isinstance(seed, Tracked) else seed
        elif world.size > 1:
            if seed is None:
                _needs_scalar(root)
            part = world.share if world.apart else 1 / world.size
            seed = (torch.ones_like(root) if seed is None else whole(world, seed)) * part
        with torch.enable_grad():  # a pass within another one: roots keep their graph
            local.append(plain(root) if isinstance(root, Tracked) else root)
        grads.append(seed)
    return local, grads


def _needs_scalar(root: Tensor) -> None:
    if root.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")


def autograd_grad(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def grad(
        outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        world = current()
        if world is None or kwargs.get("is_grads_batched") or in_transform() is not None:
            return original(outputs, inputs, grad_outputs, *args, **kwargs)
        leaves = [inputs] if isinstance(inputs, Tensor) else list(inputs)
        by_hand = all(leaf.is_leaf for leaf in leaves)
        if by_hand:
            world.leave_if_done()
        found = _global_grad(world, original, outputs, leaves, grad_outputs, args, kwargs)
        is_of_inputs = world.apart and any(isinstance(leaf, Tracked) for leaf in leaves)
        if by_hand and not kwargs.get("create_graph") and not is_of_inputs:
            world.gradients.made_by_hand(found)
        return found

    return grad


def _global_grad(
    world: World, original: Any, outputs: Any, leaves: list[Tensor], grad_outputs: Any, args: Any,
    kwargs: Any,
) -> Any:  # fmt: skip
    if world.size == 1:
        return original(outputs, leaves, grad_outputs, *args, **kwargs)
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    local, seeds = _rooted(world, [world.exact(root) for root in roots], grad_outputs)
    found = original(local, [_edge(leaf) for leaf in leaves], seeds, *args, **kwargs)
    made: list[Tensor | None] = []
    for leaf, one in zip(leaves, found, strict=True):
        if one is None or isinstance(leaf, Summand):
            made.append(one)
        elif isinstance(leaf, Shard):
            made.append(shard(one, leaf._place))
        else:
            made.append(one / world.share if world.apart else sum_all(one, world.data))
    return tuple(made)


def register_hook(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def register_hook(self: Tensor, hook: Any) -> Any:
        world = current()
        if world is None or world.size == 1 or isinstance(self, Tracked) or world.regions.active:
            return original(self, hook)

        world.has_hooks = True

        def on_whole(grad: Tensor) -> Any:
            # The hook must see the global gradient; what it returns is shared out again.
            if world.apart:
                result = hook(grad / world.share)
                return None if result is None else result * world.share
            result = hook(sum_all(grad, world.data))
            return None if result is None else result / world.size

        return original(self, on_whole)

    return register_hook


def register_arrival_hook(current: Current, original: Any) -> Any:
    """``Tensor.register_post_accumulate_grad_hook``: we hear of the gradient before the script."""

    @functools.wraps(original)
    def register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> Any:
        world = current()
        if world is None or world.size == 1:
            return original(self, hook)
        world.has_hooks = True

        def told_first(tensor: Tensor) -> Any:
            world.gradients.arrives(tensor)
            return hook(tensor)

        return original(self, told_first)

    return register_post_accumulate_grad_hook
