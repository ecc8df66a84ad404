"""Nouns to JSON and back, strictly: unknown keys and wrong types are refused."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, TypeVar

from reparto.errors import UsageError

T = TypeVar("T")


def to_plain(noun: Any) -> Any:
    """Turn a noun of ``spec`` into dictionaries, lists and scalars."""
    return dataclasses.asdict(noun)


def to_json(noun: Any, *, indent: int | None = None) -> str:
    """Turn a noun of ``spec`` into JSON text."""
    return json.dumps(to_plain(noun), indent=indent)


def finite(plain: Any) -> Any:
    """Plain data for JSON, which knows no infinity and no NaN: these become null."""
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    if isinstance(plain, dict):
        return {key: finite(value) for key, value in plain.items()}
    return [finite(value) for value in plain] if isinstance(plain, list | tuple) else plain


def from_plain(kind: type[T], plain: Any) -> T:
    """Build a noun of ``spec`` from plain data.

    Raises:
        UsageError: If a key is unknown, missing, or has the wrong type; says which.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(_forbidding(kind)).validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "(top)"
        raise UsageError(
            f"{kind.__name__}: {where}: {first['msg']}",
            remedy="correct or remove that key",
        ) from error


def from_json(kind: type[T], text: str) -> T:
    """Build a noun of ``spec`` from JSON text."""
    return from_plain(kind, json.loads(text))


def _forbidding(kind: type[T]) -> type[T]:
    # Nested dataclasses read their own configuration, so it is set on every noun once.
    seen: list[type] = [kind]
    while seen:
        current = seen.pop()
        if "__pydantic_config__" in vars(current):
            continue
        current.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[attr-defined]
        for field in dataclasses.fields(current):
            seen.extend(_dataclasses_named(current, field.type))
    return kind


def _dataclasses_named(owner: type, annotation: Any) -> list[type]:
    import sys

    names = vars(sys.modules[owner.__module__])
    words = str(annotation).replace("[", " ").replace("]", " ").replace(",", " ").split()
    return [
        names[word]
        for word in words
        if isinstance(names.get(word), type) and dataclasses.is_dataclass(names[word])
    ]
