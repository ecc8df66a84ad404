"""Rates, times and sizes as people write them: ``10mbit``, ``5ms``, ``2GiB``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from reparto.errors import UsageError

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z/]*)\s*", re.IGNORECASE)
_RATES = {"": 1.0, "bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_PER_SECOND = {unit + per: rate for unit, rate in _RATES.items() for per in ("", "/s", "ps")}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


def parse_rate(text: Any, where: str = "rate") -> float | None:
    """Bits a second; ``none`` is no limit.

    Raises:
        UsageError: If it is no rate.

    Example:
        >>> parse_rate("10mbit"), parse_rate("1.5 Gbit/s"), parse_rate("none")
        (10000000.0, 1500000000.0, None)
    """
    if str(text).lower() in ("none", "unlimited", "off"):
        return None
    return _quantity(text, _PER_SECOND, where, "a rate such as 10mbit, 1gbit or none")


def parse_time(text: Any, where: str = "delay") -> float:
    """Seconds.

    Raises:
        UsageError: If it is no time.

    Example:
        >>> parse_time("5ms")
        0.005
    """
    return _quantity(text, _TIMES, where, "a time such as 5ms or 0.1s")


def parse_size(text: Any, where: str = "memory") -> int:
    """Bytes.

    Raises:
        UsageError: If it is no size.

    Example:
        >>> parse_size("2GiB")
        2147483648
    """
    return round(_quantity(text, _SIZES, where, "a size such as 512MiB or 2GiB"))


def rate_text(bits_per_s: float | None) -> str:
    """A rate as it is written.

    Example:
        >>> rate_text(1e8), rate_text(1.5e9), rate_text(None)
        ('100mbit', '1.5gbit', 'none')
    """
    if bits_per_s is None:
        return "none"
    for unit in ("gbit", "mbit", "kbit"):
        if bits_per_s >= _RATES[unit]:
            return f"{bits_per_s / _RATES[unit]:g}{unit}"
    return f"{bits_per_s:g}bit"


def _quantity(text: Any, units: Mapping[str, float], where: str, wanted: str) -> float:
    found = _NUMBER.fullmatch(str(text))
    factor = units.get(found[2].lower()) if found is not None else None
    if found is None or factor is None or not math.isfinite(number := float(found[1]) * factor):
        raise UsageError(f"{where}: {text!r}", remedy=f"give {wanted}")
    return number
