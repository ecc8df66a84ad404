"""The request of an on-demand training platform: methods, dataset, instances, an address.

Each of its fields is honoured, or there is a note or a refusal that says why it cannot be.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.errors import UsageError
from reparto.search._function_work import function_named
from reparto.search._request import found, nowhere, refuse
from reparto.search._request_instances import workers_of
from reparto.search._request_layers import with_hidden_layers
from reparto.search._request_schema import PLATFORM, Fault, faults_of, shown
from reparto.spec import AskedDomain, Candidate, Domain, SearchKind, SearchRequest, TableFacts

if TYPE_CHECKING:
    from reparto.search.techniques._base import Technique

#: What each of its domains is here; the first one unless the data say otherwise.
_DOMAINS: Mapping[str, tuple[Domain, ...]] = {
    "regression": ("regression",),
    "classification": ("binary", "multiclass"),
    "binomial-classification": ("binary",),
    "multinomial-classification": ("multiclass",),
    "clustering": ("clustering",),
    "deep-learning": ("binary", "multiclass", "regression"),
    "misc-functions": ("function",),
}
_SEARCHES: Mapping[str, SearchKind] = {
    "grid": "grid",
    "random": "random",
    "bayesian-optimization": "bayes",
}
_CLASSES: Mapping[Domain, str] = {"binary": "two classes", "multiclass": "several classes"}
#: One of these words is in the name of every technique that is one.
_NETWORKS = frozenset(("network", "perceptron"))
#: A grid of more points is too large to be written down.
_MOST_POINTS = 100_000


@dataclass
class _Method:
    """An algorithm of the request, and the values of its hyperparameters."""

    kind: str
    spaces: dict[str, tuple[Any, ...]]

    @property
    def num_points(self) -> int:
        return math.prod(len(values) for values in self.spaces.values())


@dataclass
class _Reading:
    """What is found while a request is read."""

    name: str
    folder: Path
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def platform_request(
    plain: Mapping[str, Any], name: str, folder: Path, engine: str = "local"
) -> SearchRequest:
    """Turn a platform's request into ours.

    Args:
        plain: What the file holds.
        name: Of the file, for messages.
        folder: Of the file.
        engine: Where it will run.

    Raises:
        UsageError: If it cannot be; tells all that is wrong, and where.
    """
    faults = list(faults_of(PLATFORM, dict(plain)))
    if "dataset" not in plain and plain.get("domain") != "misc-functions":
        what = "is missing: it must be an object with the path of the data"
        faults.append(Fault("dataset", what))
    if faults:
        refuse(name, faults)
    reading = _Reading(name, folder)
    data = _data(plain, reading)
    written = _format_of(data)
    asked_format = (plain.get("dataset") or {}).get("format", written)
    if written and written != asked_format:
        reading.notes.append(
            f"dataset.format is {asked_format}, and the file holds {written}: it is read as that"
        )
    domain = _domain(plain, data, is_libsvm=written == "libsvm")
    methods = _methods(plain, None if domain == "classification" else domain, reading)
    resources = plain.get("computationalResources", {})
    fewest, most = workers_of(resources, engine, reading.faults, reading.notes)
    if reading.faults:
        refuse(name, reading.faults)
    search = _search(plain, reading)
    if notify := str(plain.get("emailAddress", "")):
        reading.notes.append(
            f"{notify} is told of the end by the job service; this command sends no mail"
        )
    asked = _asked(methods, search, reading)
    return SearchRequest(
        data=data,
        domain=domain,
        search=search,
        min_workers=fewest,
        max_workers=most,
        notify=notify,
        ensemble=False,  # the platform's answer is the best of the methods that are named
        notes=tuple(reading.notes),
        **asked,
    )


def _data(plain: Mapping[str, Any], reading: _Reading) -> str:
    """Where the data are."""
    if plain["domain"] == "misc-functions":
        if "dataset" in plain:
            reading.notes.append("dataset is not read: a function has no data")
        return ""
    path = str(plain["dataset"]["path"])
    place = found(path, reading.folder)
    if place is None:
        reading.faults.append(Fault("dataset.path", nowhere(path, reading.folder)))
    return place or ""


def _search(plain: Mapping[str, Any], reading: _Reading) -> SearchKind:
    if "parameterSearch" not in plain:
        reading.notes.append("parameterSearch is not given: a grid is searched")
    return _SEARCHES[plain.get("parameterSearch", "grid")]


def _methods(plain: Mapping[str, Any], domain: Domain | None, reading: _Reading) -> list[_Method]:
    made = []
    for index, one in enumerate(plain["methods"]):
        where = f"methods[{index}]"
        try:
            known = _algorithm(str(one["algorithm"]), str(plain["domain"]), domain)
        except UsageError as error:
            reading.faults.append(Fault(f"{where}.algorithm", _in_a_line(error)))
            continue
        spaces = _spaces(known, one.get("hyperparameters", ()), where, reading)
        made.append(_Method(known.kind, spaces))
    return made


def _spaces(
    known: _Algorithm, given: Sequence[Mapping[str, Any]], where: str, reading: _Reading
) -> dict[str, tuple[Any, ...]]:
    """Values by our names of a method's hyperparameters."""
    values: dict[str, Sequence[Any]] = {}
    places: dict[str, int] = {}
    for number, parameter in enumerate(given):
        name = str(parameter["param"])
        if name in values:
            reading.faults.append(
                Fault(f"{where}.hyperparameters[{number}].param", f"{name} is there twice")
            )
        values[name], places[name] = tuple(map(_value, parameter["values"])), number
    if known.kind == "multilayer-perceptron":
        values, faults, notes = with_hidden_layers(values, where, places)
        reading.faults += faults
        reading.notes += notes
    spaces: dict[str, tuple[Any, ...]] = {}
    for name, some in values.items():
        place = f"{where}.hyperparameters[{places.get(name, 0)}]"
        try:
            own = known.setting(name)
        except UsageError as error:
            reading.faults.append(Fault(f"{place}.param", _in_a_line(error)))
            continue
        if own in spaces:
            reading.faults.append(Fault(f"{place}.param", f"{own} is there twice"))
        for position, value in enumerate(some):
            try:
                known.check(own, value)
            except UsageError as error:
                reading.faults.append(Fault(f"{place}.values[{position}]", _in_a_line(error)))
        spaces[own] = tuple(dict.fromkeys(some))
    return spaces


