"""Entry: a strategy with its settings, as ``--strategies`` names it.

single,all-reduce,local-sgd:sync_every=8,diloco:sync_every=64:compressor.kind=quantize
└ entry  └ entry   └ kind    └ key=value  …     └ settings stand apart by colons
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from reparto.errors import UsageError
from reparto.spec import StrategyConfig


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A strategy that is to be compared.

    Attributes:
        label: As tables and plots name it.
        strategy: The strategy and its settings.
    """

    label: str
    strategy: StrategyConfig


def parse_entries(text: str) -> tuple[Entry, ...]:
    """Read ``KIND[:key=value…],…``. Whether a strategy has such settings is not checked here.

    Raises:
        UsageError: If it is not of that form.

    Example:
        >>> [entry.label for entry in parse_entries("all-reduce,local-sgd:sync_every=8")]
        ['all-reduce', 'local-sgd sync_every=8']
    """
    return _distinct(_entry(part.strip()) for part in text.split(","))


def every_entry(*, relaxed: bool) -> tuple[Entry, ...]:
    """Every known strategy as it is by default, plugins included; relaxed ones if agreed to."""
    from reparto.strategies import available

    return tuple(
        Entry(label=kind, strategy=StrategyConfig(kind=kind))
        for kind, config in available().items()
        if relaxed or config().exact
    )


def _entry(text: str) -> Entry:
    kind, *settings = text.split(":")
    if not kind:
        raise UsageError(
            f"--strategies: {text!r} names no strategy",
            remedy="write KIND or KIND:key=value:key=value, with commas between strategies",
        )
    given = dict(_setting(one, kind) for one in settings)
    label = " ".join([kind, *settings])
    return Entry(label=label, strategy=StrategyConfig(kind=kind, settings=given))


def _setting(text: str, kind: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(
            f"--strategies: {text!r} is no setting of {kind}", remedy=f"write {kind}:key=value"
        )
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _distinct(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The same strategy may be run twice, to see how much runs differ: labels are numbered."""
    seen: Counter[str] = Counter()
    found = []
    for entry in entries:
        seen[entry.label] += 1
        count = seen[entry.label]
        found.append(replace(entry, label=f"{entry.label} ({count})") if count > 1 else entry)
    return tuple(found)
