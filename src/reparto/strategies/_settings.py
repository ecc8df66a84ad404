"""Settings from the command line or a file: names and types are checked, nothing is guessed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from reparto.errors import UsageError
from reparto.strategies import compressors

C = TypeVar("C")


def validated(config: type[C], settings: Mapping[str, Any], whose: str) -> C:
    """Build settings of a strategy or a compressor.

    Args:
        config: Their class, a dataclass.
        settings: By name; ``part.name`` is a setting of a part.
        whose: For messages.

    Raises:
        UsageError: If a setting is unknown or has the wrong type.
    """
    nested = _nested(settings)
    fields = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    for name in nested:
        if name not in fields:
            raise UsageError(
                f"{whose} has no setting {name!r}",
                remedy=f"its settings are: {', '.join(sorted(fields)) or 'none'}",
            )
    hints = get_type_hints(config)
    return config(**{name: _checked(hints[name], nested[name], name, whose) for name in nested})


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        first, dot, rest = name.partition(".")
        if not dot:
            nested[first] = value
            continue
        inside = nested.setdefault(first, {})
        if not isinstance(inside, dict):
            raise UsageError(
                f"{first!r} is given whole and in parts", remedy="give one of the two"
            )
        inside[rest] = value
    return nested


def _checked(hint: Any, value: Any, name: str, whose: str) -> Any:
    if hint is compressors.Config:
        return _compressor(value)
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        told = error.errors()[0]["msg"]
        raise UsageError(
            f"{whose}: {name}={value!r}: {told}", remedy=f"{name} is {_told(hint)}"
        ) from error


def _compressor(value: Any) -> compressors.Config:
    if isinstance(value, compressors.Config):
        return value
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping) or "kind" not in value:
        kinds = ", ".join(sorted(compressors.available()))
        raise UsageError(
            "a compressor is chosen by its kind", remedy=f"compressor.kind=… one of {kinds}"
        )
    kind = value["kind"]
    rest = {name: one for name, one in value.items() if name != "kind"}
    return validated(compressors.config_of(kind), rest, f"compressor {kind!r}")


def _told(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
