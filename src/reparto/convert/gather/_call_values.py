"""What calls of libraries and methods of data return."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from reparto.convert.gather import _library as library
from reparto.convert.gather._values import (
    ARRAY,
    BATCH,
    CLOCK,
    NOTHING,
    NUMBER,
    PARAMETER,
    SIZE,
    TENSOR,
    Kind,
    Value,
    Values,
    combine,
    elements,
    has,
    items,
    union,
)

if TYPE_CHECKING:
    from reparto.convert.gather._evaluate import Evaluator

_PASSED = ("model", "optimizer", "loader", "items", "opaque", "instance")


def external_call(evaluator: Evaluator, name: str, node: ast.Call) -> Values:
    """What a call of a library's class or function returns."""
    last = name.rsplit(".", 1)[-1]
    if name in library.LOADERS:
        return frozenset({Value("loader", name=name, origin=node)})
    if name in library.CLOCKS or library.starts(name, library.CLOCK_PREFIXES):
        return CLOCK
    if library.starts(name, library.ENVIRONMENTS):
        return frozenset({Value("environment", name=name, origin=node)})
    arguments = evaluator.arguments(node)
    first = arguments[0] if arguments else NOTHING
    if name in library.PASSED_THROUGH:
        return _passed(name, arguments, first)
    if library.is_optimizer(name):
        return frozenset({Value("optimizer", name=name, origin=node)})
    if library.is_scheduler(name):
        return frozenset({Value("scheduler", name=name, origin=node)})
    if (
        library.is_layer(name)
        or name in library.AVERAGED
        or library.starts(name, library.MODEL_FACTORIES)
    ):
        return frozenset({Value("model", name=name, origin=node)})
    iteration = _iteration(name, last, arguments, first)
    if iteration is not None:
        return iteration
    if name == "functools.partial":
        return first
    if name == "getattr" and len(node.args) > 1:  # getattr(torch.optim, args.optimizer)
        libraries = [value.name for value in first if value.kind == "external"]
        return frozenset(Value("external", name=f"{base}.Any") for base in libraries)
    if name in ("len",):
        return SIZE if has(first, "batch", "tensor", "array") else NUMBER
    if name in ("int", "float", "bool", "abs", "min", "max", "sum", "round", "str"):
        return combine(arguments)
    if name == "torch.nn.Parameter" or name == "torch.nn.parameter.Parameter":
        return PARAMETER
    if name in ("torch.load", "torch.autograd.grad"):
        return NOTHING if name == "torch.load" else items(TENSOR)
    if name.startswith("torch.") and not library.starts(name, library.NOT_TENSORS):
        return _tensor(arguments, node)
    if library.starts(name, library.ARRAYS):
        return ARRAY
    kind: Kind = "model" if node in evaluator.promoted else "opaque"
    return frozenset({Value(kind, name=name, origin=node)})


def _passed(name: str, arguments: list[Values], first: Values) -> Values:
    if name.startswith("sklearn."):
        pairs = [part for part in arguments for _ in range(2)]
        shuffled = arguments if name.endswith("shuffle") else pairs
        return frozenset({Value("tuple", parts=tuple(shuffled))})
    if name.endswith("pad_sequence"):
        return combine([elements(first)]) or TENSOR
    return first


def _iteration(name: str, last: str, arguments: list[Values], first: Values) -> Values | None:
    if name in library.SAME_ITERATION or (last == "tqdm" and "tqdm" in name):
        return union(arguments[:1]) if "chain" not in name else union(arguments)
    if name == "enumerate":
        pair = Value("tuple", parts=(NUMBER, elements(first)))
        return items({pair})
    if name in ("zip", "itertools.zip_longest"):
        return items({Value("tuple", parts=tuple(elements(part) for part in arguments))})
    if name == "next":
        return elements(first)
    if name == "map":
        data = combine([elements(part) for part in arguments[1:]])
        makes = any(value.name.startswith("torch.") for value in first)  # map(torch.tensor, xs)
        return items(TENSOR if makes and not has(data, "batch") else data)
    if name == "range":
        return items(combine(arguments))
    if last == "trange":
        return items(NUMBER)
    return None


def _tensor(arguments: list[Values], node: ast.Call) -> Values:
    for keyword in node.keywords:
        if keyword.arg == "requires_grad" and getattr(keyword.value, "value", False) is True:
            return PARAMETER
    data = combine(arguments)
    return BATCH if has(data, "batch") else TENSOR


def method_call(
    evaluator: Evaluator, node: ast.Call, function: ast.Attribute, base: Values
) -> Values:
    """What a method returns, as far as the method's name and its object tell."""
    name = function.attr
    out: set[Value] = set()
    if name == "requires_grad_" and has(base, "tensor", "parameter", "array"):
        return PARAMETER
    if name in library.SELF_RETURNING:
        out.update(value for value in base if value.kind in (*_PASSED, "parameter"))
    if name in library.CLOCK_METHODS and not has(base, "batch", "tensor"):
        out |= CLOCK
    for value in base:
        if value.kind in ("batch", "tensor", "parameter", "array", "clock", "size", "number"):
            out |= _data_method(evaluator, node, name, value)
        elif value.kind == "items":
            out |= _container_method(name, value)
        elif value.kind == "environment" and name in ("step", "reset"):
            out.add(Value("environment"))
        elif value.kind == "opaque" and name not in library.SELF_RETURNING:
            out.add(Value("opaque", name=f"{value.name}().{name}", origin=node))
        elif value.kind == "model" and value.scope is None:
            out |= combine(evaluator.arguments(node))
        elif value.kind == "loader" and name in ("__iter__",):
            out.add(value)
    return frozenset(out)


def _data_method(evaluator: Evaluator, node: ast.Call, name: str, value: Value) -> Values:
    single = frozenset({value})
    if value.kind in ("batch", "tensor", "parameter"):
        if name in library.TO_ARRAY:
            return ARRAY
        if name == "size":
            return SIZE if node.args else items(SIZE)
        if name in library.TO_NUMBER:
            return NUMBER
        data = combine([single, *evaluator.arguments(node)])
        return BATCH if has(data, "batch") else TENSOR
    if value.kind == "array" and name in ("item", "mean", "sum") and not node.args:
        return combine([single])
    return combine([single])


def _container_method(name: str, value: Value) -> Values:
    inside = elements(frozenset({value}))
    if name in ("items",):
        return items({Value("tuple", parts=(NOTHING, inside))})
    if name in ("values", "copy"):
        return frozenset({value})
    if name in ("get", "pop", "popleft", "popitem", "setdefault", "__getitem__", "__next__"):
        return inside
    return NOTHING
