"""Reads a lab: from a small file, from flags, or from a file with flags that override it.

nodes = 4              as many hosts, all alike: node-1, node-2, …
rate = "100mbit"       each way; or up = "…" and down = "…"
cpu = 0.45             cores' worth of time
memory = "2GiB"
delay = "5ms"          of what a host sends; jitter = "1ms", loss = 0.01

[[hosts]]              instead of nodes: hosts by name; what stands above holds where a host
name = "old"           says nothing else
cpu = 0.2

[[links]]              a way that is narrower than the two lines
between = ["old", "new"]
rate = "10mbit"
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reparto import spec
from reparto.errors import UsageError
from reparto.spec import Lab, LabHost, LabLink, Line, parse_size, parse_time, rate_text

MAX_HOSTS = 250
LEAST_RATE = 256e3
DEFAULT_NAME = "lab"

_OF_HOST = frozenset("rate up down cpu memory delay jitter loss".split())
_OF_LAB = _OF_HOST | {"name", "nodes", "hosts", "links"}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command line says; None where it says nothing.

    Attributes:
        name: Of the lab.
        nodes: Number of hosts.
        of_host: Keys of a host, as a file would have them.
    """

    name: str | None = None
    nodes: int | None = None
    of_host: Mapping[str, Any]


def read_lab(path: Path | None, flags: Flags) -> Lab:
    """The lab that a file and flags describe.

    Raises:
        UsageError: If there is no such file, or it does not describe a lab; says where.
    """
    plain = _parsed(path) if path is not None else {}
    where = str(path) if path is not None else "the command line"
    _known(plain, _OF_LAB, where)
    given = {key: value for key, value in flags.of_host.items() if value is not None}
    if flags.nodes is not None:
        plain = {**plain, "nodes": flags.nodes}
        plain.pop("hosts", None)
    common = {key: plain[key] for key in _OF_HOST & plain.keys()}
    hosts = tuple(
        _host({**common, **one, **given}, f"{where}: {one['name']}")
        for one in _hosts(plain, where)
    )
    name = plain.get("name", path.stem if path is not None else DEFAULT_NAME)
    lab = Lab(
        name=_name(name if flags.name is None else flags.name, where),
        hosts=hosts,
        links=tuple(_link(one, where) for one in _tables(plain, "links", where)),
    )
    _consistent(lab, where)
    return lab


def parse_rate(text: Any, where: str = "rate") -> float | None:
    """Bits a second that a lab can be held to; ``none`` is no limit.

    Raises:
        UsageError: If it is no rate, or one that is too low.
    """
    rate = spec.parse_rate(text, where)
    if rate is not None and rate < LEAST_RATE:
        raise UsageError(
            f"{where}: {text!r} is below {rate_text(LEAST_RATE)}, at which a lab is not tried",
            remedy="write it as 10mbit or 1gbit",
        )
    return rate


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", remedy="give a lab's file, or --nodes, --rate, --cpu"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", remedy="correct it; it is TOML") from error


def _hosts(plain: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """One table a host, each with a name."""
    tables = _tables(plain, "hosts", where)
    if tables:
        if "nodes" in plain and plain["nodes"] != len(tables):
            raise UsageError(
                f"{where}: nodes = {plain['nodes']}, but there are {len(tables)} hosts",
                remedy="leave out nodes",
            )
        for number, one in enumerate(tables, 1):
            _known(one, _OF_HOST | {"name"}, f"{where}: host {number}")
        return [
            {**one, "name": _name(one.get("name", f"node-{number}"), where)}
            for number, one in enumerate(tables, 1)
        ]
    nodes = plain.get("nodes")
    if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= MAX_HOSTS:
        raise UsageError(
            f"{where}: " + ("no hosts" if nodes is None else f"nodes = {nodes!r}"),
            remedy=f"give nodes (--nodes), from 1 to {MAX_HOSTS}, or [[hosts]] in the file",
        )
    return [{"name": f"node-{number}"} for number in range(1, nodes + 1)]


def _host(plain: Mapping[str, Any], where: str) -> LabHost:
    both = plain.get("rate", "none")
    cpu = plain.get("cpu")
    if cpu is not None and not (_is_number(cpu) and 0.01 <= cpu <= 1024):
        raise UsageError(
            f"{where}: cpu = {cpu!r}", remedy="give cores' worth of time, such as 0.45 or 2"
        )
    loss = plain.get("loss", 0.0)
    if not (_is_number(loss) and 0 <= loss < 1):
        raise UsageError(f"{where}: loss = {loss!r}", remedy="give a share, such as 0.01")
    line = Line(
        up_bits_per_s=parse_rate(plain.get("up", both), f"{where}: up"),
        down_bits_per_s=parse_rate(plain.get("down", both), f"{where}: down"),
        delay_s=parse_time(plain.get("delay", "0s"), f"{where}: delay"),
        jitter_s=parse_time(plain.get("jitter", "0s"), f"{where}: jitter"),
        loss=float(loss),
    )
    if line.jitter_s > line.delay_s:
        raise UsageError(
            f"{where}: a jitter of {line.jitter_s:g} s around a delay of {line.delay_s:g} s",
            remedy="give a delay that is at least as long",
        )
    return LabHost(
        name=plain["name"],
        line=line,
        cpu=None if cpu is None else float(cpu),
        memory_bytes=parse_size(plain.get("memory", "0"), f"{where}: memory"),
    )


def _link(plain: Mapping[str, Any], where: str) -> LabLink:
    _known(plain, {"between", "rate"}, f"{where}: links")
    between = plain.get("between")
    names = [one for one in between if isinstance(one, str)] if isinstance(between, list) else []
    if not (isinstance(between, list) and len(names) == len(between) == len(set(names)) == 2):
        raise UsageError(
            f"{where}: links: between = {between!r}", remedy='write between = ["a", "b"]'
        )
    rate = parse_rate(plain.get("rate", "none"), f"{where}: links: rate")
    if rate is None:
        raise UsageError(f"{where}: links: no rate", remedy='write rate = "10mbit"')
    return LabLink(between=(names[0], names[1]), rate_bits_per_s=rate)


def _consistent(lab: Lab, where: str) -> None:
    names = Counter(host.name for host in lab.hosts)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise UsageError(f"{where}: two hosts are called {twice[0]}", remedy="rename one")
    if len(lab.hosts) > MAX_HOSTS:
        raise UsageError(f"{where}: {len(lab.hosts)} hosts", remedy=f"at most {MAX_HOSTS}")
    for link in lab.links:
        for name in link.between:
            if name not in names:
                raise UsageError(
                    f"{where}: links: there is no host {name!r}",
                    remedy=f"one of {', '.join(names)}",
                )


def _tables(plain: Mapping[str, Any], key: str, where: str) -> list[Mapping[str, Any]]:
    tables = plain.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise UsageError(f"{where}: {key} is no list of tables", remedy=f"write [[{key}]]")
    return tables


def _known(plain: Mapping[str, Any], keys: frozenset[str] | set[str], where: str) -> None:
    unknown = sorted(plain.keys() - keys)
    if unknown:
        raise UsageError(
            f"{where}: there is no key {unknown[0]!r}", remedy=f"one of {', '.join(sorted(keys))}"
        )


def _name(text: Any, where: str) -> str:
    name = str(text)
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38}[A-Za-z0-9])?", name):
        raise UsageError(
            f"{where}: {name!r} is no name for a lab or a host",
            remedy="letters, digits and hyphens, at most 40",
        )
    return name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
