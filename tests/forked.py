"""Workers by fork: the local engine as it is, but torch is imported once for all of them.

A worker that is started afresh spends two seconds of processor time on importing torch. The sweep
over tests/scripts starts hundreds, so here a worker is a fork of the test process, which has
imported torch and what torch imports when the first optimizer is made. Everything after the start
is the engine's own code.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

import pytest
import torch
import torch._dynamo

from reparto.engines import _process
from reparto.errors import UsageError
from reparto.runtime import worker
from reparto.spec import Assignment, from_json


class ForkedProcess:
    """As much of `subprocess.Popen` as the engine uses."""

    def __init__(self, pid: int, stdout: IO[bytes] | None, stderr: IO[bytes] | None) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)


def _open(self, launch, cwd, env, inherited, scratch) -> ForkedProcess:
    assert launch.command[0] == sys.executable  # and not something that runs it elsewhere
    main = self.rank == 0
    pipes = [os.pipe(), os.pipe()] if main else []
    log = None if main else os.open(scratch.log(self.rank), os.O_WRONLY | os.O_CREAT)
    sys.stdout.flush()
    gc.freeze()  # a worker that collects garbage shall not look at all that is here
    # Of a thread that is being started just now, Python complains on the worker's standard error.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    pid = os.fork()
    sys.unraisablehook = hook
    if pid == 0:
        _become_worker(pipes, log, cwd, env, inherited)
    gc.unfreeze()
    for _, write in pipes:
        os.close(write)
    if log is not None:
        os.close(log)
    out, err = (os.fdopen(read, "rb", buffering=0) for read, _ in pipes) if main else (None, None)
    return ForkedProcess(pid, out, err)


def _become_worker(pipes, log, cwd, env, inherited) -> None:
    status = 1
    try:
        os.setsid()
        out, err = (pipes[0][1], pipes[1][1]) if pipes else (log, log)
        settle((os.open(os.devnull, os.O_RDONLY), out, err), cwd, env, keep=inherited)
        sys.path[:] = [path for path in sys.path if "tests" not in path]
        import __main__

        for name in [name for name in vars(__main__) if not name.startswith("__")]:
            delattr(__main__, name)
        status = worker.main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def settle(streams, cwd, env, *, keep=()) -> None:
    """Take what a process starts with: standard streams, open files, environment, handlers."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False)
    _close_others({0, 1, 2, *keep})
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # found anew, in this environment
    if cwd:
        os.chdir(cwd)
    for how in (signal.SIGINT, signal.SIGTERM):
        default = signal.SIG_DFL if how == signal.SIGTERM else signal.default_int_handler
        signal.signal(how, default)


def _close_others(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def warm_up() -> None:
    """Do once what every worker does first."""
    torch.set_num_threads(1)
    worker._warm_up()
    with contextlib.suppress(UsageError):
        from_json(Assignment, "{}")


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Start workers by fork while the block lasts."""
    warm_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_process.WorkerProcess, "_open", _open)
        yield
