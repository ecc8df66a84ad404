"""What an expression may be: abstract evaluation over scopes, calls and classes.

Demand-driven and memoised. A cycle (a parameter that is fed its own function's result) is cut
with the answer of the previous round; ``Evaluator.refresh`` runs rounds until they settle.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping

from reparto.convert.gather._call_values import external_call, method_call
from reparto.convert.gather._classes import Classes
from reparto.convert.gather._functions import argument_for, own_nodes
from reparto.convert.gather._library import BATCH_SIZE_NAMES, STARS
from reparto.convert.gather._reaching import reaching
from reparto.convert.gather._scopes import FUNCTIONS, Binding, Scope, every_parameter
from reparto.convert.gather._source import Source, absolute_module
from reparto.convert.gather._values import (
    BATCH,
    NOTHING,
    NUMBER,
    SIZE,
    Kind,
    Value,
    Values,
    combine,
    elements,
    has,
    items,
    union,
    unpack,
    widen,
)

_MAX_DEPTH = 100  # of expressions under evaluation; Python's own stack allows about 1000 frames


class Evaluator:
    """Evaluates expressions of a set of files.

    Attributes:
        shared: Expressions that the conversion shards; they evaluate to a batch.
        promoted: Calls of unknown libraries whose results are models, by their use.
        callers: For each function of the user's, the calls that may run it.
    """

    def __init__(
        self,
        sources: list[Source],
        scopes: Mapping[ast.AST, Scope],
        scope_of: Mapping[ast.AST, Scope],
    ) -> None:
        self.sources = {source.module: source for source in sources}
        self.scopes = scopes
        self.scope_of = scope_of
        self.shared: set[ast.AST] = set()
        self.promoted: set[ast.AST] = set()
        self.callers: dict[Scope, list[ast.Call]] = {}
        self.classes = Classes(self)
        self._memo: dict[object, Values] = {}
        self._before: dict[object, Values] = {}
        self._active: set[object] = set()

    def refresh(self, rounds: int = 2) -> None:
        """Evaluate all calls anew, so that answers reflect ``shared`` and each other."""
        calls = [node for node in self.scope_of if isinstance(node, ast.Call)]
        for _ in range(rounds):
            self._before, self._memo = self._memo, {}
            callers: dict[Scope, list[ast.Call]] = {}
            for call in calls:
                for function in self.callees(call):
                    callers.setdefault(function, []).append(call)
            self.callers = callers
        self._before, self._memo = self._memo, {}

    def evaluate(self, node: ast.expr) -> Values:
        """What an expression may be; empty if nothing is known."""
        if node in self.shared:
            return BATCH
        return self._once(node, lambda: self._expression(node))

    def _once(self, key: object, compute: object) -> Values:
        if key in self._memo:
            return self._memo[key]
        if key in self._active or len(self._active) > _MAX_DEPTH:
            return self._before.get(key, NOTHING)
        self._active.add(key)
        try:
            values: Values = compute()  # type: ignore[operator]
        finally:
            self._active.discard(key)
        values = widen(values)
        self._memo[key] = values
        return values

    # ------------------------------------------------------------------ expressions

    def _expression(self, node: ast.expr) -> Values:
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.Constant(value=value):
                return NUMBER if isinstance(value, int | float) else NOTHING
            case ast.Tuple(elts=elts):
                return frozenset({Value("tuple", parts=tuple(map(self.evaluate, elts)))})
            case ast.List(elts=elts) | ast.Set(elts=elts):
                return items(union(map(self.evaluate, elts)))
            case ast.Dict(values=values):
                return items(union(map(self.evaluate, values)))
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return items(self.evaluate(elt))
            case ast.DictComp(value=value):
                return items(self.evaluate(value))
            case ast.IfExp(body=body, orelse=orelse):
                return self.evaluate(body) | self.evaluate(orelse)
            case ast.BoolOp(values=values):
                return union(map(self.evaluate, values))
            case ast.BinOp(left=left, right=right):
                return self._binary(self.evaluate(left), self.evaluate(right))
            case ast.UnaryOp(operand=operand):
                return combine([self.evaluate(operand)])
            case ast.Compare(left=left, comparators=rest):
                return combine([self.evaluate(left), *map(self.evaluate, rest)])
            case ast.Subscript(value=value, slice=index):
                return self._subscript(self.evaluate(value), index)
            case ast.Starred(value=value):
                return elements(self.evaluate(value))
            case ast.Lambda():
                scope = self.scopes.get(node)
                return frozenset({Value("function", name="lambda", scope=scope)})
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self.evaluate(value)
        return NOTHING

    @staticmethod
    def _binary(left: Values, right: Values) -> Values:
        lists = frozenset(value for value in left | right if value.kind == "items")
        return combine([left, right]) | lists

    def _subscript(self, base: Values, index: ast.expr) -> Values:
        if isinstance(index, ast.Constant) and isinstance(index.value, int) and index.value >= 0:
            return union(
                unpack(frozenset({value}), (index.value,))
                if value.kind == "tuple"
                else self._element(value, index)
                for value in base
            )
        return union(self._element(value, index) for value in base)

    def _element(self, value: Value, index: ast.expr) -> Values:
        single = frozenset({value})
        if value.kind == "external" and value.name.endswith(".__dict__"):
            return frozenset({Value("external", name=value.name[:-8] + "Any")})
        if value.kind == "items":
            return single if isinstance(index, ast.Slice) else elements(single)
        if value.kind in ("batch", "tensor", "array", "parameter", "clock"):
            picked = self.evaluate(index) if not isinstance(index, ast.Slice) else NOTHING
            follows = has(picked, "batch") and value.kind != "array"
            return combine([single, picked]) if follows else combine([single])
        return elements(single) if value.kind == "tuple" else NOTHING

    # ------------------------------------------------------------------ names

    def _name(self, node: ast.Name) -> Values:
        scope = self.scope_of.get(node)
        if scope is None:
            return NOTHING
        extra = SIZE if node.id in BATCH_SIZE_NAMES else NOTHING
        found = scope.lookup(node.id)
        if found is None:
            return extra | self._unbound(node.id, scope)
        owner, bindings = found
        live = reaching(node, scope, owner, bindings)
        return extra | union(self.bound(binding) for binding in live)

    def _unbound(self, name: str, scope: Scope) -> Values:
        module = scope
        while module.parent is not None:
            module = module.parent
        for star in module.stars:
            source = self.sources.get(star)
            if source is not None:
                member = self.member(source, name)
                if member:
                    return member
            elif star.startswith("torch") and self._star_brings(star, name):
                return frozenset({Value("external", name=f"{star}.{name}")})
        return frozenset({Value("external", name=name)})

    @staticmethod
    def _star_brings(star: str, name: str) -> bool:
        known = STARS.get(star)
        return name in known if known is not None else not hasattr(builtins, name)

    def member(self, source: Source, name: str) -> Values:
        """What a module of the user's offers under a name."""
        scope = self.scopes[source.tree]
        if name in scope.bindings:
            return union(self.bound(binding) for binding in scope.bindings[name])
        submodule = self.sources.get(f"{source.module}.{name}")
        if submodule is not None:
            return frozenset({Value("module", scope=self.scopes[submodule.tree])})
        return self._unbound(name, scope) if scope.stars else NOTHING

    def bound(self, binding: Binding) -> Values:
        """What a binding binds its name to."""
        return self._once(binding, lambda: self._binding(binding))

    def _binding(self, binding: Binding) -> Values:
        match binding.kind:
            case "import":
                return self._import(binding)
            case "function":
                function = self.scopes[binding.node]
                return frozenset({Value("function", name=binding.name, scope=function)})
            case "class":
                made = self.scopes[binding.node]
                return frozenset({Value("class", name=binding.name, scope=made)})
            case "parameter":
                return self._parameter(binding)
        if binding.value is None:
            return NOTHING
        values = self.evaluate(binding.value)
        if binding.kind == "for":
            return unpack(elements(values), binding.path)
        if binding.kind == "item":
            return items(values)
        if binding.kind == "aug":
            lists = frozenset(value for value in values if value.kind == "items")
            return combine([values]) | lists
        return unpack(values, binding.path)

    def _import(self, binding: Binding) -> Values:
        node = binding.node
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.split(".")[0]) == binding.name:
                    dotted = alias.name if alias.asname else alias.name.split(".")[0]
                    return self._module(dotted)
        if isinstance(node, ast.ImportFrom):
            base = absolute_module(binding.scope.source, node)
            for alias in node.names:
                if (alias.asname or alias.name) == binding.name:
                    source = self.sources.get(base)
                    if source is not None:
                        return self.member(source, alias.name)
                    return self._module(f"{base}.{alias.name}" if base else alias.name)
        return NOTHING

    def _module(self, dotted: str) -> Values:
        source = self.sources.get(dotted)
        if source is not None:
            return frozenset({Value("module", name=dotted, scope=self.scopes[source.tree])})
        return frozenset({Value("external", name=dotted)})

    # ------------------------------------------------------------------ attributes

    def _attribute(self, node: ast.Attribute) -> Values:
        extra = SIZE if node.attr in BATCH_SIZE_NAMES else NOTHING
        base = self.evaluate(node.value)
        return extra | union(self.attribute(value, node) for value in base)

    def attribute(self, value: Value, node: ast.Attribute) -> Values:
        """What an attribute of a value may be."""
        name = node.attr
        match value.kind:
            case "external":
                dotted = f"{value.name}.{name}"
                return self._module(dotted)
            case "module" if value.scope is not None:
                return self.member(value.scope.source, name)
            case "instance" | "model" | "optimizer" | "loader" | "class" if value.scope:
                if value.kind == "model" and name == "module":
                    return frozenset({value})
                return self.classes.attribute(value.scope, name)
            case "model" if name == "module":
                return frozenset({value})
            case "batch" | "tensor" | "parameter" | "array":
                if name in ("shape",):
                    return items(SIZE)
                if name == "grad":
                    return frozenset({Value("tensor", name="grad")})
                return combine([frozenset({value})])
            case "items" if name == "values":
                return frozenset({value})
        return NOTHING

    # ------------------------------------------------------------------ calls

    def callees(self, call: ast.Call) -> Iterator[Scope]:
        """The user's functions that a call may run."""
        for value in self.evaluate(call.func):
            if value.kind == "function" and value.scope is not None:
                yield value.scope
            elif value.kind == "class" and value.scope is not None:
                yield from self.classes.methods(value.scope, "__init__")
            elif value.kind == "model" and value.scope is not None:
                yield from self.classes.methods(value.scope, "forward")
            elif value.kind == "instance" and value.scope is not None:
                yield from self.classes.methods(value.scope, "__call__")

    def _call(self, node: ast.Call) -> Values:
        out: set[Value] = set()
        function = node.func
        if isinstance(function, ast.Attribute):
            out |= method_call(self, node, function, self.evaluate(function.value))
        for value in self.evaluate(function):
            out |= self._apply(value, node)
        return frozenset(out)

    def _apply(self, value: Value, node: ast.Call) -> Values:
        match value.kind:
            case "external":
                return external_call(self, value.name, node)
            case "class" if value.scope is not None:
                return self.classes.construct(value.scope, node)
            case "function" if value.scope is not None:
                return self.returned(value.scope)
            case "model":
                data = combine(self.arguments(node))
                return data if has(data, "batch") else frozenset({Value("tensor")})
            case "opaque":
                kind: Kind = "model" if node in self.promoted else "opaque"
                return frozenset({Value(kind, name=value.name, origin=node)})
            case "instance" if value.scope is not None:
                methods = self.classes.methods(value.scope, "__call__")
                return union(self.returned(method) for method in methods)
        return NOTHING

    def arguments(self, node: ast.Call) -> list[Values]:
        """What each argument of a call may be."""
        values = [self.evaluate(argument) for argument in node.args]
        return values + [self.evaluate(keyword.value) for keyword in node.keywords]

    def returned(self, function: Scope) -> Values:
        """What a function of the user's returns; an iterator for a generator."""
        return self._once(("return", function), lambda: self._returned(function))

    def _returned(self, function: Scope) -> Values:
        if isinstance(function.node, ast.Lambda):
            return self.evaluate(function.node.body)
        returns: list[Values] = []
        yields: list[Values] = []
        for node in own_nodes(function.node):
            if isinstance(node, ast.Return) and node.value is not None:
                returns.append(self.evaluate(node.value))
            elif isinstance(node, ast.Yield) and node.value is not None:
                yields.append(self.evaluate(node.value))
            elif isinstance(node, ast.YieldFrom):
                yields.append(elements(self.evaluate(node.value)))
        return items(union(yields)) if yields else union(returns)

    def _parameter(self, binding: Binding) -> Values:
        function = binding.scope
        node = function.node
        assert isinstance(node, FUNCTIONS)
        parameters = every_parameter(node.args)
        method = function.parent is not None and isinstance(function.parent.node, ast.ClassDef)
        if method and parameters and parameters[0].arg == binding.name and function.parent:
            return self.classes.self_value(function.parent, function)
        out: set[Value] = set(self._default(node, binding.name))
        for call in self.callers.get(function, ()):
            argument = argument_for(function, binding.name, call, bound=method)
            if argument is not None:
                out |= self.evaluate(argument)
        return frozenset(out)

    def _default(self, node: ast.AST, name: str) -> Values:
        assert isinstance(node, FUNCTIONS)
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        offset = len(positional) - len(arguments.defaults)
        for parameter, default in zip(positional[offset:], arguments.defaults, strict=True):
            if parameter.arg == name:
                return self.evaluate(default)
        for parameter, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if parameter.arg == name and value is not None:
                return self.evaluate(value)
        return NOTHING
