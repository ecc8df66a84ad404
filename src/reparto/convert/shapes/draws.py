"""Random draws that follow the batch are shared out like it: noise, times, labels."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather import _library as library
from reparto.convert.gather._values import has
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._constructions import chain
from reparto.convert.shapes._names import target_name
from reparto.spec import Finding

ORDER = 20

_DRAWS = library.RANDOM_DRAWS - {"torch.randperm", "torch.multinomial"}


def find(facts: Facts) -> Decision:
    """Wrap draws in training steps whose first size is the batch's in ``reparto.shard``."""
    decision = Decision()
    for call in facts.calls:
        if not facts.trains(call) or facts.inside_module_class(call):
            continue
        if not _follows_batch(facts, call) or _is_iterated(facts, call):
            continue
        node = chain(facts, call)
        decision.edits.append(Wrap(node, "shard"))
        decision.findings.append(
            Finding(
                kind="noise",
                name=target_name(facts, node) or "(unnamed)",
                detail=facts.source(node).snippet(node),
                place=facts.place(node),
                rewritten="shared out with the batch",
            )
        )
    facts.share([edit.node for edit in decision.edits if isinstance(edit, Wrap)])
    return decision


def _follows_batch(facts: Facts, call: ast.Call) -> bool:
    names = [value.name for value in facts.evaluate(call.func) if value.kind == "external"]
    if any(name in _DRAWS for name in names):
        return _first_is_batch(facts, call)
    if any(name.startswith("torch.") for name in names) and call.args:
        inner = call.args[0]  # Tensor(np.random.normal(0, 1, (n, d)))
        if isinstance(inner, ast.Call) and not call.args[1:]:
            drawn = facts.external_name(inner.func)
            return library.starts(drawn, library.NUMPY_DRAWS) and _first_is_batch(facts, inner)
    return False


def _first_is_batch(facts: Facts, call: ast.Call) -> bool:
    sizes = [keyword.value for keyword in call.keywords if keyword.arg == "size"]
    sizes += [part for part in call.args if isinstance(part, ast.Tuple | ast.List)]
    first = sizes[0] if sizes else (call.args[0] if call.args else None)
    if isinstance(first, ast.Tuple | ast.List):
        first = first.elts[0] if first.elts else None
    if isinstance(first, ast.Starred):  # torch.rand(*x.shape)
        first = first.value
    return first is not None and has(facts.evaluate(first), "size")


def _is_iterated(facts: Facts, call: ast.Call) -> bool:
    # ix = torch.randint(…);  torch.stack([data[i : i + n] for i in ix])
    name = target_name(facts, call)
    function = facts.scope_of[call].function()
    return any(
        isinstance(node, ast.For | ast.comprehension)
        and any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node.iter))
        for node in ast.walk(function.node)
    )
