"""What is known by name: what came with reparto, what was registered, and what plugins bring."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from reparto.errors import UsageError

C = TypeVar("C")


class Registry(Generic[C]):
    """Settings' classes by their ``kind``.

    Args:
        noun: What they are, for messages.
        group: The entry-point group of plugins.
    """

    def __init__(self, noun: str, group: str) -> None:
        self._noun, self._group = noun, group
        self._known: dict[str, type[C]] = {}

    def register(self, config: Any) -> Any:
        """Make one known; usable as a decorator."""
        self._known[config.kind] = config
        return config

    def available(self) -> dict[str, type[C]]:
        """Every known one, plugins included."""
        for entry in entry_points(group=self._group):
            if entry.name not in self._known:
                self._known[entry.name] = entry.load()
        return dict(self._known)

    def get(self, kind: str) -> type[C]:
        """The one of that name; plugins are looked for only if they have to be.

        Raises:
            UsageError: If there is none.
        """
        known = self._known if kind in self._known else self.available()
        if kind not in known:
            names = ", ".join(sorted(known))
            raise UsageError(f"unknown {self._noun} {kind!r}", remedy=f"choose one of {names}")
        return known[kind]
