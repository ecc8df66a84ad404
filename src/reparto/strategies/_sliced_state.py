"""An optimizer and its state, where parameters are sliced.

optimizer.state[whole] ── taken_state ──► slices, by which it steps ── put_state ──► as wholes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.optim import optimizer as _optimizer

from reparto.strategies._shelf import Kept
from reparto.strategies._sliced import Sliced, presented

#: Optimizers of torch's that treat each element on its own, so that they can step on slices.
_BY_ELEMENT = frozenset(
    "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam Rprop ASGD".split()
)


def has_hooks(optimizer: Any) -> bool:
    """Whether the script looks at its steps."""
    shared = (_optimizer._global_optimizer_pre_hooks, _optimizer._global_optimizer_post_hooks)
    own = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    return any(map(len, (*shared, *own)))


def steps_by_element(optimizer: Any) -> bool:
    """Whether it can step on slices."""
    kind = optimizer.__class__
    return kind.__module__.startswith("torch.optim") and kind.__name__ in _BY_ELEMENT


def sliced_of(optimizer: Any) -> Iterator[tuple[Any, int, Sliced]]:
    """The sliced parameters of an optimizer, with their group and place."""
    for group in optimizer.param_groups:
        for position, tensor in enumerate(group["params"]):
            if isinstance(tensor, Sliced):
                yield group, position, tensor


def slice_of(kept: Kept, value: Any) -> Any:
    """This worker's slice of what has the parameter's shape; other things as they are."""
    if isinstance(value, Sliced):
        return value._kept.mine if value._kept.is_like(kept) else kept.cut(value.plain())
    if isinstance(value, Tensor) and tuple(value.shape) == kept.shape:
        return kept.cut(value.to_dense() if value.is_sparse else value)
    return value


def taken_state(optimizer: Any, tensor: Sliced) -> dict[Any, Any] | None:
    """An optimizer's state of a parameter, in slices; it is no longer there."""
    state = optimizer.state.pop(tensor, None)
    if state is None:
        return None
    return {name: slice_of(tensor._kept, value) for name, value in state.items()}


def put_state(optimizer: Any, tensor: Sliced, state: dict[Any, Any] | None) -> None:
    """Let slices of an optimizer's state present the whole."""
    if state is not None:
        optimizer.state[tensor] = {
            name: presented(tensor._kept.alike(value))
            if isinstance(value, Tensor) and value.shape == tensor._kept.mine.shape
            else value
            for name, value in state.items()
        }
