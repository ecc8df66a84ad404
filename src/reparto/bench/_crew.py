"""Crew: the process that measures, seen from the outside.

One process measures many cells, since importing torch and making a model take longer than timing
it. After a failure, on another device, or when it has died, a fresh one takes over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from reparto.bench._cells import Cell
from reparto.bench._environment import threads
from reparto.bench._failures import failed
from reparto.bench._worker import row_of
from reparto.spec import Measurement

#: A cell that takes longer is ended; the largest take half a minute on sixteen cores.
LIMIT_S = 900.0
LOG = "worker.log"
#: Failures after which a process is not what it was.
_STICKS = re.compile(r"memory|CUDA|cuDNN|Accelerator", re.IGNORECASE)
COMMAND = (sys.executable, "-P", "-m", "reparto.bench._worker")


class Crew:
    """Measures cells in a process beside this one.

    Args:
        folder: Where what that process prints is kept.
        command: What is started.
        limit_s: For a cell.
    """

    def __init__(
        self, folder: Path, command: Sequence[str] = COMMAND, limit_s: float = LIMIT_S
    ) -> None:
        self._log = folder / LOG
        self._command, self._limit_s = list(command), limit_s
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._device = ""
        self.peaks: dict[str, float] = {}

    def measure(self, cell: Cell) -> Measurement:
        """Measure one cell; a process that dies of it is a row that says so."""
        return self._ask(cell)

    def _ask(self, cell: Cell, trace: str = "") -> Measurement:
        if self._process is None or self._device != cell.device:
            self._renew(cell.device)
        assert self._process is not None and self._process.stdin is not None
        where = f"{cell.device} {cell.dtype}"
        asked = {"cell": dataclasses.asdict(cell), "peak": self.peaks.get(where, 0.0)}
        asked["trace"] = trace
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=self._limit_s)
        except queue.Empty:
            self.close()
            return failed(cell, f"it took longer than {self._limit_s:g} s, and was ended")
        except OSError:
            line = ""
        if not line:
            return failed(cell, self._death())
        told = json.loads(line)
        row = row_of(told["row"])
        if told["peak"]:
            self.peaks[where] = told["peak"]
        if _STICKS.search(row.failure):  # what it has left behind is not known
            self.close()
        return row

    def trace(self, cell: Cell, folder: Path) -> tuple[str, ...]:
        """Trace a step of a cell's model; in words, which operations took the time."""
        row = self._ask(cell, trace=str(folder.absolute()))
        return row.notes if not row.failure else (row.failure,)

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()

    def _renew(self, device: str) -> None:
        self.close()
        self._device, self._lines = device, queue.Queue()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C ends us, and we end it
                env={**os.environ, **_same_each_time()},
            )
        threading.Thread(
            target=_listen, args=(self._process, self._lines), name="reparto-bench", daemon=True
        ).start()

    def _death(self) -> str:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10.0)
        status = self._process.returncode
        self.close()
        if status is not None and status < 0:
            name = signal.Signals(-status).name
            memory = ", as the system does when memory runs out" if name == "SIGKILL" else ""
            return f"the process that measured was killed by {name}{memory}"
        return f"the process that measured left with status {status}; see {self._log.name}"


def _same_each_time() -> dict[str, str]:
    """Threads as they are told in the environment, and dictionaries that collide the same way."""
    return {"OMP_NUM_THREADS": str(threads()), "PYTHONHASHSEED": "0"}


def _listen(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(ValueError, OSError):  # closed meanwhile
        for line in process.stdout:
            lines.put(line)
    lines.put("")
