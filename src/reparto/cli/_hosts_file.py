"""Hosts that a file lists, for ``--hosts hosts.toml``: those that a command enters from here.

[[hosts]]
name = "left"
address = "198.18.0.1"                       # by which the others reach it
cores = 4
gpus = 1
memory = "16GiB"
enter = "ip netns exec left"                 # put before the command of its workers
"""

from __future__ import annotations

import argparse
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.errors import UsageError

if TYPE_CHECKING:
    from reparto.spec import Cluster, Host

_KEYS = frozenset(("name", "address", "cores", "gpus", "memory", "enter"))


def hosts_of(args: argparse.Namespace) -> Cluster | None:
    """The hosts that ``--hosts`` names; None for those of the engine.

    Raises:
        UsageError: If the file does not list hosts, or the engine has its own.
    """
    if not args.hosts:
        return None
    if args.engine not in ("", "local"):
        raise UsageError(
            f"--engine {args.engine} has hosts of its own",
            remedy="leave out --hosts, or take --engine local",
        )
    return read_hosts(Path(args.hosts))


def read_hosts(path: Path) -> Cluster:
    """The hosts of a file.

    Raises:
        UsageError: If there is no such file, or it does not list hosts; says where.
    """
    from reparto.spec import Cluster

    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy="give a file of hosts") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", remedy="correct it; it is TOML") from error
    tables = plain.get("hosts")
    if set(plain) != {"hosts"} or not isinstance(tables, list) or not tables:
        raise UsageError(f"{path}: no list of hosts", remedy="begin each one with [[hosts]]")
    hosts = tuple(_host(one, f"{path}: host {number}") for number, one in enumerate(tables, 1))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: two hosts are called {name}", remedy="rename one")
    return Cluster(hosts=hosts)


def _host(plain: Any, where: str) -> Host:
    from reparto.measure import num_cores
    from reparto.spec import Host, parse_size

    if not isinstance(plain, Mapping) or not plain.keys() <= _KEYS:
        unknown = ", ".join(sorted(set(plain) - _KEYS)) if isinstance(plain, Mapping) else plain
        known = ", ".join(sorted(_KEYS))
        raise UsageError(f"{where}: unknown {unknown}", remedy=f"a host has {known}")
    enter = plain.get("enter", [])
    try:
        prefix = shlex.split(enter) if isinstance(enter, str) else enter
    except ValueError:  # a quotation without an end
        prefix = None
    if not isinstance(prefix, list) or not all(isinstance(word, str) for word in prefix):
        raise UsageError(f"{where}: enter = {enter!r}", remedy="give a command, as a string")
    counts = {"cores": plain.get("cores", num_cores()), "gpus": plain.get("gpus", 0)}
    for key, least in (("cores", 1), ("gpus", 0)):
        value = counts[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError(f"{where}: {key} = {value!r}", remedy=f"give {least} or more")
    for key in ("name", "address"):
        if not isinstance(plain.get(key, "-"), str) or not plain.get(key, "-"):
            raise UsageError(f"{where}: {key} = {plain[key]!r}", remedy="give a string")
    if "name" not in plain:
        raise UsageError(f"{where}: it has no name", remedy='write name = "…"')
    return Host(
        name=plain["name"],
        address=plain.get("address", "127.0.0.1"),
        num_cores=counts["cores"],
        num_gpus=counts["gpus"],
        memory_bytes=parse_size(plain["memory"], f"{where}: memory") if "memory" in plain else 0,
        enter=tuple(prefix),
    )
