"""The start-up probe: a shadow process proves the first step equal, beside the run.

run:    step 1, step 2, step 3 ─────────────────────────────► …
probe:              └─ reparto verify --steps 1, at a low priority ─► equal: nothing
                                                                         ─► unequal: stop
                                                                         ─► no answer: a note
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reparto.spec import Job

AFTER_STEP = 2
LIMIT_S = 120.0
NICENESS = 10  # about a tenth of a busy core; at 19 there is no answer in time

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the probe found.

    Attributes:
        verdict: ``unknown`` where it came to no answer.
        text: For people, in a line.
    """

    verdict: Literal["equal", "unequal", "unknown"]
    text: str


class Probe:
    """Runs ``reparto verify --steps 1`` on a job's script, once, in the background.

    Args:
        job: What is run.
        num_workers: On how many workers.
    """

    def __init__(self, job: Job, num_workers: int) -> None:
        self._job = job
        self._num_workers = num_workers
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._until = 0.0
        self._over = num_workers < 2

    def begin(self) -> None:
        """Start it, unless it was started before."""
        if self._over or self._process is not None:
            return
        self._folder = tempfile.TemporaryDirectory(
            prefix="reparto-probe-", ignore_cleanup_errors=True
        )
        self._until = time.monotonic() + LIMIT_S
        self._process = subprocess.Popen(
            probe_command(self._job, self._num_workers, self._report),
            # Two sets of tensors may not fit on the GPU: the proof is made on the CPU. Killed, it
            # cannot tidy up, so all of its scratch lies in our folder.
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TMPDIR": self._folder.name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_us,
        )
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICENESS)

    def poll(self) -> Finding | None:
        """Return the finding once it is there; None before, and ever after."""
        if self._over or self._process is None:
            return None
        status = self._process.poll()
        if status is None and time.monotonic() < self._until:
            return None
        finding = read_finding(status, self._report)
        self.end()
        return finding

    @property
    def is_open(self) -> bool:
        """Whether it has been started and has no answer yet."""
        return self._process is not None and not self._over

    def end(self) -> None:
        """End it, whether or not it has an answer."""
        self._over = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def _report(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name, "report.json")


def probe_command(job: Job, num_workers: int, report: Path) -> list[str]:
    """The command that checks a job's first step."""
    options = ["--workers", str(num_workers), "--steps", "1", "--json", str(report)]
    options += ["--seed", str(job.options.seed), "--strategy", job.strategy]
    for name, value in job.settings.items():
        options += ["--set", f"{name}={json.dumps(value)}"]
    return [sys.executable, "-P", "-m", "reparto", "verify", *options, "--", job.script, *job.args]


def read_finding(status: int | None, report: Path) -> Finding:
    """Judge how the probe ended.

    Args:
        status: Its exit status; None if it took too long.
        report: Where it wrote its `VerifyResult`.
    """
    if status is None:
        return _unknown(f"it took longer than {LIMIT_S:.0f} s")
    try:
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return _unknown(f"it ended with status {status}")
    found = found.get("result") or found
    if found.get("verdict") == "unequal":
        return Finding(verdict="unequal", text=_what_differs(found))
    if found.get("verdict") == "equal":
        return Finding(verdict="equal", text="checked beside the run: the first step is equal")
    return _unknown(f"it ended with status {status}")


def _die_with_us() -> None:
    """Have the kernel kill this process with its parent."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _unknown(why: str) -> Finding:
    return Finding(verdict="unknown", text=f"the first step was not checked for equality: {why}")


def _what_differs(found: dict[str, Any]) -> str:
    divergence = found.get("divergence") or {}
    parts = [divergence.get(key) for key in ("place", "what", "hint")]
    return ": ".join(part for part in parts if part) or "the gradients of the first step differ"
