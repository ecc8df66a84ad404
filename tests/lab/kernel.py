"""Labs of the kernel, for tests that may build them: names of their own, and what is left."""

import os
import subprocess
import uuid
from pathlib import Path

import pytest

from reparto.lab import Flags, lay_out, read_lab, this_machine
from reparto.lab._layout import bridge_name
from reparto.spec import Lab


def need_kernel() -> None:
    """Skip where networks cannot be built."""
    lacks = this_machine().lacks
    if lacks:
        pytest.skip(f"labs of the kernel cannot be built here: {lacks}")


def new_lab(nodes: int = 2, **of_host: object) -> Lab:
    """A lab whose name no other test has, in this process or beside it."""
    name = f"test-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    return read_lab(None, Flags(name=name, nodes=nodes, of_host=of_host))


def traces(lab: Lab) -> list[str]:
    """Namespaces, links, control groups and records that the machine has of a lab."""
    spaces = [path.name for path in Path("/run/netns").glob(f"reparto-{lab.name}[-.]*")]
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    links = [line for line in shown.stdout.splitlines() if f" {bridge_name(lab)}" in line]
    machine = this_machine()
    parents = {*machine.cpu_folders, machine.memory_folder} - {""}
    groups = [
        str(path) for parent in parents for path in Path(parent).glob(f"reparto-{lab.name}[-.]*")
    ]
    records = [str(path) for path in Path("/run/reparto-labs").glob(f"{lab.name}.json")]
    return [*spaces, *links, *groups, *records]


def clean(lab: Lab) -> None:
    """Take away what a test that failed has left."""
    for command in lay_out(lab, this_machine()).down if traces(lab) else ():
        subprocess.run(command, capture_output=True, check=False)
    Path(f"/run/reparto-labs/{lab.name}.json").unlink(missing_ok=True)
