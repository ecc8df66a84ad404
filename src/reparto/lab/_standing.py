"""Builds labs and takes them down.

What stands is written down before it is made: a crash leaves nothing that `down` does not know of.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reparto.errors import LabError, UsageError
from reparto.lab._layout import Command, Layout, lay_out
from reparto.lab._machine import this_machine
from reparto.spec import Lab, from_json, to_json


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A lab that was built.

    Only what was asked for is kept: commands that a file holds are not carried out.

    Attributes:
        lab: What was asked for.
        kind: How it was built.
        pid: Of the command that will take it down at its end; 0 if a person will.
    """

    lab: Lab
    kind: Literal["kernel", "emulated"]
    pid: int = 0

    @property
    def layout(self) -> Layout:
        """What it is made of."""
        return lay_out(self.lab, this_machine(), emulate=self.kind == "emulated")

    @property
    def is_abandoned(self) -> bool:
        """Whether the command that was to take it down is gone."""
        return self.pid != 0 and not _is_alive(self.pid)


def up(lab: Lab, *, emulate: bool = False, pid: int = 0) -> Layout:
    """Build a lab.

    Args:
        lab: What is asked for.
        emulate: Leave the kernel out of it, also where it could.
        pid: Of the command that will take it down at its end; 0 if a person will.

    Raises:
        UsageError: If a lab of that name stands already.
        LabError: If a command fails; what was made is taken away.
    """
    down_abandoned()
    if find(lab.name) is not None:
        raise UsageError(
            f"the lab {lab.name} is up already",
            remedy=f"take it down with reparto lab down {lab.name}, or give --name",
        )
    layout = lay_out(lab, this_machine(), emulate=emulate)
    _write_down(Standing(lab=lab, kind=layout.kind, pid=pid))
    try:
        for command in layout.up:
            _do(command)
    except BaseException:
        _take_down(layout)
        raise
    return layout


def _write_down(standing: Standing) -> None:
    """Where there is a record already, somebody else builds the same lab just now."""
    path = _path(standing.lab.name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(path.parent):
        raise LabError(f"{path.parent} belongs to somebody else", remedy="set XDG_RUNTIME_DIR")
    try:
        with path.open("x") as record:
            record.write(to_json(standing))
    except FileExistsError as error:
        raise UsageError(
            f"the lab {standing.lab.name} is up already, or its record {path} cannot be read",
            remedy=f"take it down with reparto lab down {standing.lab.name}, or give --name",
        ) from error


def down(name: str) -> bool:
    """Take a lab down; False if none of that name stands."""
    found = find(name)
    if found is None:
        return False
    _take_down(found.layout)
    return True


def unreadable() -> list[Path]:
    """Records of labs that another version, or a full disk, has left."""
    known = {one.lab.name for one in standing()}
    return [path for path in sorted(_folder().glob("*.json")) if path.stem not in known]


def down_abandoned() -> list[str]:
    """Take down what crashed commands have left; the names."""
    left = [one.layout for one in standing() if one.is_abandoned]
    for layout in left:
        _take_down(layout)
    return [layout.lab.name for layout in left]


def find(name: str) -> Standing | None:
    """The lab of that name, if it stands."""
    return next((one for one in standing() if one.lab.name == name), None)


def standing() -> list[Standing]:
    """Every lab that stands, or that a crash has left half built."""
    found = []
    for path in sorted(_folder().glob("*.json")) if _is_ours(_folder()) else ():
        with contextlib.suppress(OSError, ValueError, UsageError):
            found.append(from_json(Standing, path.read_text()))
    return found


@contextlib.contextmanager
def stand(lab: Lab, *, emulate: bool = False) -> Iterator[Layout]:
    """A lab for as long as the block: one that stands already is used, and left standing.

    Raises:
        UsageError: If one of that name stands that is another.
        LabError: If it cannot be built.
    """
    found = find(lab.name)
    if found is not None and not found.is_abandoned:
        if found.lab != lab or (emulate and found.kind == "kernel"):
            raise UsageError(
                f"the lab {lab.name} is up, with other settings",
                remedy=f"take it down with reparto lab down {lab.name}, or give --name",
            )
        yield found.layout
        return
    layout = up(lab, emulate=emulate, pid=os.getpid())
    try:
        yield layout
    finally:
        _take_down(layout)


def _take_down(layout: Layout) -> None:
    """Take everything away; the record stays as long as something is left."""
    for command in layout.down:
        subprocess.run(command, capture_output=True, check=False)
    left = [name for name in layout.leaves() if Path(name).exists()]
    if left:
        raise LabError(
            f"the lab {layout.lab.name} is not quite down: {left[0]} is left",
            remedy="something still runs in it; try reparto lab down again in a moment",
        )
    _path(layout.lab.name).unlink(missing_ok=True)


def _do(command: Command) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["no reason told"])[-1]
        raise LabError(
            f"{shlex.join(command)}: {told}",
            remedy="reparto lab down cleans what an earlier crash left; --emulate does without "
            "the kernel",
        )


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can have written what lies there."""
    return folder.is_dir() and folder.stat().st_uid == os.geteuid()


def _path(name: str) -> Path:
    return _folder() / f"{name}.json"


def _folder() -> Path:
    if os.geteuid() == 0:
        return Path("/run/reparto-labs")
    own = os.environ.get("XDG_RUNTIME_DIR")
    if own:
        return Path(own, "reparto-labs")
    return Path(tempfile.gettempdir(), f"reparto-labs-{os.geteuid()}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
