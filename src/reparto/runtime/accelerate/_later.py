"""Numbers that the script has asked for and does not need yet.

``total += loss.item()`` makes the CPU wait for the GPU in every step, only to add up. The
converter writes ``total += reparto.later(loss)`` where nothing but a sum or a list is done with
the number inside of the loop, and ``total = reparto.now(total)`` behind it. Between them stands a
`Later`, which becomes a number the moment that anybody wants one: printed, compared, handed to
``math``. Values come to the CPU many at once, and are added up there in the script's own order,
so the sum is the same to the last bit.
"""

from __future__ import annotations

import math
import numbers
import operator
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: So many numbers wait on the device at the most.
WAITING = 1024


class Later:
    """A number, or a sum or product of numbers, that is still on its way.

    It is not a ``float``; whatever asks it for its value gets one.
    """

    __slots__ = ("__weakref__", "_depth", "_how", "_value")

    def __init__(
        self, how: Callable[[], Any] | _Of | None = None, value: Any = None, depth: int = 0
    ) -> None:
        self._how, self._value, self._depth = how, value, depth

    def comes_from(self, how: Callable[[], Any]) -> None:
        """Tell how to get the number."""
        self._how = how

    def value(self) -> Any:
        """The number; waits for the device if it must."""
        if self._how is None:
            return self._value
        pending: list[Later] = [self]
        while pending:  # sums are as deep as loops are long
            one = pending[-1]
            how = one._how
            if isinstance(how, _Of):
                left, right = how.left, how.right
                if type(left) is Later:
                    if left._how is not None:
                        pending.append(left)
                        continue
                    left = left._value
                if type(right) is Later:
                    if right._how is not None:
                        pending.append(right)
                        continue
                    right = right._value
                one._value, one._how = how.func(left, right), None
            elif how is not None:
                value = how()
                if one._how is how:  # else it has settled itself
                    one._value, one._how = value, None
            pending.pop()
        return self._value

    def settle(self, value: Any) -> None:
        """The number has come."""
        self._value, self._how = value, None

    def __float__(self) -> float:
        return float(self.value())

    def __int__(self) -> int:
        return int(self.value())

    def __index__(self) -> int:
        return operator.index(self.value())

    def __bool__(self) -> bool:
        return bool(self.value())

    def __str__(self) -> str:
        return str(self.value())

    def __repr__(self) -> str:
        return repr(self.value())

    def __format__(self, spec: str) -> str:
        return format(self.value(), spec)

    def __hash__(self) -> int:
        return hash(self.value())

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self.value(), ndigits) if ndigits is not None else round(self.value())

    def __reduce__(self) -> Any:
        value = self.value()
        return type(value), (value,)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.asarray(self.value(), dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value(), name)  # is_integer, hex, numerator, …


class _Of:
    """An operation on two numbers, of which at least one is on its way."""

    __slots__ = ("func", "left", "right")

    def __init__(self, func: Callable[..., Any], left: Any, right: Any) -> None:
        self.func, self.left, self.right = func, left, right


def _binary(func: Callable[..., Any]) -> tuple[Any, Any]:
    def forward(self: Later, other: Any) -> Any:
        return _combined(func, self, other)

    def backward(self: Later, other: Any) -> Any:
        return _combined(func, other, self)

    return forward, backward


def _combined(func: Callable[..., Any], one: Any, two: Any) -> Any:
    depth = 0
    for part in (one, two):
        if type(part) is Later:
            depth = part._depth if part._depth > depth else depth
        elif not isinstance(part, (int, float)):
            values = (part.value() if isinstance(part, Later) else part for part in (one, two))
            return func(*values)
    made = Later(_Of(func, one, two), None, depth + 1)
    if depth + 1 >= WAITING:  # a sum over a long loop is not kept term by term
        made.value()
        made._depth = 0
    return made


for _name in ("add", "sub", "mul", "truediv"):
    _forward, _backward = _binary(getattr(operator, _name))
    setattr(Later, f"__{_name}__", _forward)
    setattr(Later, f"__r{_name}__", _backward)


def _at_once(func: Callable[..., Any], swapped: bool = False) -> Any:
    def method(self: Later, *others: Any) -> Any:
        values = [one.value() if isinstance(one, Later) else one for one in others]
        return func(*values, self.value()) if swapped else func(self.value(), *values)

    return method


