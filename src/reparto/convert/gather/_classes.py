"""The user's classes: what they derive from, their methods, what their objects hold."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from reparto.convert.gather import _library as library
from reparto.convert.gather._scopes import Scope
from reparto.convert.gather._values import Kind, Value, Values, union

if TYPE_CHECKING:
    from reparto.convert.gather._evaluate import Evaluator


class Classes:
    """Answers questions about classes, base classes included."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._lineage: dict[Scope, tuple[list[Scope], list[str]]] = {}

    def lineage(self, scope: Scope) -> tuple[list[Scope], list[str]]:
        """The class with its bases of the user's, and the dotted names of libraries' bases."""
        if scope in self._lineage:
            return self._lineage[scope]
        self._lineage[scope] = ([scope], [])  # cuts a class that derives from itself
        own, external = [scope], list[str]()
        assert isinstance(scope.node, ast.ClassDef)
        for base in scope.node.bases:
            for value in self._evaluator.evaluate(base):
                if value.kind == "class" and value.scope is not None:
                    scopes, names = self.lineage(value.scope)
                    own += scopes
                    external += names
                elif value.kind == "external":
                    external.append(value.name)
        self._lineage[scope] = (own, external)
        return own, external

    def kind(self, scope: Scope) -> Kind:
        """What an object of the class is: a model, an optimizer, a loader, or any object."""
        for name in self.lineage(scope)[1]:
            if name in library.MODULES or library.is_layer(name):
                return "model"
            if library.starts(name, library.MODEL_FACTORIES) or name.endswith("PreTrainedModel"):
                return "model"
            if name in library.OPTIMIZERS or library.is_optimizer(name):
                return "optimizer"
            if name in library.LOADERS:
                return "loader"
            if name in ("gym.Env", "gymnasium.Env"):
                return "environment"
        return "instance"

    def is_module(self, scope: Scope | None) -> bool:
        """Whether a scope is a class that derives from ``torch.nn.Module``."""
        if scope is None or not isinstance(scope.node, ast.ClassDef):
            return False
        return self.kind(scope) == "model"

    def construct(self, scope: Scope, call: ast.Call) -> Values:
        """The object that calling the class makes."""
        kind = self.kind(scope)
        return frozenset({Value(kind, name=scope.name, scope=scope, origin=call)})

    def self_value(self, scope: Scope, method: Scope) -> Values:
        """What the first parameter of a method is."""
        decorators = getattr(method.node, "decorator_list", ())
        names = {part.id for part in decorators if isinstance(part, ast.Name)}
        if "staticmethod" in names:
            return frozenset()
        if "classmethod" in names:
            return frozenset({Value("class", name=scope.name, scope=scope)})
        return frozenset({Value(self.kind(scope), name=scope.name, scope=scope)})

    def methods(self, scope: Scope, name: str) -> list[Scope]:
        """The method that a name stands for, in the class or its nearest base."""
        for current in self.lineage(scope)[0]:
            for binding in current.bindings.get(name, ()):
                if binding.kind == "function":
                    return [self._evaluator.scopes[binding.node]]
        return []

    def attribute(self, scope: Scope, name: str) -> Values:
        """What an attribute of an object of the class may be."""
        evaluator = self._evaluator
        out: set[Value] = set()
        for method in self.methods(scope, name):
            decorators = getattr(method.node, "decorator_list", ())
            if any(getattr(part, "id", "") == "property" for part in decorators):
                return evaluator.returned(method)
            return frozenset({Value("function", name=name, scope=method)})
        for current in self.lineage(scope)[0]:
            bindings = [*current.attributes.get(name, ()), *current.bindings.get(name, ())]
            out |= union(evaluator.bound(binding) for binding in bindings)
        return frozenset(out)
