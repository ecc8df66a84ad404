"""Scopes: which name is bound where, and to what."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from reparto.convert.gather._source import Source

BindingKind = Literal[
    "assign", "aug", "for", "with", "import", "function", "class", "parameter", "item", "other"
]
FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ScopeNode: TypeAlias = (
    FunctionNode
    | ast.Module
    | ast.ClassDef
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
    | ast.GeneratorExp
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(eq=False, frozen=True)
class Binding:
    """One way in which a name gets a value.

    Attributes:
        name: The name, or the attribute's name for ``self.x = …``.
        kind: How it is bound.
        node: The statement, parameter or comprehension that binds it.
        value: The expression that it is bound to (the iterable, for ``for``).
        path: Positions in the unpacked tuple: ``_, (a, b) = v`` binds ``a`` by ``(1, 0)``.
        scope: Where.
    """

    name: str
    kind: BindingKind
    node: ast.AST
    value: ast.expr | None
    path: tuple[int, ...]
    scope: Scope


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension and the names that it binds."""

    node: ScopeNode
    source: Source
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    attributes: dict[str, list[Binding]] = field(default_factory=dict)  # of a class's instances
    stars: list[str] = field(default_factory=list)
    outer: set[str] = field(default_factory=set)  # global and nonlocal names

    @property
    def name(self) -> str:
        """Name of the function or class; empty for others."""
        return getattr(self.node, "name", "")

    def function(self) -> Scope:
        """The innermost function or module around (and including) this scope."""
        scope = self
        while scope.parent is not None and not isinstance(scope.node, FUNCTIONS):
            scope = scope.parent
        return scope

    def owner(self) -> Scope | None:
        """The class that a method's code belongs to, through nested functions."""
        scope: Scope | None = self
        while scope is not None:
            if isinstance(scope.node, ast.ClassDef):
                return scope
            scope = scope.parent
        return None

    def lookup(self, name: str) -> tuple[Scope, list[Binding]] | None:
        """Find the scope that binds a name as Python would; class scopes are not inherited."""
        scope: Scope | None = self
        first = True
        while scope is not None:
            if name in scope.bindings and (first or not isinstance(scope.node, ast.ClassDef)):
                return scope, scope.bindings[name]
            first = False
            scope = scope.parent
        return None


class ScopeVisitor(ast.NodeVisitor):
    """Builds the scopes of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.module = Scope(source.tree, source, None)
        self.scope = self.module
        self.scopes: dict[ast.AST, Scope] = {source.tree: self.module}  # by defining node
        self.of: dict[ast.AST, Scope] = {}  # by any node inside

    def visit(self, node: ast.AST) -> None:
        """Note the node's scope, then visit it."""
        self.of[node] = self.scope
        super().visit(node)

    def bind(
        self,
        target: ast.AST,
        kind: BindingKind,
        node: ast.AST,
        value: ast.expr | None,
        path: tuple[int, ...] = (),
    ) -> None:
        """Bind whatever a target names: names, tuples, ``self.x`` and ``x[…]``."""
        if isinstance(target, ast.Name):
            self._add(target.id, kind, node, value, path)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, kind, node, value, path)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = (
                value.elts
                if isinstance(value, ast.Tuple | ast.List)
                and kind == "assign"
                and not path
                and len(value.elts) == len(target.elts)
                and not any(isinstance(part, ast.Starred) for part in value.elts)
                else None
            )
            for index, part in enumerate(target.elts):
                if parts is not None:
                    self.bind(part, kind, node, parts[index])
                else:
                    self.bind(part, kind, node, value, (*path, index))
        elif isinstance(target, ast.Attribute):
            self._add_attribute(target, kind, node, value, path)
        elif isinstance(target, ast.Subscript) and not path and kind == "assign":
            self.bind(target.value, "item", node, value)

    def _add(
        self,
        name: str,
        kind: BindingKind,
        node: ast.AST,
        value: ast.expr | None,
        path: tuple[int, ...] = (),
    ) -> None:
        scope = self.scope
        if isinstance(node, ast.NamedExpr):
            while isinstance(scope.node, COMPREHENSIONS) and scope.parent:
                scope = scope.parent
        if kind == "item":  # x[k] = v and x.append(v) bind nothing new
            found = scope.lookup(name)
            scope = found[0] if found else scope
        elif name in scope.outer:
            found = scope.parent.lookup(name) if scope.parent else None
            scope = found[0] if found else self.module
        binding = Binding(name, kind, node, value, path, self.scope)
        scope.bindings.setdefault(name, []).append(binding)

    def _add_attribute(
        self,
        target: ast.Attribute,
        kind: BindingKind,
        node: ast.AST,
        value: ast.expr | None,
        path: tuple[int, ...],
    ) -> None:
        owner = self.scope.owner()
        if not isinstance(target.value, ast.Name) or owner is None:
            return
        function = self.scope.function().node
        if isinstance(function, FUNCTIONS) and function.args.args:
            if function.args.args[0].arg != target.value.id:
                return
            binding = Binding(target.attr, kind, node, value, path, self.scope)
            owner.attributes.setdefault(target.attr, []).append(binding)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self.bind(target, "assign", node, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self.bind(node.target, "assign", node, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self.bind(node.target, "aug", node, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self.bind(node.target, "assign", node, node.value)

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, "for", node, node.iter)
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if item.optional_vars is not None:
                self.bind(item.optional_vars, "with", node, item.context_expr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr in ("append", "add", "insert")
            and isinstance(function.value, ast.Name | ast.Attribute)
            and node.args
        ):
            self.bind(function.value, "item", node, node.args[-1])

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            self._add(name, "import", node, None)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        from reparto.convert.gather._source import absolute_module

        for alias in node.names:
            if alias.name == "*":
                self.scope.stars.append(absolute_module(self.source, node))
            else:
                self._add(alias.asname or alias.name, "import", node, None)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.scope.outer.update(node.names)

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._add(node.name, "other", node, None)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._add(node.name, "function", node, None)
        for part in [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]:
            if part is not None:
                self.visit(part)
        self._enter(node, node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in [*node.args.defaults, *node.args.kw_defaults]:
            if part is not None:
                self.visit(part)
        self._enter(node, node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._add(node.name, "class", node, None)
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        self._enter(node, None, node.body)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        outer, self.scope = self.scope, Scope(node, self.source, self.scope)
        self.scopes[node] = self.scope
        for generator in node.generators:
            self.bind(generator.target, "for", generator, generator.iter)
        self.generic_visit(node)
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _enter(
        self,
        node: FunctionNode | ast.ClassDef,
        arguments: ast.arguments | None,
        body: list[ast.stmt] | list[ast.expr],
    ) -> None:
        outer, self.scope = self.scope, Scope(node, self.source, self.scope)
        self.scopes[node] = self.scope
        if arguments is not None:
            for argument in every_parameter(arguments):
                self.of[argument] = self.scope
                self._add(argument.arg, "parameter", argument, None)
        for part in body:
            self.visit(part)
        self.scope = outer


def every_parameter(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters of a function, starred ones last."""
    stars = [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]