def _in_a_line(error: UsageError) -> str:
    return f"{error.message}; {error.remedy}" if error.remedy else error.message


class _Algorithm:
    """What is known of an algorithm's hyperparameters: a technique, or a function."""

    def __init__(self, kind: str, technique: Technique | None, facts: TableFacts) -> None:
        self.kind, self._technique, self._facts = kind, technique, facts

    def setting(self, name: str) -> str:
        """Our name of a hyperparameter."""
        if self._technique is not None:
            return self._technique.setting_named(name, self._facts)
        space = function_named(self.kind).space
        if name not in space:
            raise UsageError(f"{self.kind} has no argument {name!r}; it has {', '.join(space)}")
        return name

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that cannot be."""
        if self._technique is not None:
            self._technique.check({name: value}, self._facts)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{self.kind}: {name} is {shown(value)}; give a number")


def _algorithm(name: str, asked: str, domain: Domain | None) -> _Algorithm:
    """What a request calls by this name.

    Raises:
        UsageError: If there is nothing of that name, or if it answers other questions.
    """
    if asked == "misc-functions":
        return _Algorithm(function_named(name).kind, None, TableFacts(domain="function"))
    from reparto.search.techniques import technique_named

    technique = technique_named(name)
    own = [one for one in technique.domains if one in _DOMAINS[asked]]
    if not own or (domain is not None and domain not in own):
        what = asked if domain is None or not own else f"{asked} of {_CLASSES[domain]}"
        raise UsageError(
            f"{name} is not for {what}", remedy=f"it is for {', '.join(technique.domains)}"
        )
    said = _said(name) or technique.domains
    possible = [one for one in own if one in said and domain in (None, one)]
    if not possible:
        raise UsageError(f"{name} is not for {asked}", remedy=f"it is for {', '.join(said)}")
    if asked == "deep-learning" and not _NETWORKS & set(technique.kind.split("-")):
        raise UsageError(f"{name} is no network", remedy="ask for it in another domain")
    return _Algorithm(technique.kind, technique, TableFacts(domain=possible[0]))


def _said(name: str) -> tuple[Domain, ...]:
    """For what an algorithm is by its name, where the name says so."""
    name = name.lower()
    if "binomial" in name:
        return ("binary",)
    if "classif" in name or "logistic" in name:
        return ("binary", "multiclass")
    return ("regression",) if "regress" in name else ()


def _value(given: Any) -> Any:
    """As it is meant: numbers and lists may be written as text."""
    if isinstance(given, list):
        return tuple(map(_value, given))
    if not isinstance(given, str):
        return given
    try:
        meant = json.loads(given.strip().lower() if given.strip().title() in _WORDS else given)
    except ValueError:
        return given
    if isinstance(meant, dict | str) or meant is None:
        return given
    return _value(meant) if isinstance(meant, list) else meant


_WORDS = ("True", "False")


def _asked(methods: Sequence[_Method], search: SearchKind, reading: _Reading) -> dict[str, Any]:
    """The request's techniques, spaces and candidates."""
    kinds = tuple(dict.fromkeys(one.kind for one in methods))
    if len(kinds) < len(methods):
        # An algorithm with two sets of values has the combinations of each. Spaces cannot say so.
        reading.notes.append("an algorithm is named twice: all combinations of both are tried")
        return {"candidates": _candidates(methods, reading)}
    spaces = {one.kind: one.spaces for one in methods}
    asked: dict[str, Any] = {"techniques": kinds, "spaces": spaces, "only_asked": True}
    if search != "grid":
        asked["trials"] = sum(one.num_points for one in methods)
        reading.notes.append(
            f"the values make {asked['trials']} combination{'s' * (asked['trials'] != 1)}: "
            "no more candidates are tried"
        )
    return asked