for _name in ("pow", "floordiv", "mod", "divmod"):
    _func = getattr(operator, _name, divmod)
    setattr(Later, f"__{_name}__", _at_once(_func))
    setattr(Later, f"__r{_name}__", _at_once(_func, swapped=True))
for _name in ("neg", "pos", "abs", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Later, f"__{_name}__", _at_once(getattr(operator, _name)))
for _name in ("floor", "ceil", "trunc"):
    setattr(Later, f"__{_name}__", _at_once(getattr(math, _name)))
numbers.Real.register(Later)


class Ring:
    """Numbers on the device that the CPU will fetch, many at once.

    Args:
        device: Where they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._memory = torch.zeros(WAITING, dtype=torch.float64, device=device)
        self._places = list(self._memory.unbind())
        self._waiting: list[tuple[weakref.ref[Later], torch.dtype]] = []

    def put(self, tensor: Tensor, later: Later) -> None:
        """Keep a number of now; called with torch functions disabled."""
        if len(self._waiting) == WAITING:
            self.fetch()
        self._places[len(self._waiting)].copy_(tensor.detach().reshape(()))
        self._waiting.append((weakref.ref(later), tensor.dtype))
        later.comes_from(self._fetcher(later))

    def _fetcher(self, later: Later) -> Callable[[], Any]:
        ref = weakref.ref(later)

        def fetched() -> Any:
            self.fetch()
            one = ref()
            return None if one is None else one._value

        return fetched

    def fetch(self) -> None:
        """Bring all that wait to the CPU."""
        if not self._waiting:
            return
        with torch._C.DisableTorchFunction():
            values = self._memory[: len(self._waiting)].tolist()
        waiting, self._waiting = self._waiting, []
        for value, (ref, dtype) in zip(values, waiting, strict=True):
            later = ref()
            if later is not None:
                later.settle(_as(value, dtype))


class History:
    """Numbers that a graph writes down itself, a row for each time that it is launched.

    Args:
        rows: The memory of the graph.
        dtypes: What each number of a row is.
        rewind: Lets the graph begin with the first row again.
    """

    def __init__(
        self, rows: Tensor, dtypes: list[torch.dtype], rewind: Callable[[], None]
    ) -> None:
        self._rows, self._dtypes, self._rewind = rows, dtypes, rewind
        self._count = 0
        self._fetch = self.fetch
        self._last: list[float] = []
        self._waiting: list[tuple[int, int, weakref.ref[Later]]] = []

    def launched(self, laters: list[tuple[int, Later]]) -> None:
        """A row was written; these numbers of it are waited for, by their column."""
        for column, later in laters:
            self._waiting.append((self._count, column, weakref.ref(later)))
            later.comes_from(self._fetch)
        self._count += 1
        if self._count == WAITING:
            self.fetch()

    def wants_last(self, column: int) -> Later:
        """A number of the row that was written last, for which nobody has to wait."""
        if self._count == 0:  # just fetched
            return Later(None, _as(self._last[column], self._dtypes[column]))
        later = Later(self._fetch)
        self._waiting.append((self._count - 1, column, weakref.ref(later)))
        return later

    def fetch(self) -> None:
        """Bring all rows to the CPU."""
        with torch._C.DisableTorchFunction():
            rows = self._rows[: self._count].tolist()
            self._last = rows[-1] if rows else self._last
            self._rewind()
        self._count, waiting, self._waiting = 0, self._waiting, []
        for row, column, ref in waiting:
            later = ref()
            if later is not None:
                later.settle(_as(rows[row][column], self._dtypes[column]))

    def end(self) -> None:
        """No row comes any more: bring those that there are, and let go of who writes them."""
        self.fetch()
        vars(self).clear()


def _as(value: float, dtype: torch.dtype) -> Any:
    if dtype is torch.bool:
        return bool(value)
    return value if dtype.is_floating_point else int(value)


def now(value: Any) -> Any:
    """A number in the place of one on its way; in lists, all of them."""
    if isinstance(value, Later):
        return value.value()
    if isinstance(value, list):
        for index, one in enumerate(value):
            if isinstance(one, Later):
                value[index] = one.value()
    return value
