"""Loops: which of them train, and what code runs inside of a training step."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from reparto.convert.gather._effects import EffectFinder, Effects, own
from reparto.convert.gather._scopes import Scope
from reparto.convert.gather._source import Source

LoopNode: TypeAlias = ast.For | ast.While | ast.AsyncFor
LoopRole = Literal["training", "epochs", "evaluation", "other"]


@dataclass(eq=False, frozen=True)
class Loop:
    """A loop of the user's.

    Attributes:
        node: The statement.
        source: Its file.
        scope: The function or module around it.
        role: ``training`` if a pass of its own body (not only of a loop inside) trains,
            ``epochs`` if only loops inside do, ``evaluation`` if it just calls models.
        effects: What its body does.
        nodes: Everything that runs in a pass of the body outside of inner training loops, the
            user's functions included; for training loops only.
        functions: Those functions.
    """

    node: LoopNode
    source: Source
    scope: Scope
    role: LoopRole
    effects: Effects
    nodes: frozenset[ast.AST] = frozenset()
    functions: frozenset[Scope] = frozenset()


def find_loops(
    candidates: Iterable[tuple[LoopNode, Source, Scope]], finder: EffectFinder
) -> list[Loop]:
    """Give every loop its role."""
    known = [
        (node, source, scope, *finder.reached(node.body)) for node, source, scope in candidates
    ]
    training = {node for node, _, _, effects, _ in known if {"backward", "step"} <= effects}
    loops = []
    for node, source, scope, effects, _ in known:
        role: LoopRole = "evaluation" if "model" in effects else "other"
        nodes: frozenset[ast.AST] = frozenset()
        functions: set[Scope] = set()
        if node in training:
            inner = frozenset(training - {node})
            direct, functions = finder.reached(node.body, inner)
            role = "training" if "backward" in direct else "epochs"
            if role == "training":
                bodies: list[list[ast.AST]] = [[*node.body], *map(_body, functions)]
                nodes = frozenset(part for body in bodies for part in own(body, inner))
        loops.append(Loop(node, source, scope, role, effects, nodes, frozenset(functions)))
    return loops


def _body(function: Scope) -> list[ast.AST]:
    body = getattr(function.node, "body", [])
    return body if isinstance(body, list) else [body]