def _candidates(methods: Sequence[_Method], reading: _Reading) -> tuple[Candidate, ...]:
    """All points of the methods' grids."""
    count = sum(one.num_points for one in methods)
    if count > _MOST_POINTS:
        refuse(
            reading.name,
            [Fault("methods", f"their grids have {count} points")],
            "give fewer values, or put those of the same algorithm into one method",
        )
    made: dict[str, Candidate] = {}
    for one in methods:
        for point in itertools.product(*one.spaces.values()):
            settings = dict(zip(one.spaces, point, strict=True))
            made.setdefault(
                repr((one.kind, settings)),
                Candidate(number=len(made), technique=one.kind, settings=settings, origin="grid"),
            )
    return tuple(made.values())


def _domain(plain: Mapping[str, Any], data: str, *, is_libsvm: bool) -> AskedDomain | None:
    """What is asked of the data; None where they have to say it."""
    asked = str(plain["domain"])
    if len(_DOMAINS[asked]) == 1:
        return _DOMAINS[asked][0]
    if asked == "deep-learning":  # its methods say of what
        names = [str(one["algorithm"]) for one in plain["methods"]]
        said = set(_DOMAINS[asked]).intersection(*(_said(it) or _DOMAINS[asked] for it in names))
        if "regression" in said:
            return "regression" if len(said) == 1 else None
    if not is_libsvm:
        return "classification"
    return "multiclass" if len(_first_labels(data, 3)) > 2 else "binary"


def _format_of(path: str) -> str:
    """What is in the file, whatever is said of it; empty where that cannot be told now."""
    from reparto.search._tables._read import open_source

    if not path or not Path(path).is_file():
        return ""
    try:
        return open_source(Path(path)).format
    except UsageError:  # the search will say what is wrong with it
        return ""


def _first_labels(path: str, most: int) -> set[str]:
    """Labels of a libsvm file, until there are so many different ones."""
    labels: set[str] = set()
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.partition("#")[0].split(maxsplit=1)
            if words:
                labels.add(words[0].removesuffix(".0").removeprefix("+"))
            if len(labels) >= most:
                break
    return labels
