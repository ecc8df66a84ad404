"""Axis: where a value stands in a picture, and which values are told beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

Tick = tuple[float, str]
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One direction of a picture.

    Attributes:
        label: Beside it.
        low: Its beginning.
        high: Its end; more than `low`.
        log: Whether equal lengths are equal ratios.
        ticks: Values that are told; None to choose them.
    """

    label: str = ""
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    ticks: tuple[Tick, ...] | None = None

    def at(self, value: float) -> float:
        """Its place from 0 to 1; what lies beyond an end is drawn at the end."""
        if self.log:
            if value <= 0:
                return 0.0
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    def has(self, value: float) -> bool:
        """Whether it is not beyond an end."""
        return self.low <= value <= self.high

    def told(self, most: int = 6) -> tuple[Tick, ...]:
        """The values that are told."""
        if self.ticks is not None:
            return self.ticks
        return _log_ticks(self.low, self.high) if self.log else _ticks(self.low, self.high, most)


def axis_over(
    values: Iterable[float], label: str = "", *, log: bool = False, pad: float = 0.05
) -> Axis:
    """An axis on which all these values have a place."""
    found = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not found:
        return Axis(label=label)
    low, high = min(found), max(found)
    if log:
        ratio = (high / low) ** pad if high > low else 2.0
        return Axis(label=label, low=low / ratio, high=high * ratio, log=True)
    room = (high - low) * pad if high > low else abs(low) * 0.1 or 0.5
    return Axis(label=label, low=low - room, high=high + room)


def time_axis(end_s: float) -> tuple[Axis, float]:
    """An axis from the beginning to that second, and what seconds are divided by on it."""
    unit, by = ("s", 1.0) if end_s < 200 else ("min", 60.0) if end_s < 3 * 3600 else ("h", 3600.0)
    high = max(end_s, 1e-3) / by
    return Axis(label=f"{unit} since the beginning", low=0.0, high=high), by


def _ticks(low: float, high: float, most: int) -> tuple[Tick, ...]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in _NICE if nice * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    places = [step * place for place in range(first, first + most + 2)]
    kept = [place for place in places if place <= high + 1e-9 * (high - low)]
    return tuple((place, _label(place, step)) for place in kept)


def _label(value: float, step: float) -> str:
    for scale, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * scale and step >= scale / 10:
            return f"{value / scale:g}{unit}"
    if step < 1e-5 or abs(value) >= 1e7:
        return f"{value:.4g}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1  # steps of 2.5
    return f"{value:.{decimals}f}"


def _log_ticks(low: float, high: float) -> tuple[Tick, ...]:
    decades = math.log10(high / low)
    subs = (1.0,) if decades > 2.5 else (1.0, 3.0) if decades > 1.2 else (1.0, 2.0, 5.0)
    every = max(1, round(decades / 5))
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    places = [
        sub * 10.0**power for power in range(first, last + 1) for sub in subs if power % every == 0
    ]
    kept = [place for place in places if low <= place <= high]
    if len(kept) < 2:
        kept = [low * (high / low) ** part for part in (0.1, 0.9)]
    return tuple((place, f"{place:.3g}") for place in kept)
