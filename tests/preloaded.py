"""Commands by fork: a Python that has imported torch already, and becomes what is asked for.

A command that shares out a training starts Python with torch several times over, which takes two
seconds of processor time each, before anything happens that a test is about. Here one process
imports torch, computes nothing, and is forked for each command and for each of its workers:

    test ──words, folder, environment, pipes──► server ──fork──► keeper ──fork──► command
      ◄─────────its number, and how it ended───────────────────────┘                 └─► workers

What a fork cannot show needs real processes: what is imported when, how much memory is taken, and
what else Python does before its first line. Workers compute with one thread each.
"""

from __future__ import annotations

import atexit
import gc
import mmap
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NUMBER = struct.Struct("i")


class Forked(subprocess.Popen):
    """A command that the server forks; for whoever starts it, a process as any other.

    Args:
        words: As after ``python``: a script, or ``-m`` and a module; and its arguments.
        mark: A file that all forked processes of the command have mapped, see `is_marked`.
        more: As of `subprocess.Popen`.
    """

    def __init__(self, words, mark="", **more):
        self._mark = str(mark)
        super().__init__([*map(str, words)], **more)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        handles = rest[3:9]  # the child's and ours, of each standard stream
        streams = [
            fd if fd >= 0 else number
            for number, fd in enumerate((handles[0], handles[3], handles[5]))
        ]
        asked = pickle.dumps((args, str(cwd), dict(env), self._mark))
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(_address())
        socket.send_fds(self._line, [_NUMBER.pack(len(asked))], streams)
        self._line.sendall(asked)
        self._close_pipe_fds(*handles)
        self.pid = self._told()
        self._child_created = True

    def _told(self):
        return _NUMBER.unpack(_received(self._line, _NUMBER.size))[0]

    def _try_wait(self, wait_flags):
        timeout_s = 0 if wait_flags & os.WNOHANG else None
        if not select.select([self._line], [], [], timeout_s)[0]:
            return 0, 0
        status = self._told()
        self._line.close()
        return self.pid, status

    def _internal_poll(self, *_, **__):
        with self._waitpid_lock:
            if self.returncode is None:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode


def run(words, *, cwd, env, timeout=200):
    """As `subprocess.run`; what the command prints is captured."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = Forked(words, cwd=cwd, env=env, text=True, **pipes)
    out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def is_marked(process, mark):
    """Whether a process, by its folder in /proc, is a fork for the command with that mark."""
    if b"tests.preloaded" not in (process / "cmdline").read_bytes().split(b"\0"):
        return False
    return str(mark) in (process / "maps").read_text()


@cache
def _address():
    """Where the server is asked; it is started now, and ends with this process."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")  # a name that Linux chooses
    listener.listen()
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.preloaded", str(listener.fileno())],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    atexit.register(server.communicate)
    return listener.getsockname()


def _received(line, size):
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            raise EOFError("the server has ended")
        data += more
    return data


# ---------------------------------------------------------------------------------- the server


def _serve(listener):
    """Wait for commands; return in each keeper, with the line to whoever has asked."""

    from reparto.engines import _process
    from tests import forked

    forked.warm_up()
    _process.WorkerProcess._open = forked._open
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how keepers end
    gc.freeze()
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        line, _ = listener.accept()
        if os.fork() == 0:
            return line
        line.close()
    return None


def _keep(line):
    """Tell how the command ends; return in its process, with what it shall be."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(line, _NUMBER.size, 3)
    asked = pickle.loads(_received(line, _NUMBER.unpack(size)[0]))
    pid = os.fork()
    if pid == 0:
        return streams, *asked
    try:
        for fd in streams:
            os.close(fd)
        line.sendall(_NUMBER.pack(pid))
        line.sendall(_NUMBER.pack(os.waitpid(pid, 0)[1]))
    finally:
        os._exit(0)  # also where the test does not listen any longer


def _become(streams, words, cwd, env, mark):
    """Be as Python is with these words."""
    from tests import forked

    status = 1
    try:
        forked.settle(streams, cwd, env)
        mapped = _mapped(mark) if mark else None  # and so it is in forks of this process
        given = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
        kept = [path for path in sys.path if path not in ("", str(ROOT), *given)]
        sys.path[:] = [*given, *kept]
        sys.argv = words
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if not isinstance(leaving.code, int | None):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        del mapped
        os._exit(status)


def _mapped(path):
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


if __name__ == "__main__":
    found = _serve(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        _become(*_keep(found))  # no loop stands around it: a survey looks for those of scripts
