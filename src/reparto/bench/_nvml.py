"""Nvml: clocks, throttling and energy of a GPU, from the driver's own library.

Through ctypes: the library comes with the driver, its Python package may be absent. Each question
takes some microseconds, so that it can be asked right before and right after the work.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_SM_CLOCK = 1
#: Why a GPU runs below its clocks, by the driver's bits; idle and set clocks are no reasons.
HOT, POWER = 0x8 | 0x20 | 0x40 | 0x80, 0x4


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """A GPU at one moment; None where the driver does not tell.

    Attributes:
        clock_mhz: Of its processors.
        max_clock_mhz: The highest.
        reasons: Bits that say why it is slower, see `HOT` and `POWER`.
        energy_j: Since the driver was loaded.
    """

    clock_mhz: int | None = None
    max_clock_mhz: int | None = None
    reasons: int | None = None
    energy_j: float | None = None


class Nvml:
    """Knows one GPU.

    Args:
        uuid: Of the GPU, as ``GPU-…``.
        library: What is asked; the driver's library if not given.
    """

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._handle: ctypes.c_void_p | None = None
        try:
            self._library = library or ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            if self._library.nvmlInit_v2() == 0 and (
                self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0
            ):
                self._handle = handle
        except (OSError, AttributeError):  # no driver, or one that is too old
            return

    def state(self) -> GpuState:
        """What it does right now."""
        energy_mj = self._ask("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())
        return GpuState(
            clock_mhz=self._ask("nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM_CLOCK),
            max_clock_mhz=self._ask("nvmlDeviceGetMaxClockInfo", ctypes.c_uint(), _SM_CLOCK),
            reasons=self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong()),
            energy_j=None if energy_mj is None else energy_mj / 1000,
        )

    def _ask(self, name: str, answer: Any, *args: int) -> int | None:
        if self._handle is None:
            return None
        try:
            status = getattr(self._library, name)(self._handle, *args, ctypes.byref(answer))
        except AttributeError:
            return None
        return int(answer.value) if status == 0 else None
