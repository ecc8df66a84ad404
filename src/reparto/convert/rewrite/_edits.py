"""The edits there are, as data."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, eq=False)
class Wrap:
    """Put a call of reparto around an expression: ``e`` becomes ``reparto.call(e)``.

    Attributes:
        node: The expression.
        call: Which function.
        dim: The dimension to shard, where it is not 0.
    """

    node: ast.expr
    call: Literal["prepare", "shard", "agree"]
    dim: int = 0


@dataclass(frozen=True, eq=False)
class Share:
    """Shard variables by a statement of its own: ``x, y = reparto.shard((x, y))``.

    Attributes:
        before: The statement in front of which it goes.
        names: The variables.
    """

    before: ast.stmt
    names: tuple[str, ...]


Edit: TypeAlias = Wrap | Share
