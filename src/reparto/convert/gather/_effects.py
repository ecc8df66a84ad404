"""What a piece of code does, calls into the user's own functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from reparto.convert.gather import _library as library
from reparto.convert.gather._evaluate import Evaluator
from reparto.convert.gather._scopes import FUNCTIONS, Scope
from reparto.convert.gather._values import has, only

Effect = Literal["backward", "step", "model", "environment", "save", "load"]
Effects: TypeAlias = frozenset[Effect]

_NONE: Effects = frozenset()
_IN_PLACE = {"add_", "sub_", "mul_", "addcdiv_", "addcmul_", "set_", "lerp_", "copy_"}
_NOT_OPTIMIZERS = ("sched", "prof", "bar", "timer", "lr_")


class EffectFinder:
    """Finds effects of statements; memoised by call and by function."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._calls: dict[ast.AST, tuple[Effects, tuple[Scope, ...]]] = {}
        self._functions: dict[Scope, tuple[Effects, frozenset[Scope]]] = {}

    def reached(
        self, roots: Iterable[ast.AST], skip: frozenset[ast.AST] = frozenset()
    ) -> tuple[Effects, set[Scope]]:
        """Effects of some statements, and the user's functions that they may run.

        Args:
            roots: The statements.
            skip: Nodes that are left out, here and in the functions.
        """
        effects: set[Effect] = set()
        functions: set[Scope] = set()
        waiting = [self._summary(roots, skip)]
        while waiting:
            direct, called = waiting.pop()
            effects |= direct
            for function in called:
                if function not in functions:
                    functions.add(function)
                    waiting.append(self._function(function, skip))
        return frozenset(effects), functions

    def _function(
        self, function: Scope, skip: frozenset[ast.AST]
    ) -> tuple[Effects, frozenset[Scope]]:
        body = getattr(function.node, "body", [])
        roots = body if isinstance(body, list) else [body]
        if skip:
            return self._summary(roots, skip)
        if function not in self._functions:
            self._functions[function] = self._summary(roots, skip)
        return self._functions[function]

    def _summary(
        self, roots: Iterable[ast.AST], skip: frozenset[ast.AST]
    ) -> tuple[Effects, frozenset[Scope]]:
        effects: set[Effect] = set()
        called: set[Scope] = set()
        for node in own(roots, skip):
            if isinstance(node, ast.Call):
                if node not in self._calls:
                    self._calls[node] = (self.direct(node), tuple(self._called(node)))
                direct, functions = self._calls[node]
                effects |= direct
                called.update(functions)
            elif isinstance(node, ast.AugAssign | ast.Assign) and self._updates(node):
                effects.add("step")
        return frozenset(effects), frozenset(called)

    def _called(self, call: ast.Call) -> Iterator[Scope]:
        yield from self.evaluator.callees(call)
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            for value in self.evaluator.evaluate(argument):
                if value.kind == "function" and value.scope is not None:
                    yield value.scope  # closures, callbacks

    def direct(self, call: ast.Call) -> Effects:
        """What a call does by itself, without the user's functions that it runs."""
        function = call.func
        evaluate = self.evaluator.evaluate
        values = evaluate(function)
        if isinstance(function, ast.Attribute):
            followed = only(values, "function")
            if function.attr == "backward" and not followed:
                return frozenset({"backward"})
            if function.attr == "step" and (not followed or _is_environment(function.value)):
                return self._step(function)
            if function.attr in _IN_PLACE and self._is_update(call, function):
                return frozenset({"step"})
        for value in values:
            if value.kind == "model" and not library.is_loss(value.name):
                return frozenset({"model"})
            if value.kind != "external":
                continue
            if value.name in ("torch.autograd.backward", "torch.autograd.grad"):
                return frozenset({"backward"})
            if value.name in library.SAVES:
                return frozenset({"save"})
            if value.name == "torch.load":
                return frozenset({"load"})
        return _NONE

    def _step(self, function: ast.Attribute) -> Effects:
        base = self.evaluator.evaluate(function.value)
        text = ast.unparse(function.value).lower()
        if has(base, "environment") or _is_environment(function.value):
            return frozenset({"environment"})
        if only(base, "scheduler") or any(word in text for word in _NOT_OPTIMIZERS):
            return _NONE
        return frozenset({"step"})

    def _is_update(self, call: ast.Call, function: ast.Attribute) -> bool:
        return _reads_grad(call) or has(self.evaluator.evaluate(function.value), "parameter")

    def _updates(self, node: ast.AugAssign | ast.Assign) -> bool:
        # p.data -= lr * p.grad;  w = w - lr * g  with g of autograd.grad
        if _reads_grad(node.value):
            return True
        if isinstance(node, ast.AugAssign):
            target = self.evaluator.evaluate(node.target)
            return has(target, "parameter") and isinstance(node.op, ast.Sub | ast.Add)
        value = node.value
        return (
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Sub)
            and has(self.evaluator.evaluate(value.left), "parameter")
            and ast.unparse(value.left) == ast.unparse(node.targets[0])
        )


def own(roots: Iterable[ast.AST], skip: frozenset[ast.AST] = frozenset()) -> Iterator[ast.AST]:
    """All nodes below some roots, without those of functions defined there or skipped."""
    stack = [root for root in roots if root not in skip]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, FUNCTIONS):
            continue
        stack.extend(child for child in ast.iter_child_nodes(node) if child not in skip)


def _reads_grad(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Attribute) and part.attr == "grad" and not _is_library(part)
        for part in ast.walk(node)
    )


def _is_library(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Attribute) and node.value.attr == "autograd"


def _is_environment(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name.lower().strip("_") in ("env", "envs", "environment") or name.endswith("_env")
