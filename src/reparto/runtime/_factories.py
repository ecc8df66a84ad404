"""Factories that are handed a batch size: ``torch.zeros(x.size(0), 10)`` makes a Shard.

Which of the numbers is the batch is not guessed: ``x.size(0)`` is a BatchInt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reparto.runtime._layout import BatchInt, Placement, number
from reparto.runtime._tensors import shard

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: Factories that draw; every worker draws for the whole batch, as the script would alone.
DRAWN = ("rand", "randn", "randint", "normal")
#: Factories that take their sizes one by one, too.
BY_NUMBERS = ("zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty")


def made(world: World, func: Any, args: Args, kwargs: Kwargs, start: int = 0) -> Any:
    """Call a factory; a size that follows the batch makes the result a Shard.

    Args:
        world: The worker's world.
        func: The factory.
        args: Its arguments.
        kwargs: Its keyword arguments.
        start: Where its own arguments begin: 1 for methods.
    """
    if not _mentions_batch((args, kwargs)):
        return func(*args, **kwargs)
    where, sizes = _sizes(func.__name__, args, kwargs, start)
    dim = next((dim for dim, size in enumerate(sizes) if isinstance(size, BatchInt)), None)
    if _uses_number(where, sizes, args, kwargs, start):
        world.used_as_number()
    if dim is None:
        return func(*args, **kwargs)
    size: Any = sizes[dim]
    place = Placement(size.split, dim, size.outer, size.inner)
    if func.__name__ in DRAWN:
        return world.slice_of(func(*args, **kwargs), place)
    local = [number(one) for one in sizes]
    local[dim] = place.local_length(world.rank)
    if where == "size":
        return shard(func(*args, **{**kwargs, "size": local}), place)
    if where is None:
        return shard(func(*args[:start], *local, **kwargs), place)
    return shard(func(*args[:where], local, *args[where + 1 :], **kwargs), place)


def _mentions_batch(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_mentions_batch(one) for one in value)
    if isinstance(value, dict):
        return any(_mentions_batch(one) for one in value.values())
    return isinstance(value, BatchInt)


def _sizes(name: str, args: Args, kwargs: Kwargs, start: int) -> tuple[Any, list[Any]]:
    """Where the sizes stand (a position, "size", or None for one by one), and what they are."""
    if isinstance(kwargs.get("size"), (tuple, list)):
        return "size", list(kwargs["size"])
    for position in range(start, len(args)):
        if isinstance(args[position], (tuple, list)):
            return position, list(args[position])
    return None, list(args[start:]) if name in BY_NUMBERS else []


def _uses_number(where: Any, sizes: list[Any], args: Args, kwargs: Kwargs, start: int) -> bool:
    """Whether a batch size is also a bound, a value to fill with, or a second size."""
    others = [value for name, value in kwargs.items() if name != where]
    if where is not None or not sizes:
        others += [value for position, value in enumerate(args) if position != where]
    in_sizes = sum(isinstance(size, BatchInt) for size in sizes)
    return in_sizes > 1 or _mentions_batch(others)
