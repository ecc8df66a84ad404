"""The rules: how each operation runs on tensors that are shared out.

One file a family. A rule is found by the function object or by its name; a new one is a function
with ``@named`` or ``@exactly`` in any file that is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reparto.runtime import _tensors
from reparto.runtime._rules import (
    _attributes,
    _index,
    _joins,
    _layers,
    _losses,
    _matmul,
    _random,
    _recurrent,
    _reduce,
    _shape,
)
from reparto.runtime._rules._base import BY_NAME
from reparto.runtime._rules._pointwise import (
    is_pointwise,
    is_pointwise_in_place,
    pointwise,
    pointwise_in_place,
)
from reparto.runtime._rules._sums import SUMS
from reparto.runtime._tensors import GATHER, Rule

if TYPE_CHECKING:
    from reparto.runtime._world import World

__all__ = [
    "_attributes",
    "_index",
    "_joins",
    "_layers",
    "_losses",
    "_matmul",
    "_random",
    "_recurrent",
    "_reduce",
    "_shape",
]


def function_name(func: Any) -> str:
    """The name of a function; ``shape.__get__`` for the getter of an attribute."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        attribute = getattr(func.__self__, "fget", func.__self__)  # ours, or a getter in C
        return f"{attribute.__name__}.{name}"
    return str(name)


def _on_whole(world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return GATHER


def resolve(func: Any) -> tuple[Rule, Rule]:
    """The rule for Shards and the rule for Summands of a function seen for the first time."""
    name = function_name(func)
    for_shards = _tensors.RULES.get(func) or BY_NAME.get(name)
    if for_shards is None and is_pointwise_in_place(name):
        for_shards = pointwise_in_place
    if for_shards is None and is_pointwise(name):
        for_shards = pointwise
    return for_shards or _on_whole, SUMS.get(name, _on_whole)


_tensors._resolve.append(resolve)
