"""Searches without gradients whose iterations depend on each other: hill climbing, evolution."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather._loops import Loop
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._codes import diagnostic

ORDER = 82

_MOVES = {"add_", "copy_", "sub_", "mul_", "normal_", "load_state_dict", "set_"}
_VECTOR = {"torch.nn.utils.vector_to_parameters", "copy.deepcopy"}


def find(facts: Facts) -> Decision:
    """Refuse loops that move parameters and call models, where nothing calls backward."""
    if any("backward" in loop.effects for loop in facts.loops):
        return Decision()
    for loop in facts.loops:
        if "model" in loop.effects and _moves(facts, loop) and _compares(facts, loop):
            return Decision(diagnostics=[diagnostic("C203", facts.place(loop.node))])
    return Decision()


def _nodes(facts: Facts, loop: Loop) -> list[ast.AST]:
    _, functions = facts.effects.reached(loop.node.body)
    roots = [loop.node, *(function.node for function in functions)]
    return [node for root in roots for node in ast.walk(root)]


def _moves(facts: Facts, loop: Loop) -> bool:
    for node in _nodes(facts, loop):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
                return True
            if facts.external_name(node.func) in _VECTOR:
                return True
        stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if stored and getattr(node, "attr", "") == "data":
            return True
    return False


def _compares(facts: Facts, loop: Loop) -> bool:
    return any(
        isinstance(node, ast.Compare)
        or (
            isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("sorted", "max", "min")
        )
        or (isinstance(node, ast.Attribute) and node.attr in ("argsort", "topk", "argmax", "sort"))
        for node in _nodes(facts, loop)
    )
