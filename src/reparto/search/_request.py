"""A request read from a file: our own form, or that of an on-demand training platform.

request.json ──► plain data ──┬─ `methods`, `dataset`, … ──► the platform's form ──┐
                              └─ `data`, `target`, … ──────► our own form ─────────┴► SearchRequest
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from reparto.errors import UsageError
from reparto.search._request_schema import PLATFORM, Fault, shown
from reparto.spec import Candidate, SearchRequest, from_plain

#: Names that only the platform's form has.
_PLATFORMS = frozenset(
    "methods dataset parameterSearch computationalResources emailAddress".split()
)
#: Names of our own form that are paths.
_PATHS = ("data", "test", "script")
_REMEDY = "`reparto search --schema` prints what may stand where"


def read_request(
    source: str | Path | Mapping[str, Any], *, engine: str = "local"
) -> SearchRequest:
    """Read what is asked for.

    Args:
        source: A JSON file, or what it holds. Our own form is a `SearchRequest` as ``again.json``
            holds it; unknown names are refused. The other form has ``methods`` and ``dataset``.
            Paths in it are relative to the file's folder or, if there is no such file, to here.
        engine: Where it will run: locally there are no more workers than cores.

    Raises:
        UsageError: If it cannot be read or understood; all that is wrong is told, and where.

    Example:
        >>> request = read_request({"data": "houses.csv", "target": "price", "trials": 20})
        >>> request.target, request.trials
        ('price', 20)
    """
    if isinstance(source, Mapping):
        name, folder, plain = "request", Path(), dict(source)
    else:
        path = Path(source)
        name, folder, plain = path.name, path.parent, _plain_of(path)
    if _PLATFORMS & plain.keys() or plain.get("domain") in _domains_of_platforms():
        from reparto.search._request_platform import platform_request

        return platform_request(plain, name, folder, engine)
    return _own(plain, name, folder)


def schemas() -> dict[str, Any]:
    """What a request may hold, as a JSON Schema of both forms."""
    from pydantic import TypeAdapter

    own = TypeAdapter(SearchRequest).json_schema()
    definitions = own.pop("$defs", {})
    other = {name: value for name, value in PLATFORM.items() if name != "$schema"}
    return {
        "$schema": PLATFORM["$schema"],
        "anyOf": [other, {**own, "additionalProperties": False}],
        "$defs": definitions,
    }


def refuse(name: str, faults: Sequence[Fault], remedy: str = _REMEDY) -> NoReturn:
    """Tell all that is wrong with a request.

    Raises:
        UsageError: Always.
    """
    raise UsageError("\n".join(f"{name}: {fault}" for fault in faults), remedy=remedy)


def found(path: str, folder: Path) -> str | None:
    """Where a file is that a request names; None if it is nowhere.

    What has a scheme, such as ``hdfs://``, is not looked for: a cluster may see it.
    """
    if "://" in path:
        return path
    for place in (folder / path, Path(path)):
        if place.exists():
            return os.path.normpath(place)
    return None


def nowhere(path: str, folder: Path) -> str:
    """Say that there is no such file."""
    here, there = Path.cwd(), folder.absolute()
    places = str(there) if here == there else f"{there} or in {here}"
    return f"there is no file {path}" + ("" if os.path.isabs(path) else f" in {places}")


def _domains_of_platforms() -> frozenset[str]:
    own = {"regression", "clustering"}  # these are ours too
    return frozenset(PLATFORM["properties"]["domain"]["enum"]) - own


def _plain_of(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", remedy="name a file that holds a request"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8", remedy="a request is JSON") from error
    try:
        plain = json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}:{error.lineno}:{error.colno}: {error.msg}", remedy="correct the JSON there"
        ) from error
    except _NoJsonError as error:
        raise UsageError(f"{path}: {error}", remedy="correct the JSON there") from error
    if not isinstance(plain, dict):
        raise UsageError(f"{path}: a request is an object (was {shown(plain)})", remedy=_REMEDY)
    return plain


class _NoJsonError(ValueError):
    """What Python reads as JSON, and what is none."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _NoJsonError(f"{twice!r} stands there twice, and only one of the two can count")
    return made


def _no_number(text: str) -> NoReturn:
    raise _NoJsonError(f"{text} is no number that JSON knows")


def _own(plain: Mapping[str, Any], name: str, folder: Path) -> SearchRequest:
    try:
        request = from_plain(SearchRequest, dict(plain))
    except UsageError as error:
        refuse(name, _faults(error))
    places: dict[str, Any] = {}
    faults = []
    for key in _PATHS:
        if path := getattr(request, key):
            places[key] = found(path, folder)
            if places[key] is None:
                faults.append(Fault(key, nowhere(path, folder)))
    if faults:
        refuse(name, faults, "name one that is there")
    spaces = {
        technique: {setting: _tupled(values) for setting, values in settings.items()}
        for technique, settings in request.spaces.items()
    }
    candidates = tuple(_restored(one) for one in request.candidates)
    return dataclasses.replace(request, spaces=spaces, candidates=candidates, **places)


def _faults(error: UsageError) -> list[Fault]:
    """All that pydantic has found, not only the first."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return [Fault("", error.message)]
    told = {}
    for one in error.__cause__.errors():
        where = ""
        for part in one["loc"]:
            where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
        message = str(one["msg"])
        if one["type"] == "unexpected_keyword_argument":
            told[where] = "is not known here"
        else:
            told[where] = f"{message[0].lower()}{message[1:]} (was {shown(one['input'])})"
    return [Fault(where, what) for where, what in told.items()]


def _restored(candidate: Candidate) -> Candidate:
    """JSON knows lists only; settings are tuples."""
    settings = {name: _tupled(value) for name, value in candidate.settings.items()}
    return dataclasses.replace(candidate, settings=settings)


def _tupled(value: Any) -> Any:
    return tuple(_tupled(one) for one in value) if isinstance(value, list) else value
