"""What `reparto search` is asked on the command line, as a `SearchRequest`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.errors import UsageError

if TYPE_CHECKING:
    from reparto.spec import SearchRequest

#: Options whose names are those of the request.
_SAME = (
    "target domain metric test rows techniques search seed trials cost min_workers max_workers "
    "threads engine address folds split groups storage script objective script_workers strategy"
).split()
#: Options that say nothing of a table, and those that say nothing of a script.
_OF_SCRIPT = "objective maximize script_workers strategy".split()
_OF_TABLE = "target domain test rows techniques folds split groups time_column no_ensemble".split()
_RANGE = re.compile(r"(?P<low>[-+\d.eE]+?)\.\.(?P<high>[-+\d.eE]+)(?P<log>:log)?")
#: Of what counts when a search is gone on with.
_LIMITS = "time trials cost workers max_workers candidate_time memory address storage".split()


def request_of(args: argparse.Namespace) -> SearchRequest:
    """What the arguments ask; over a request in a file, they have the last word.

    Raises:
        UsageError: If they contradict each other, or a file cannot be read.
    """
    from reparto.search import read_request
    from reparto.spec import SearchRequest

    rest = list(args.data)
    if args.script:
        base = SearchRequest(script=args.script, script_args=tuple(rest))
    elif len(rest) > 1:
        raise UsageError(
            f"{rest[1]} is the second thing to be searched, after {rest[0]}",
            remedy="name one table; another that is kept for the end is --test FILE",
        )
    elif rest and rest[0].endswith(".json"):
        base = read_request(rest[0], engine=args.engine or "local")
    else:
        base = SearchRequest(data=rest[0] if rest else "")
    if args.resume:  # what is named is only held against what the folder's search is of
        named = SearchRequest(data=base.data, script=base.script)
        return dataclasses.replace(named, **_given(args))
    request = dataclasses.replace(base, **_given(args))
    if spaces := _spaces(args, request):
        request = dataclasses.replace(request, spaces=spaces)
    _check_suits(args, request)
    return _checked(request)


def _check_suits(args: argparse.Namespace, request: SearchRequest) -> None:
    """Refuse options that would have no effect on what is searched."""
    others, what, remedy = _OF_SCRIPT, "a table", "leave it out, or name a script: --script"
    if request.script:
        others, what, remedy = _OF_TABLE, "a script", "leave it out"
    for name in others:
        value = getattr(args, name)
        if value is not None and value is not False:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} says nothing where {what} is searched", remedy=remedy)
    if args.address is not None and request.engine == "local":
        raise UsageError(
            f"--address {args.address} is of a cluster, and the engine is local",
            remedy="--engine ray or --engine spark",
        )
    if request.data.endswith(".py") and not request.script:
        raise UsageError(
            f"{request.data} is a script, and no table", remedy=f"--script {request.data}"
        )
    if request.domain == "function" and request.data:
        raise UsageError(
            f"a function has no data, such as {request.data}",
            remedy="leave the table or --domain function out",
        )


def folder_of(args: argparse.Namespace) -> Path:
    """Where what is found goes.

    Raises:
        UsageError: If a search is to be gone on with, and nobody says which one.
    """
    if args.out:
        return Path(args.out)
    named = args.script or (args.data[0] if args.data else "")
    if not named and args.resume:
        raise UsageError("which search is to go on?", remedy="name its folder: --out FOLDER")
    return Path(f"{Path(named).stem or args.domain or 'reparto'}-search")


def _given(args: argparse.Namespace) -> dict[str, Any]:
    from reparto.spec import parse_size, parse_time

    given = {name: value for name in _SAME if (value := getattr(args, name)) is not None}
    if args.workers is not None:
        given["max_workers"] = args.workers
    if args.price is not None:
        given["price_per_hour"] = args.price
    if args.time is not None:
        given["time_s"] = _positive(parse_time(args.time, "--time"), "--time")
    if args.candidate_time is not None:
        seconds = parse_time(args.candidate_time, "--candidate-time")
        given["candidate_s"] = _positive(seconds, "--candidate-time")
    if args.memory is not None:
        given["memory_bytes"] = parse_size(args.memory, "--memory")
    if args.time_column is not None:
        given["time"] = args.time_column
    if args.no_ensemble:
        given["ensemble"] = False
    if args.maximize:
        given["maximize"] = True
    return given


def _positive(seconds: float, option: str) -> float:
    if seconds <= 0:
        raise UsageError(f"{option}: {seconds:g} s is no time", remedy="give a time such as 10m")
    return seconds


def _checked(request: SearchRequest) -> SearchRequest:
    most = request.max_workers
    if most is not None and request.min_workers > most:
        raise UsageError(
            f"at least {request.min_workers} workers are asked for, and at most {most}",
            remedy="--min-workers is not above --max-workers",
        )
    if request.min_workers < 0:
        raise UsageError("--min-workers is below 0", remedy="give 0 or more")
    if request.cost is not None and not request.price_per_hour:
        raise UsageError(
            "--cost says what it may cost, and nobody says what a worker costs",
            remedy="--price 0.40/h",
        )
    if "://" in request.data and request.engine != "spark":
        raise UsageError(
            f"{request.data} is not on this machine",
            remedy="copy it here, or --engine spark --address …",
        )
    return request


# ------------------------------------------------------------------------------ spaces


def _spaces(args: argparse.Namespace, request: SearchRequest) -> dict[str, dict[str, Any]]:
    """Those of the request, then of a file, then of the command line: the last one counts."""
    from reparto.search._script_space import read_space

    spaces = {name: dict(settings) for name, settings in request.spaces.items()}
    if args.space is not None:
        found = read_space(args.space, script=bool(request.script))
        for technique, settings in found.items():
            for name, values in settings.items():
                _put(spaces, technique, name, values)
    for text in args.set:
        _put(spaces, *_set(text, request))
    return spaces


def _put(spaces: dict[str, dict[str, Any]], technique: str, name: str, values: Any) -> None:
    """In the place of what is there under the same name, however it is spelled."""
    technique = next((one for one in spaces if _plain(one) == _plain(technique)), technique)
    own = spaces.setdefault(technique, {})
    for other in [one for one in own if _plain(one) == _plain(name)]:
        del own[other]
    own[name] = values


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _set(text: str, request: SearchRequest) -> tuple[str, str, Any]:
    """Of ``technique.name=values``; the technique may be left out where there is only one."""
    name, equals, values = text.partition("=")
    if not equals or not name.strip(" .") or not values.strip():
        raise UsageError(
            f"--set {text}: no values", remedy="write TECHNIQUE.NAME=1,2,3 or …=0.001..1:log"
        )
    if request.script:  # a script's options may have dots of their own
        return "script", name.strip().removeprefix("script."), _values(values.strip())
    technique, dot, setting = name.strip().rpartition(".")
    if not dot:
        if len(request.techniques) != 1:
            raise UsageError(
                f"--set {text}: of which technique?", remedy=f"write TECHNIQUE.{setting}={values}"
            )
        technique = request.techniques[0]
    return technique, setting, _values(values.strip())


def _values(text: str) -> Any:
    """A range, or values with commas between them; brackets keep commas together."""
    if found := _RANGE.fullmatch(text):
        low, high = (_value(found[name]) for name in ("low", "high"))
        return {"low": low, "high": high, **({"log": True} if found["log"] else {})}
    parts = re.split(r",(?![^\[\]]*\])", text)
    return tuple(_value(part.strip()) for part in parts if part.strip())


def _value(text: str) -> Any:
    """As JSON where it is, with Python's words too; else as it stands."""
    words: Mapping[str, Any] = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        meant = json.loads(text)
    except ValueError:
        try:
            return float(text)  # such as .5 and 1e-3
        except ValueError:
            return text
    return tuple(meant) if isinstance(meant, list) else meant


def ignored_when_resumed(args: argparse.Namespace) -> list[str]:
    """Options that do not count, since the search of the folder has its own."""
    names = [*_SAME, "time_column"]
    return (
        [
            f"--{name.replace('_', '-')}"
            for name in names
            if name not in _LIMITS and getattr(args, name) is not None
        ]
        + (["--no-ensemble"] if args.no_ensemble else [])
        + (["--maximize"] if args.maximize else [])
        + (["--set"] if args.set else [])
        + (["--space"] if args.space else [])
    )
