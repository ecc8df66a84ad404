"""The scratch folder of a run: gone at its end, but for the logs of the last run that failed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

LOG_TAIL_BYTES = 4000


class Scratch:
    """A folder for one run: the assignment, and for each worker a log and a place of its own.

    Args:
        num_workers: How many workers there will be.
    """

    def __init__(self, num_workers: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="reparto-"))
        self.assignment = self.root / "assignment.json"
        for rank in range(num_workers):
            self.of_worker(rank).mkdir()

    def of_worker(self, rank: int) -> Path:
        """Name the private folder of a worker."""
        return self.root / f"rank-{rank}"

    def log(self, rank: int) -> Path:
        """Name the file that holds a worker's output."""
        return self.root / f"rank-{rank}.log"

    def tail(self, rank: int) -> str:
        """Return the end of a worker's output."""
        with contextlib.suppress(OSError), self.log(rank).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
        return ""

    def write_assignment(self, text: str) -> None:
        """Write what the workers shall run, for all of them to read."""
        self.assignment.write_text(text, encoding="utf-8")

    def remove(self, *, keep_logs: bool) -> str:
        """Remove the folder.

        Args:
            keep_logs: Move logs that are not empty to where the last failed run's are kept.

        Returns:
            Where the logs are now; empty if there are none.
        """
        kept = self._keep_logs() if keep_logs else ""
        shutil.rmtree(self.root, ignore_errors=True)
        return kept

    def _keep_logs(self) -> str:
        logs = [log for log in self.root.glob("rank-*.log") if log.stat().st_size > 0]
        if not logs:
            return ""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        kept = cache / "reparto" / "last-failure"
        try:
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for log in logs:
                shutil.move(log, kept / log.name)
        except OSError:
            return ""
        return str(kept)
