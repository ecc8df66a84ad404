"""Strategies and compressors in words: their knobs are read from the fields and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, get_type_hints

from reparto.strategies import compressors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Knob:
    """A setting.

    Attributes:
        name: As it is set.
        type: In words.
        default: As it would be given on the command line.
        meaning: One or two sentences.
    """

    name: str
    type: str
    default: str
    meaning: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """A strategy or a compressor in words.

    Attributes:
        kind: Its name.
        is_compressor: Whether it is a part of a strategy.
        summary: One line.
        exact: Whether the training is the sequential one, as it is set by default.
        changes: What it changes in the mathematics, as it is set by default.
        formula: What a worker sends.
        paper: Where it comes from.
        knobs: Its settings.
    """

    kind: str
    is_compressor: bool
    summary: str
    exact: bool
    changes: str
    formula: str
    paper: str
    knobs: tuple[Knob, ...]


def describe(config: type[Any]) -> Description:
    """Put a strategy or a compressor into words."""
    is_compressor = issubclass(config, compressors.Config)
    default = config()
    told = "" if is_compressor else default.changes
    exact = not default.is_lossy if is_compressor else bool(default.exact)
    return Description(
        kind=config.kind,
        is_compressor=is_compressor,
        summary=config.summary,
        exact=exact,
        changes=told,
        formula=_size(default) if is_compressor else config.formula,
        paper=config.paper,
        knobs=tuple(_knobs(config, default)),
    )


def _size(default: compressors.Config) -> str:
    return f"{default.ratio((1000, 1000), 4):.1f} times fewer bytes for a matrix of 1000 × 1000"


def _knobs(config: type[Any], default: Any) -> list[Knob]:
    meanings = _meanings(config)
    hints = get_type_hints(config)
    knobs = []
    for field in dataclasses.fields(config):
        value = getattr(default, field.name)
        is_part = isinstance(value, compressors.Config)
        knobs.append(
            Knob(
                name=f"{field.name}.kind" if is_part else field.name,
                type=" | ".join(compressors.available()) if is_part else _type(hints[field.name]),
                default=value.kind if is_part else str(value).lower()
                if isinstance(value, bool) else str(value),
                meaning=meanings.get(field.name, ""),
            )
        )  # fmt: skip
    return knobs


def _type(hint: Any) -> str:
    if isinstance(hint, type):
        return hint.__name__
    words = re.search(r"Literal\[(.*?)\]", str(hint))
    if not words:
        return str(hint)
    others = re.findall(r"\b(int|float|str)\b(?=.*Literal)", str(hint))
    return " | ".join([*others, *words[1].replace("'", "").split(", ")])


def _meanings(config: type[Any]) -> dict[str, str]:
    """What the docstrings of a class and its bases say under ``Attributes``."""
    found: dict[str, str] = {}
    for base in reversed(config.__mro__):
        text = inspect.cleandoc(base.__doc__ or "")
        _, _, attributes = text.partition("Attributes:\n")
        entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", attributes, re.M)
        found |= {name: " ".join(told.replace("``", "").split()) for name, told in entries}
    return found
