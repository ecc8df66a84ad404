"""The momentum of an optimizer, whatever it calls it: read, and changed for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

#: Not 0: RMSprop would then make no buffer, and miss it when it goes on from a checkpoint.
LEAST = 1e-6


def momentum_of(group: dict[str, Any]) -> float | None:
    """Of a parameter group: Adam's first beta, or SGD's momentum; None where there is none."""
    if "betas" in group:
        return float(group["betas"][0])
    return float(group["momentum"]) if "momentum" in group else None


def set_momentum(group: dict[str, Any], value: float) -> None:
    """Give a group another momentum; steps are as long in the end as they were.

    Adam takes means of gradients, so its steps stay; SGD and RMSprop add them up.
    """
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    elif "momentum" in group:
        value = max(value, LEAST)
        group["lr"] = group["lr"] * (1 - value) / (1 - group["momentum"])
        group["momentum"] = value


@contextlib.contextmanager
def at_most(optimizer: Any, value: float) -> Iterator[None]:
    """Step with no more momentum than that inside; the script sees its own again afterwards."""
    before = [dict(group) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        own = momentum_of(group)
        if own is not None and own > value:
            set_momentum(group, value)
    try:
        yield
    finally:
        for group, was in zip(optimizer.param_groups, before, strict=True):
            for name in ("betas", "momentum", "lr"):
                if name in was:
                    group[name] = was[name]


@contextlib.contextmanager
def rescaled(optimizer: Any, factor: float) -> Iterator[None]:
    """Step with other rates inside."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rate * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = rate
