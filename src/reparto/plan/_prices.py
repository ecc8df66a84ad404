"""Times and prices as people write them: ``1h30m``, ``0.40/h``; and what a plan costs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from reparto.errors import UsageError
from reparto.spec import Prediction, Survey

ANY_HOST = "*"

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_DURATION = re.compile("".join(rf"(?:{_NUMBER}\s*{unit}\s*)?" for unit in _UNITS), re.IGNORECASE)
_PRICE = re.compile(rf"(?:(?P<host>[^=]*)=)?\s*{_NUMBER}\s*/\s*h\s*", re.IGNORECASE)


def parse_prices(texts: Sequence[str]) -> dict[str, float]:
    """Prices of an hour, by host; one without a name holds for every host that is not named.

    Raises:
        UsageError: If one is no price, or a host has two.

    Example:
        >>> parse_prices(["fast=0.40/h", "0.1/h"])
        {'fast': 0.4, '*': 0.1}
    """
    prices: dict[str, float] = {}
    for text in texts:
        found = _PRICE.fullmatch(text.strip())
        host = ANY_HOST if found is None or found["host"] is None else found["host"].strip()
        if found is None or not host or not math.isfinite(price := float(found[2])):
            raise UsageError(
                f"--price: {text!r} is no price",
                remedy="write HOST=0.40/h, or 0.40/h for every host that is not named",
            )
        if host in prices:
            who = "hosts that are not named have" if host == ANY_HOST else f"{host} has"
            raise UsageError(f"--price: {who} two prices", remedy="leave out one of them")
        prices[host] = price
    return prices


def parse_duration(text: str, where: str = "--deadline") -> float:
    """Seconds, of days, hours, minutes and seconds in that order.

    Raises:
        UsageError: If it is no duration, or none that is longer than nothing.

    Example:
        >>> parse_duration("1h30m"), parse_duration("90m"), parse_duration("45s")
        (5400.0, 5400.0, 45.0)
    """
    found = _DURATION.fullmatch(text.strip())
    parts = found.groups(default="0") if found is not None else ()
    total = sum(float(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False))
    if not 0 < total < math.inf:
        raise UsageError(f"{where}: {text!r} is no time", remedy="write 2h, 90m, 1h30m or 45s")
    return total


def duration_text(seconds: float) -> str:
    """A duration as `parse_duration` reads it, in its two largest units.

    Example:
        >>> duration_text(4.21), duration_text(95), duration_text(7200), duration_text(93600)
        ('4.2s', '1m35s', '2h', '1d02h')
    """
    if not math.isfinite(seconds):
        return "forever"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    if seconds < 59.5:
        return f"{seconds:.0f}s"
    for large, small, below in (("m", "s", 3600.0), ("h", "m", 86400.0), ("d", "h", math.inf)):
        whole, rest = divmod(round(seconds / _UNITS[small]), round(_UNITS[large] / _UNITS[small]))
        if whole * _UNITS[large] < below:
            break
    return f"{whole}{large}{rest:02}{small}" if rest else f"{whole}{large}"


def price_text(price: float) -> str:
    """An amount of money, in whatever prices are given in.

    Example:
        >>> price_text(12.3), price_text(0.00421)
        ('12.30', '0.0042')
    """
    return f"{price:.2f}" if price >= 0.095 or not price else f"{price:.2g}"


def hosts_of(prediction: Prediction, survey: Survey) -> tuple[str, ...]:
    """The hosts that it would use, each once, in the order of ranks."""
    if prediction.num_workers == 1:
        return (survey.alone_host,) if survey.alone_host else survey.placement[:1]
    return tuple(dict.fromkeys(survey.placement[: prediction.num_workers]))


def price_of(prediction: Prediction, survey: Survey, prices: Mapping[str, float]) -> float | None:
    """What the whole script would cost; None without prices, or if its time is not known.

    Raises:
        UsageError: If a host that it would use has no price.
    """
    if not prices or prediction.total_s is None:
        return None
    hourly = (_hourly(host, prices) for host in hosts_of(prediction, survey))
    return prediction.total_s / 3600 * sum(hourly)


def _hourly(host: str, prices: Mapping[str, float]) -> float:
    price = prices.get(host, prices.get(ANY_HOST))
    if price is None:
        raise UsageError(
            f"there is no price for {host}",
            remedy=f"--price {host}=0.40/h, or --price 0.40/h for every host that is not named",
        )
    return price
