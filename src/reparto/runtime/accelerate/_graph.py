"""Whether a step leaves a graph of gradients behind that the script may still go back through.

A played step has no graph: it went back inside. What the script holds of it afterwards is a leaf.
That is the same to the script where its own backward pass has freed the graph, and not where it
may go back later, as where a generator is trained on what a discriminator was trained on before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from reparto.runtime.accelerate._calls import BACKWARD
from reparto.runtime.accelerate._run import refs_in
from reparto.runtime.accelerate._tape import Call, Made, Recording


def open_graph(recording: Recording, lasting: Iterable[int]) -> str:
    """Why the script may go back through a step after it; empty if it cannot.

    Args:
        recording: The step.
        lasting: What the script holds after it.
    """
    makers = _makers(recording)
    freed: set[int] = set()
    for call in recording.calls:
        if call.func in BACKWARD and not _keeps(call):
            freed |= _above(_made(call.args), makers)
    looks = recording.looks
    for index in lasting:
        if looks[index].requires_grad and not _above({index}, makers) & freed:
            return "keeps something for a backward pass after the step"
    return ""


def _keeps(call: Call) -> bool:
    names = ("gradient", "retain_graph", "create_graph")
    given = {**dict(zip(names, call.args[1:], strict=False)), **call.kwargs}
    if getattr(call.func, "__name__", "") == "grad":
        given = {**dict(zip(("inputs", "grad_outputs", *names[1:]), call.args[1:], strict=False))}
        given |= call.kwargs
    return bool(given.get("retain_graph") or given.get("create_graph"))


def _made(value: object) -> set[int]:
    return {ref.index for ref in refs_in(value) if type(ref) is Made}


def _makers(recording: Recording) -> dict[int, set[int]]:
    """For each tensor, those to which gradients go from it; changing it in place counts, too."""
    found: dict[int, set[int]] = defaultdict(set)
    for call in recording.calls:
        given = _made((call.args, call.kwargs))
        given = {index for index in given if recording.looks[index].requires_grad}
        for index in _made(call.result) or _made(call.args[:1]):
            found[index] |= given
    return found


def _above(indices: set[int], makers: dict[int, set[int]]) -> set[int]:
    todo, found = set(indices), set(indices)
    while todo:
        new = makers.get(todo.pop(), set()) - found
        found |= new
        todo |= new
    return found
