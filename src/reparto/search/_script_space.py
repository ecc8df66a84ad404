"""Reading ``--space``: what a script's options may be, or the settings of techniques.

# of a script                                       # of techniques
lr = {low = 1e-4, high = 1, log = true}             [random-forest]
batch-size = [32, 64, 128]                          numTrees = [10, 100]
epochs = 5
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reparto.errors import UsageError
from reparto.search._ground import dimension_of
from reparto.search._script_options import check_name
from reparto.spec import Settings

_REMEDY = "such as: lr = {low = 1e-4, high = 1, log = true}, or batch-size = [32, 64]"


def read_space(path: str | Path, *, script: bool = False) -> dict[str, Settings]:
    """Read a space from a TOML file, or a JSON file of the same form.

    Args:
        path: Of the file.
        script: Whether it is of a script: its names are options, see `_script_options`; they may
            stand in a table ``[script]``. Else each table is named after a technique.

    Returns:
        By technique, or under ``script``, what each setting may be, as a request has it.

    Raises:
        UsageError: If it cannot be; says at which name.

    Example:
        >>> read_space("space.toml", script=True)  # doctest: +SKIP
        {'script': {'lr': {'low': 0.0001, 'high': 1, 'log': True}}}
    """
    path = Path(path)
    plain = _plain_of(path)
    if script:
        tables: dict[str, Settings] = {"script": _of_script(path.name, plain)}
    else:
        tables = {name: _table(f"{path.name}: {name}", it) for name, it in plain.items()}
    for table, settings in tables.items():
        if not settings:
            raise UsageError(f"{path.name}: there is nothing to choose from", remedy=_REMEDY)
        for name, given in settings.items():
            where = f"{path.name}: {name if script else f'{table}.{name}'}"
            if script:
                check_name(path.name, name)
            _check_values(where, given)
            dimension_of(where, given)
    return tables


def _plain_of(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", remedy="name a file that says what may be chosen"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {error}", remedy="save it as UTF-8 text") from error
    is_json = path.suffix == ".json"
    try:
        plain = json.loads(text) if is_json else tomllib.loads(text)
    except ValueError as error:
        form = "JSON" if is_json else "TOML"
        raise UsageError(f"{path.name} is no {form}: {error}", remedy=_REMEDY) from error
    if not isinstance(plain, dict):
        raise UsageError(f"{path.name} holds no names with values", remedy=_REMEDY)
    return plain


def _of_script(name: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    inner = plain.get("script")
    if isinstance(inner, Mapping) and not _is_range(inner):
        others = [other for other in plain if other != "script"]
        if others:
            raise UsageError(
                f"{name}: {others[0]} stands beside the table [script]",
                remedy="put all options into it, or leave the table out",
            )
        return dict(inner)
    return dict(plain)


def _table(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or _is_range(given):
        raise UsageError(
            f"{where} belongs to no technique",
            remedy="put settings into a table of their technique: [random-forest]",
        )
    return dict(given)


def _is_range(given: Mapping[str, Any]) -> bool:
    return bool(given) and set(given) <= {"low", "high", "log", "values"}


def _check_values(where: str, given: Any) -> None:
    """Dates and tables in tables are TOML, and nothing that a setting can be."""
    inner = given.get("values", []) if isinstance(given, Mapping) else given
    for one in inner if isinstance(inner, list) else [inner]:
        parts = one if isinstance(one, list) else [one]
        if not all(isinstance(part, str | int | float | bool) or part is None for part in parts):
            raise UsageError(f"{where} cannot be {one}", remedy="numbers, text, true or false")
