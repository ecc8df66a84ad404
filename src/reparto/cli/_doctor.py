"""``reparto doctor``: what this machine and its network offer, with a remedy for each problem."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import add_json, new_parser

if TYPE_CHECKING:
    from reparto.measure import Facts, Problem

_EXAMPLE = """\
  reparto doctor
  reparto doctor --json -\
"""
_GIB = 1 << 30
_MARKS = {"error": ("red", "✗"), "warning": ("yellow", "!"), "note": ("cyan", "·")}


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "doctor", COMMANDS["doctor"], _EXAMPLE)
    add_json(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Examine the machine; 1 if reparto cannot work on it."""
    import sys

    from reparto.cli._output import write_json
    from reparto.cli._style import Style, columns
    from reparto.measure import diagnose, examine
    from reparto.spec import to_plain

    facts = examine()
    tasks, misunderstood = _task()
    problems = (*diagnose(facts), *misunderstood)
    if args.json != "-":
        style = Style(sys.stdout)
        print(style("bold", f"reparto doctor · {facts.host}"))
        print("\n".join(columns([*_rows(facts), *tasks])))
        for problem in problems:
            colour, mark = _MARKS[problem.severity]
            print(f"{style(colour, mark)} {problem.what}\n    → {problem.remedy}")
        if not problems:
            print(style("green", "nothing to remedy"))
    write_json(
        args.json,
        {"facts": to_plain(facts), "problems": [to_plain(problem) for problem in problems]},
    )
    return 1 if any(problem.severity == "error" for problem in problems) else 0


def _rows(facts: Facts) -> list[tuple[str, str]]:
    cores = f"{facts.num_cores} of {facts.num_cores_present}"
    memory = f"{facts.memory_free_bytes / _GIB:.1f} of {facts.memory_bytes / _GIB:.1f} GiB free"
    backends = ", ".join(facts.backends) or "none"
    rows = [
        ("system", f"{facts.system}, Python {facts.python}"),
        ("torch", f"{facts.torch or 'missing'}; workers talk over {backends}"),
        ("cores", cores),
        ("memory", f"{memory}; /dev/shm {facts.shm_bytes / _GIB:.1f} GiB"),
        ("scratch", f"{facts.scratch_free_bytes / _GIB:.1f} GiB free"),
    ]
    for index, gpu in enumerate(facts.gpus):
        rows.append((f"gpu {index}", f"{gpu.name}, {gpu.memory_bytes / _GIB:.0f} GiB"))
    if not facts.gpus:
        rows.append(("gpus", "none"))
    for interface in facts.interfaces:
        state = ", ".join(interface.addresses) or "no address"
        speed = f", {interface.mbits_per_s} Mbit/s" if interface.mbits_per_s else ""
        rows.append((interface.name, f"{state}{'' if interface.up else ', down'}{speed}"))
    rows.append(("peers see", facts.peer_address or "nothing"))
    return rows


def _task() -> tuple[list[tuple[str, str]], list[Problem]]:
    """What TF_CONFIG says to ``reparto run``, if it is set; or why that is not understood."""
    import os

    from reparto.engines import task_of
    from reparto.errors import UsageError
    from reparto.measure import Problem

    try:
        task = task_of(os.environ)
    except UsageError as error:
        return [], [Problem(severity="error", what=error.message, remedy=error.remedy)]
    told = [] if task is None else [("TF_CONFIG", task.told().removeprefix("TF_CONFIG: "))]
    return told, []
