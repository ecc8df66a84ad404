"""``--record FOLDER``: what the hosts of a run were busy with, printed and written."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from reparto.api import Watcher
from reparto.spec import to_plain


class Record:
    """Records one run, or does nothing.

    Call order: give ``watcher`` to the run, then ``finish``, or ``abandon`` where it was refused.

    Args:
        folder: For the files; None to record nothing.
        watcher: Is told what happens in the run.

    Attributes:
        watcher: Is to be told instead.
        every_s: How often hosts shall tell, see `Options.usage_every_s`.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        UsageError: If the folder cannot be made.
    """

    def __init__(self, folder: str | None, watcher: Watcher) -> None:
        self.watcher, self.every_s = watcher, 0.0
        if folder is None:
            return
        from reparto import sweep

        self._folder = Path(folder)
        self._is_new = not self._folder.exists()
        sweep.prepare(self._folder)
        self.watcher = self._recorder = sweep.Recorder(watcher)
        self.every_s = sweep.USAGE_EVERY_S

    def finish(self, script: str) -> dict[str, Any]:
        """Write the files, print one line a host, and return the same for ``--json``."""
        if not self.every_s:
            return {}
        from reparto import sweep

        recording = self._recorder.recording()
        if not recording.hosts:
            self.abandon()
            print("nothing was recorded: the script has not begun", file=sys.stderr)
            return {"usage": []}
        print(sweep.usage_table(recording), file=sys.stderr)
        try:
            for path in sweep.write_usage(recording, self._folder, script):
                print(f"wrote {os.path.relpath(path)}", file=sys.stderr)
        except OSError as error:  # the run itself is done: its result is still to be told
            print(f"the recording was not written: {error}", file=sys.stderr)
        return {"usage": [to_plain(host) for host in recording.summary()]}

    def abandon(self) -> None:
        """Leave no empty folder behind that was not there."""
        if self.every_s and self._is_new:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
