"""Facts: all that is known of a script, for the shapes to read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from reparto.convert.gather._effects import EffectFinder
from reparto.convert.gather._evaluate import Evaluator
from reparto.convert.gather._loops import Loop, find_loops
from reparto.convert.gather._scopes import Scope, ScopeVisitor
from reparto.convert.gather._source import Source
from reparto.convert.gather._values import Values
from reparto.spec import Place

_NO_GRAD = {"torch.no_grad", "torch.inference_mode", "torch.set_grad_enabled"}


@dataclass(eq=False)
class Facts:
    """The files of a program, its scopes, values, effects and loops.

    Attributes:
        sources: The script first.
        scopes: By the node that opens the scope.
        scope_of: By any node.
        evaluator: What expressions may be.
        effects: What statements do.
        loops: Every loop, in the order of the files.
        calls: Every call.
    """

    sources: list[Source]
    scopes: dict[ast.AST, Scope]
    scope_of: dict[ast.AST, Scope]
    evaluator: Evaluator
    effects: EffectFinder
    loops: list[Loop]
    calls: list[ast.Call]

    def evaluate(self, node: ast.expr) -> Values:
        """What an expression may be."""
        return self.evaluator.evaluate(node)

    def source(self, node: ast.AST) -> Source:
        """The file that a node lies in."""
        return self.scope_of[node].source

    def place(self, node: ast.AST) -> Place:
        """Where a node lies, for people."""
        return self.source(node).place(node)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """The node around a node."""
        return self.source(node).parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        return self.source(node).ancestors(node)

    def share(self, nodes: list[ast.AST]) -> None:
        """Note that expressions will be sharded, and evaluate everything anew."""
        if nodes:
            self.evaluator.shared.update(nodes)
            self.evaluator.refresh(1)

    @property
    def training(self) -> list[Loop]:
        """The loops whose own body trains."""
        return [loop for loop in self.loops if loop.role == "training"]

    def trains(self, node: ast.AST) -> bool:
        """Whether a node runs inside of a training step."""
        return any(node in loop.nodes for loop in self.training)

    def batch_loops(self) -> list[Loop]:
        """The loops that walk through batches: of training, of evaluation."""
        return [
            loop
            for loop in self.loops
            if loop.role in ("training", "evaluation") and not self.inside_module_class(loop.node)
        ]

    def external_name(self, node: ast.expr) -> str:
        """Dotted name of the library's thing that an expression is; empty if it is none."""
        for value in self.evaluate(node):
            if value.kind == "external":
                return value.name
        return ""

    def inside_module_class(self, node: ast.AST) -> bool:
        """Whether a node lies in the body of a class that derives from ``nn.Module``."""
        return self.evaluator.classes.is_module(self.scope_of[node].owner())

    def without_gradient(self, node: ast.AST, depth: int = 2) -> bool:
        """Whether code runs under ``torch.no_grad()``, as far as can be seen."""
        for around in self.ancestors(node):
            if isinstance(around, ast.With):
                for item in around.items:
                    context = item.context_expr
                    called = context.func if isinstance(context, ast.Call) else context
                    if self.external_name(called) in _NO_GRAD:
                        return True
            if isinstance(around, ast.FunctionDef):
                for decorator in around.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if self.external_name(called) in _NO_GRAD:
                        return True
        callers = self.evaluator.callers.get(self.scope_of[node].function(), [])
        return bool(callers and depth) and all(
            self.without_gradient(call, depth - 1) for call in callers
        )


def gather(sources: list[Source]) -> Facts:
    """Gather all facts about a program's files."""
    scopes: dict[ast.AST, Scope] = {}
    scope_of: dict[ast.AST, Scope] = {}
    for source in sources:
        visitor = ScopeVisitor(source)
        visitor.visit(source.tree)
        scopes |= visitor.scopes
        scope_of |= visitor.of
    evaluator = Evaluator(sources, scopes, scope_of)
    evaluator.refresh(3)
    evaluator.promoted = _unknown_models(evaluator, scope_of)
    if evaluator.promoted:
        evaluator.refresh(2)
    finder = EffectFinder(evaluator)
    idle = {node for source in sources[1:] for node in _main_blocks(source)}
    candidates = [
        (node, scope.source, scope)
        for node, scope in scope_of.items()
        if isinstance(node, ast.For | ast.While | ast.AsyncFor) and node not in idle
    ]
    return Facts(
        sources=sources,
        scopes=scopes,
        scope_of=scope_of,
        evaluator=evaluator,
        effects=finder,
        loops=find_loops(candidates, finder),
        calls=[node for node in scope_of if isinstance(node, ast.Call) and node not in idle],
    )


def _main_blocks(source: Source) -> Iterator[ast.AST]:
    """What a module would do only if it were the script: ``if __name__ == "__main__":``."""
    for statement in source.tree.body:
        if isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test):
            yield from ast.walk(statement)


def _unknown_models(evaluator: Evaluator, scope_of: dict[ast.AST, Scope]) -> set[ast.AST]:
    """Calls of unknown libraries whose results own parameters: they made models."""
    return {
        value.origin
        for node in scope_of
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters")
        for value in evaluator.evaluate(node.value)
        if value.kind == "opaque" and value.origin is not None
    }
