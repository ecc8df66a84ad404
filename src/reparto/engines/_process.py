"""WorkerProcess: a worker as a process of this machine, in a session of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping
from signal import SIGKILL, Signals
from typing import Any

from reparto.engines._base import WorkerLaunch
from reparto.engines._scratch import Scratch
from reparto.engines._worker import Worker


class WorkerProcess(Worker):
    """A process with a rank, the pipes to it, and what is known of its end.

    Args:
        launch: What to start.
        cwd: In which folder; empty for the current one.
        env: What this run adds to the environment of all its workers.
        listen: A listening socket that the worker inherits.
        scratch: Where its log and its own folder are.
        outer: The environment to which all that is added; that of this process if not given.
    """

    def __init__(
        self,
        launch: WorkerLaunch,
        cwd: str,
        env: Mapping[str, str],
        listen: socket.socket | None,
        scratch: Scratch,
        outer: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(launch.rank, launch.host)
        events, events_fd = os.pipe()
        control_fd, self._control = os.pipe()
        inherited = [events_fd, control_fd]
        full_env = {
            **(os.environ if outer is None else outer),
            **env,
            **launch.env,
            "REPARTO_EVENTS": str(events_fd),
            "REPARTO_CONTROL": str(control_fd),
            "REPARTO_SCRATCH": str(scratch.of_worker(launch.rank)),
        }
        if listen is not None:
            inherited.append(listen.fileno())
            full_env["REPARTO_LISTEN_FD"] = str(listen.fileno())
        self.pipes = {"events": os.fdopen(events, "rb", buffering=0)}
        try:
            self._process = self._open(launch, cwd, full_env, inherited, scratch)
        finally:
            os.close(events_fd)
            os.close(control_fd)
        if self.rank == 0:
            assert self._process.stdout is not None and self._process.stderr is not None
            self.pipes |= {"stdout": self._process.stdout, "stderr": self._process.stderr}

    def _open(
        self,
        launch: WorkerLaunch,
        cwd: str,
        env: dict[str, str],
        inherited: list[int],
        scratch: Scratch,
    ) -> subprocess.Popen[bytes]:
        main = self.rank == 0
        with contextlib.ExitStack() as stack:
            log: Any = None if main else stack.enter_context(scratch.log(self.rank).open("wb"))
            return subprocess.Popen(
                launch.command,
                bufsize=0,
                stdin=None if main else subprocess.DEVNULL,
                stdout=subprocess.PIPE if main else log,
                stderr=subprocess.PIPE if main else subprocess.STDOUT,
                cwd=cwd or None,
                env=env,
                pass_fds=inherited,
                start_new_session=True,
            )

    def go(self) -> None:
        """Tell the worker that its assignment is there."""
        with contextlib.suppress(OSError):
            os.write(self._control, b"go\n")

    def has_died(self) -> bool:
        """Whether the process has ended; it is not reaped, so its number stays taken."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def reap(self, *, sweep: bool) -> None:
        """Take note of how the process ended; with ``sweep`` kill what it has left behind."""
        if sweep:
            self._kill_group(SIGKILL)
        self.status = self._process.wait()
        os.close(self._control)
        self._control = -1  # its number may be another file's by now

    def signal(self, how: Signals) -> None:
        """Send a signal: a polite one to the worker, SIGKILL to all that it started too."""
        if self.status is not None:
            return
        if how == SIGKILL:
            self._kill_group(how)
        else:  # not by Popen, which would reap it on the way
            os.kill(self._process.pid, how)

    def _kill_group(self, how: Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, how)
