"""Numbers that a script reads where replicas are apart: each worker's estimate of the global one.

    loss.item()  ──►  Estimate: 0.42          printed, logged: this worker's estimate, no message
                      term 0.105 of a sum     compared, tested: all workers sum their terms first,
                                              so that every one of them takes the same decision

Sums, differences and multiples of Estimates are Estimates, so that a running total keeps this up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reparto.runtime._world import World


class Estimate(float):
    """A worker's estimate of a number that only all workers know.

    Attributes:
        term: This worker's term of the true number.
        constant: What is added to the sum of all terms.
    """

    term: float
    constant: float
    world: World

    def __new__(cls, value: float, term: float, constant: float, world: World) -> Estimate:
        """Make one."""
        made = super().__new__(cls, value)
        made.term, made.constant, made.world = term, constant, world
        return made

    def agreed(self) -> float:
        """The true number; asks the other workers."""
        return self.world.agree_on(self.term) + self.constant

    # Linear: stays an estimate.

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Estimate):
            value, constant = _raw(self) + _raw(other), self.constant + other.constant
            return Estimate(value, self.term + other.term, constant, self.world)
        if not isinstance(other, (int, float)):
            return NotImplemented
        return Estimate(_raw(self) + other, self.term, self.constant + other, self.world)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Estimate):
            return self.agreed() * other.agreed()
        if not isinstance(other, (int, float)):
            return NotImplemented
        factor = float.__float__(float(other))
        return Estimate(
            _raw(self) * factor, self.term * factor, self.constant * factor, self.world
        )

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __sub__(self, other: Any) -> Any:
        return self + (other * -1) if isinstance(other, (int, float)) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if isinstance(other, (int, float)) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Estimate):
            return self.agreed() / other.agreed()
        if not isinstance(other, (int, float)):
            return NotImplemented
        return self * (1.0 / other)

    # For people: the estimate as it is.

    def __format__(self, form: str) -> str:
        return format(round(_raw(self)), form) if form.endswith("d") else format(_raw(self), form)

    def __index__(self) -> int:
        return round(self.agreed())

    def __reduce__(self) -> Any:
        return (float, (_raw(self),))

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __copy__(self) -> Any:
        return self


def _raw(number: float) -> float:
    return float.__add__(number, 0.0)


def _on_agreed(name: str) -> Any:
    plain = getattr(float, name)

    def method(self: Estimate, *others: Any) -> Any:
        known = [one.agreed() if isinstance(one, Estimate) else one for one in others]
        return plain(self.agreed(), *known)

    return method


for _name in (
    "__lt__ __le__ __gt__ __ge__ __eq__ __ne__ __bool__ __int__ __float__ __abs__ __round__ "
    "__floor__ __ceil__ __trunc__ __pow__ __rpow__ __rtruediv__ __floordiv__ __rfloordiv__ "
    "__mod__ __rmod__ __divmod__ __rdivmod__ is_integer as_integer_ratio"
).split():
    setattr(Estimate, _name, _on_agreed(_name))

Estimate.__hash__ = float.__hash__  # type: ignore[method-assign]
