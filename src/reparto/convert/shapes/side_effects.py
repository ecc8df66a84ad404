"""Side effects: prints, files, plots, trackers. Reported only; they happen once, by worker 0."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather import _library as library
from reparto.convert.shapes._base import Decision
from reparto.spec import Finding

ORDER = 64


def find(facts: Facts) -> Decision:
    """Report each kind of side effect at its first place in each file."""
    first: dict[tuple[str, str], tuple[ast.Call, str]] = {}
    count: dict[tuple[str, str], int] = {}
    for call in sorted(facts.calls, key=lambda call: (call.lineno, call.col_offset)):
        kind = _kind(facts, call)
        if kind:
            key = (str(facts.source(call).path), ast.unparse(call.func))
            first.setdefault(key, (call, kind))
            count[key] = count.get(key, 0) + 1
    findings = []
    for key, (call, kind) in first.items():
        times = f", {count[key]} places" if count[key] > 1 else ""
        findings.append(
            Finding(
                kind="side-effect",
                name=facts.source(call).snippet(call.func, 40),
                detail=f"{kind}{times}: once, by worker 0",
                place=facts.place(call),
            )
        )
    return Decision(findings=findings)


def _kind(facts: Facts, call: ast.Call) -> str:
    names = [value.name for value in facts.evaluate(call.func) if value.kind == "external"]
    if isinstance(call.func, ast.Attribute):
        base = facts.evaluate(call.func.value)
        names += [value.name for value in base if value.kind == "opaque"]
    for name in names:
        if name == "print":
            return "print"
        if name in library.SAVES or name in library.FOLDERS:
            return "write"
        if name == "open" and _writes(call):
            return "write"
        if library.starts(name, library.PLOTS):
            return "plot"
        if library.starts(name, library.TRACKERS):
            return "tracker"
        if library.starts(name, library.LOGGERS):
            return "log"
    return ""


def _writes(call: ast.Call) -> bool:
    mode = call.args[1] if len(call.args) > 1 else None
    for keyword in call.keywords:
        if keyword.arg == "mode":
            mode = keyword.value
    value = getattr(mode, "value", "r")
    return isinstance(value, str) and any(letter in value for letter in "wax+")
