"""Decision: what a shape returns; and the list of all shapes."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal, Protocol, cast

from reparto.convert.gather import Facts
from reparto.convert.rewrite import Edit
from reparto.spec import Diagnostic, Finding


@dataclass
class Decision:
    """What a shape decided.

    Attributes:
        edits: What to change.
        findings: What was found.
        diagnostics: What the user should know; an error refuses the script.
        launch: Set where the whole script is to be left unchanged: how to start it then.
        reason: Why it is left unchanged.
    """

    edits: list[Edit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    launch: Literal["reparto", "torchrun", "plain"] | None = None
    reason: str = ""


class Shape(Protocol):
    """A module of ``convert.shapes``."""

    ORDER: int

    def find(self, facts: Facts) -> Decision:
        """Look for the shape; an empty decision if it is not there."""


def every_shape() -> Iterator[Shape]:
    """All shapes of this folder, in their order."""
    package = __name__.rsplit(".", 1)[0]
    path = import_module(package).__path__
    names = [info.name for info in pkgutil.iter_modules(path) if not info.name.startswith("_")]
    shapes = [cast(Shape, import_module(f"{package}.{name}")) for name in names]
    yield from sorted(shapes, key=lambda shape: shape.ORDER)
