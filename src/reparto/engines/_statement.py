"""What a machine says that it is about to run, so that others can tell whether they do the same.

Each machine reads its own copy of the script and decides on its own. Nothing would fail at once
if two copies differed: the sums of their gradients would be of different models.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from reparto._version import __version__
from reparto.engines._tf_config import Peer
from reparto.spec import Assignment, Program, to_plain

Statement = Mapping[str, str]

_DIGEST = "sha256:"


def statement_of(assignment: Assignment, peers: Sequence[Peer]) -> Statement:
    """Say what will be run, by name; long texts as their digests.

    Left out is what may differ: threads, the script's folder, how slow a played line is, and
    whether a machine is watched. Whether there is one may not: messages over it are announced.
    """
    program, plan = assignment.program, assignment.plan
    return {
        "reparto": __version__,
        "torch": version("torch").partition("+")[0],  # whether it has CUDA, the device says
        "REPARTO_LINE": "set" if os.environ.get("REPARTO_LINE") else "not set",
        "hosts": " ".join(f"{peer.address}:{peer.port}" for peer in peers),
        "arguments": shlex.join(program.args),
        "workers": str(plan.num_workers),
        "strategy": f"{plan.strategy.kind} {_ordered(to_plain(plan.strategy)['settings'])}",
        "device": plan.device,
        **{f"option {key}": _ordered(value) for key, value in _options(assignment).items()},
        **_texts(program),
    }


def differences(first: Statement, second: Statement, names: tuple[str, str]) -> str:
    """Say in what two statements differ; empty if they do not.

    Args:
        first: What the first machine says.
        second: What the second says.
        names: How the two are called.
    """
    found = []
    for key in dict.fromkeys((*first, *second)):
        one, other = first.get(key), second.get(key)
        if one is None or other is None:
            found.append(f"{key} is used on {names[one is None]} only")
        elif one != other and one.startswith(_DIGEST):
            found.append(f"{key} is not the same text")
        elif one != other:
            found.append(f"{key}: {one or 'none'} on {names[0]}, {other or 'none'} on {names[1]}")
    return "; ".join(found)


def _ordered(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _options(assignment: Assignment) -> dict[str, Any]:
    options: dict[str, Any] = to_plain(assignment.options)
    options.pop("usage_every_s", None)  # each machine may watch itself, or not
    return options


def _texts(program: Program) -> dict[str, str]:
    folder = os.path.dirname(program.script)
    return {
        os.path.relpath(file.path, folder): _DIGEST
        + hashlib.sha256(file.original.encode(errors="surrogateescape")).hexdigest()
        for file in program.files
    }
