"""Memory that one step frees is kept for the next.

glibc hands blocks of more than 32 MiB back to the system as soon as they are freed, and so the end
of its heap where that is free. The next step takes the same memory again, and the kernel clears
each page of it when it is first touched: of a step that makes tensors of many megabytes, that may
be half of the time. Kept memory is the process's own already. No number changes.

Free memory within the heap is not given back while this lasts, and gaps between blocks may make
the heap larger than what it holds. So memory is kept only where there is plenty of it, and given
back when it becomes scarce.
"""

from __future__ import annotations

import ctypes
import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass

from reparto.measure import memory_left_bytes
from reparto.runtime._memory import Resident

#: A step that takes fewer pages from the system has nothing to gain.
WORTH_PAGES = 256
#: So much of what the process has and could have stays free.
SHARE_LEFT = 0.25
LOOK_EVERY_S = 1.0
#: Options of ``mallopt``.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
KEEPING = {MMAP_MAX: 0, TRIM_THRESHOLD: -1}
#: What glibc arrives at by itself where large blocks come and go.
GIVING_BACK = {MMAP_MAX: 2**16, TRIM_THRESHOLD: 2**26, MMAP_THRESHOLD: 2**25}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What the system says.

    Attributes:
        pages: So many were taken from it since the process began.
        resident_bytes: What the process has.
        peak_bytes: The most that it had.
        left_bytes: What it can still have; 0 if unknown.
    """

    pages: int
    resident_bytes: int
    peak_bytes: int
    left_bytes: int


def may_keep(memory: Memory) -> bool:
    """Whether there is plenty: the most that was needed so far fits twice."""
    return 2 * memory.peak_bytes <= memory.resident_bytes + memory.left_bytes


def is_scarce(memory: Memory) -> bool:
    """Whether memory had better be given back."""
    return memory.left_bytes < SHARE_LEFT * (memory.resident_bytes + memory.left_bytes)


class KeptMemory:
    """Keeps memory between steps.

    Call order: ``stepped`` after each step; ``give_back`` at the end.

    Args:
        look: Asks the system.
        set_option: ``mallopt``; None where the C library has none.
        trim: ``malloc_trim``.
    """

    def __init__(
        self,
        look: Callable[[], Memory],
        set_option: Callable[[int, int], int] | None,
        trim: Callable[[int], int] = lambda pad: 0,
    ) -> None:
        self._look, self._set_option, self._trim = look, set_option, trim
        self._pages = 0
        self._next_look = 0.0
        self.is_on = self._was_scarce = False
        self.is_over = set_option is None
        #: So many pages a step took from the system before its memory was kept; the most of all
        #: trainings.
        self.saved_pages = 0

    def stepped(self, number: int, now: float) -> None:
        """A training has stepped.

        Args:
            number: Its how manieth step it was, from 1.
            now: Seconds, by any clock.
        """
        if self.is_over:
            return
        if number == 1:
            self._pages = self._look().pages
        elif number == 2:
            self._next_look = now + LOOK_EVERY_S
            self._consider(self._look())
        elif self.is_on and now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            if is_scarce(self._look()):
                self._was_scarce = True
                self.give_back()

    def _consider(self, memory: Memory) -> None:
        taken = memory.pages - self._pages
        if taken < WORTH_PAGES or self.is_on or not may_keep(memory):
            return
        self.saved_pages = max(self.saved_pages, taken)
        self.is_on = self._set(KEEPING)

    def give_back(self) -> None:
        """Let the C library do as it always does, from now on."""
        self.is_over = True
        if self.is_on:
            self.is_on = False
            self._set(GIVING_BACK)
            self._trim(0)

    def _set(self, options: dict[int, int]) -> bool:
        assert self._set_option is not None
        return all([self._set_option(*option) == 1 for option in options.items()])

    def told(self) -> list[str]:
        """What the user should know at the end."""
        if not self.saved_pages:
            return []
        mib = self.saved_pages * resource.getpagesize() >> 20
        text = f"memory is kept between steps, {mib} MiB of which a step took from the system anew"
        return [f"{text}, until it became scarce" if self._was_scarce else text]


def kept_memory() -> KeptMemory:
    """That of this process."""
    process = Resident()

    def look() -> Memory:
        return Memory(
            pages=resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
            resident_bytes=process.resident_bytes(),
            peak_bytes=process.peak_bytes(),
            left_bytes=memory_left_bytes(),
        )

    if platform.libc_ver()[0] != "glibc":
        return KeptMemory(look, None)
    libc = ctypes.CDLL(None)
    return KeptMemory(look, libc.mallopt, libc.malloc_trim)
