"""The keeper's process, as the crew sees it; it may be started before anyone knows its work.

reading the table …                    here
importing what its workers will need … there, at the same time
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

from reparto.search._local_keeper import MESSAGE_BYTES, Begin, Prepare
from reparto.search._work import Work

#: The keeper has so long to end all of its workers.
CLOSE_S = 10.0
_COMMAND = "from reparto.search._local_keeper import main; main()"
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB", "BLIS")


class KeeperProcess:
    """Starts at once, and waits for work.

    Args:
        threads: That each of its workers may use.
        early: Modules to import meanwhile, those that are there.

    Attributes:
        line: To it, for selectors.
    """

    def __init__(self, threads: int, early: Sequence[str] = ()) -> None:
        self._threads, self._is_closed = threads, False
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-c", _COMMAND, str(number)),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **{f"{it}_NUM_THREADS": str(threads) for it in _LIBRARIES}},
                pass_fds=[number],
                start_new_session=True,  # Ctrl-C ends us, and we end it
            )
        self.tell(Prepare(tuple(sys.path), tuple(early)))

    def begin(self, work: Work, memory_bytes: int | None) -> None:
        """Hand over what workers do.

        Raises:
            Exception: Whatever pickle raises.
        """
        packed = pickle.dumps(work, protocol=pickle.HIGHEST_PROTOCOL)
        with tempfile.TemporaryFile() as file:
            file.write(packed)
            file.seek(0)
            self.tell(Begin(self._threads, memory_bytes), file.fileno())

    def tell(self, message: Any, *files: int) -> None:
        """Send a message; if nobody is there any more, that will be heard."""
        with contextlib.suppress(OSError):
            socket.send_fds(self.line, [pickle.dumps(message)], files)

    def hear(self) -> Any:
        """The next message; None if the keeper is gone."""
        try:
            data = self.line.recv(MESSAGE_BYTES)
        except OSError:
            return None
        return pickle.loads(data) if data else None

    def said(self) -> str:
        """What it printed last."""
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 4096))
        return self._output.read().decode(errors="replace").strip()

    def close(self) -> None:
        """Let it end all of its workers, and wait until they are gone. Can be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self.line.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # and the kernel its workers
            self._process.wait()
        self._output.close()
