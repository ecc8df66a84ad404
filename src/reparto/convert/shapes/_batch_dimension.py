"""Which dimension is the batch: the first, unless a carried hidden state says otherwise."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather import _library as library
from reparto.convert.gather._loops import Loop


def carried_names(facts: Facts, call: ast.Call) -> set[str]:
    """Names that a call both reads and rebinds: ``out, hidden = model(x, hidden)``."""
    statement = next((n for n in facts.ancestors(call) if isinstance(n, ast.stmt)), None)
    if not isinstance(statement, ast.Assign):
        return set()
    written = {
        node.id
        for target in statement.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }
    read = {
        node.id
        for part in [*call.args, *(keyword.value for keyword in call.keywords)]
        for node in ast.walk(part)
        if isinstance(node, ast.Name)
    }
    return written & read


def carries_state(facts: Facts, loop: Loop) -> bool:
    """Whether a loop carries a model's hidden state from one pass to the next."""
    for node in ast.walk(loop.node):
        if not isinstance(node, ast.Call):
            continue
        is_model = any(value.kind == "model" for value in facts.evaluate(node.func))
        carried = carried_names(facts, node) if is_model else ()
        if any(not _reset(loop.node, name) for name in carried):
            return True
    return False


def batch_dimension(facts: Facts, call: ast.Call) -> tuple[int, str]:
    """The batch's dimension in a model call's data, and why."""
    function = facts.scope_of[call].function()
    around = [
        loop for loop in facts.training if call in loop.nodes and loop.scope.function() is function
    ]
    if _time_major(facts) and any(carries_state(facts, loop) for loop in around):
        return 1, "the loop walks through time and carries a hidden state"
    return 0, ""


def _reset(loop: ast.AST, name: str) -> bool:
    # hidden = model.init_hidden(…) inside of the loop: nothing is carried over.
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign):
            targets = {part.id for t in node.targets for part in ast.walk(t) if _named(part)}  # type: ignore[attr-defined]
            read = {part.id for part in ast.walk(node.value) if _named(part)}  # type: ignore[attr-defined]
            if name in targets and name not in read:
                return True
    return False


def _named(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _time_major(facts: Facts) -> bool:
    # Every recurrent layer of the script takes (time, batch, …).
    layers = []
    for call in facts.calls:
        names = [value.name for value in facts.evaluate(call.func) if value.kind == "external"]
        if any(name in library.RECURRENT for name in names) or _by_name(call):
            layers.append(call)
    return bool(layers) and not any(
        keyword.arg == "batch_first" and getattr(keyword.value, "value", True)
        for call in layers
        for keyword in call.keywords
    )


def _by_name(call: ast.Call) -> bool:
    # getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
    function = call.func
    return (
        isinstance(function, ast.Call)
        and getattr(function.func, "id", "") == "getattr"
        and "nn" in ast.unparse(function.args[0])
    )
