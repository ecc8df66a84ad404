"""What a request of an on-demand platform may hold, as a JSON Schema, and what is wrong with one.

Only the keywords that this schema uses are understood: ``type``, ``enum``, ``const``,
``properties``, ``required``, ``additionalProperties`` (false), ``items``, ``minItems``,
``minimum``, ``minLength``, ``pattern`` with ``description``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]

_COUNT: Schema = {"type": "integer", "minimum": 0}
_NAME: Schema = {"type": "string", "minLength": 1}

_HYPERPARAMETER: Schema = {
    "type": "object",
    "required": ["param", "values"],
    "properties": {
        "param": {**_NAME, "description": "its name in Spark's MLlib, or ours"},
        "values": {
            "type": "array",
            "minItems": 1,
            "items": {"type": ["number", "string", "boolean", "array"]},
        },
    },
    "additionalProperties": False,
}

_METHOD: Schema = {
    "type": "object",
    "required": ["algorithm"],
    "properties": {
        "algorithm": _NAME,
        "hyperparameters": {"type": "array", "items": _HYPERPARAMETER},
    },
    "additionalProperties": False,
}

_INSTANCE: Schema = {
    "type": "object",
    "properties": {
        "ec2Instance": _NAME,
        "additionalHardware": {"type": ["string", "array", "null"], "items": {"type": "string"}},
        "minInstances": _COUNT,
        "maxInstances": {"type": "integer", "minimum": 1},
    },
    "additionalProperties": False,
}

#: The request of system D in ``SEEDS``; printed by ``reparto search --schema``.
PLATFORM: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A request to an on-demand training platform",
    "type": "object",
    "required": ["domain", "methods"],
    "properties": {
        "$schema": {"type": "string"},
        "domain": {
            "enum": [
                "regression",
                "classification",
                "clustering",
                "deep-learning",
                "binomial-classification",
                "multinomial-classification",
                "misc-functions",
            ]
        },
        "dataset": {
            "type": "object",
            "required": ["path"],
            "properties": {
                "path": {**_NAME, "description": "from the request's folder, or from here"},
                "format": {"enum": ["libsvm", "csv", "parquet", "arff", "numpy"]},
            },
            "additionalProperties": False,
        },
        "methods": {"type": "array", "minItems": 1, "items": _METHOD},
        "parameterSearch": {"enum": ["grid", "random", "bayesian-optimization"]},
        "computationalResources": {
            "type": "object",
            "properties": {
                "instances": {"type": "array", "items": _INSTANCE},
                "minTotalInstances": _COUNT,
                "maxTotalInstances": {"type": "integer", "minimum": 1},
            },
            "additionalProperties": False,
        },
        "emailAddress": {
            "type": "string",
            "pattern": r"^[^@\s]+@[^@\s]+$",
            "description": "an address such as ana@example.org",
        },
    },
    "additionalProperties": False,
}

_KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_CALLED: Mapping[str, str] = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
#: So much is shown of a value that is wrong.
_SHOWN = 60


@dataclass(frozen=True)
class Fault:
    """What is wrong with a part of a request.

    Attributes:
        where: As people write it: ``methods[1].hyperparameters[0].values``; empty for the whole.
        what: It says what must be there, and what was.
    """

    where: str
    what: str

    def __str__(self) -> str:
        """As one line of a message."""
        return f"{self.where}: {self.what}" if self.where else self.what


def faults_of(schema: Schema, value: Any, where: str = "") -> Iterator[Fault]:
    """All that is wrong with a value, in the order of the schema.

    Args:
        schema: What it may be.
        value: Plain data.
        where: Which part of the whole it is.
    """
    kinds = schema.get("type")
    if kinds is not None and not any(_is(value, kind) for kind in _listed(kinds)):
        yield Fault(where, f"must be {_wanted(schema)} (was {shown(value)})")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Fault(where, f"must be {_one_of(schema['enum'], value)}")
    elif isinstance(value, str):
        yield from _faults_of_text(schema, value, where)
    elif isinstance(value, list):
        yield from _faults_of_list(schema, value, where)
    elif isinstance(value, dict):
        yield from _faults_of_object(schema, value, where)
    elif "minimum" in schema and value < schema["minimum"]:
        yield Fault(where, f"must be at least {schema['minimum']} (was {shown(value)})")


def shown(value: Any) -> str:
    """A value as it stands in JSON, if it is not too long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _faults_of_text(schema: Schema, value: str, where: str) -> Iterator[Fault]:
    if len(value.strip()) < schema.get("minLength", 0):
        yield Fault(where, "must not be empty")
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield Fault(where, f"must be {schema['description']} (was {shown(value)})")


def _faults_of_list(schema: Schema, value: list[Any], where: str) -> Iterator[Fault]:
    if len(value) < schema.get("minItems", 0):
        yield Fault(where, f"must be a non-empty list (was {shown(value)})")
    for index, one in enumerate(value):
        yield from faults_of(schema.get("items", {}), one, f"{where}[{index}]")


def _faults_of_object(schema: Schema, value: dict[str, Any], where: str) -> Iterator[Fault]:
    known: Mapping[str, Schema] = schema.get("properties", {})
    inside = f"{where}." if where else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield Fault(f"{inside}{name}", f"is missing: it must be {_wanted(known[name])}")
    for name, one in value.items():
        if name in known:
            yield from faults_of(known[name], one, f"{inside}{name}")
        elif not schema.get("additionalProperties", True):
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
            yield Fault(f"{inside}{name}", f"is not known here; {hint}")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind])


def _wanted(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    names = [_CALLED[kind] for kind in _listed(schema["type"])]
    if names == ["a list"] and schema.get("minItems"):
        return "a non-empty list"
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _one_of(values: list[str], value: Any) -> str:
    close = difflib.get_close_matches(str(value).lower(), values, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"one of {', '.join(values)} (was {shown(value)}{hint})"


def _listed(kinds: str | list[str]) -> list[str]:
    return [kinds] if isinstance(kinds, str) else kinds
