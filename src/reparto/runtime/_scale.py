"""How much memory steps take, by the rows of their slices."""

from __future__ import annotations

import contextlib
import ctypes

import torch

from reparto.runtime._memory import Resident


class Scale:
    """Weighs steps: the most memory that each one needed.

    Between steps the heap is given back to the system, so that a small step after a large one is
    not weighed with what that one has left.

    Args:
        idle_bytes: What the process had before the script began.
    """

    def __init__(self, idle_bytes: int) -> None:
        self._idle_bytes = idle_bytes
        self._process = Resident()
        self._peaks: dict[int, int] = {}
        self.num_weighed = -1  # the first one began before the scale was set
        self._reset()

    def weigh(self, rows: int) -> None:
        """A step with so many rows has ended."""
        if self.num_weighed >= 0:
            self._peaks[rows] = max(self._peaks.get(rows, 0), self._peak_bytes())
        self.num_weighed += 1
        self._reset()

    def fit(self) -> tuple[int, float]:
        """Bytes that do not depend on the rows, and bytes that each row adds."""
        if not self._peaks:
            return 0, 0.0
        few, many = min(self._peaks), max(self._peaks)
        if few == many:
            return self._peaks[few], 0.0
        a_row = max(0.0, (self._peaks[many] - self._peaks[few]) / (many - few))
        return max(0, round(self._peaks[many] - a_row * many)), a_row

    def _peak_bytes(self) -> int:
        if torch.cuda.is_initialized():
            return int(torch.cuda.max_memory_allocated())
        return self._process.peak_bytes() - self._idle_bytes

    def _reset(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
            return
        with contextlib.suppress(OSError, AttributeError):  # not the C library of GNU
            ctypes.CDLL(None).malloc_trim(0)
        self._process.begin()


def resident_bytes() -> int:
    """Memory that this process has now."""
    return Resident().resident_bytes()
