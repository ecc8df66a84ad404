"""Device: what a measurement needs of the CPU or a GPU, the same for both.

GPU work is asynchronous: `wait` returns when all that was asked for is done. Only this file and
`_nvml` know of CUDA; nothing here touches a GPU that is not asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from reparto.bench._cells import DType
from reparto.bench._core import Anywhere, Core
from reparto.bench._environment import cpu_name
from reparto.bench._nvml import Nvml
from reparto.bench._watch import CpuWatch, GpuWatch
from reparto.errors import RepartoError, UsageError

_PEAK_S = 0.3  # of multiplying, for the peak of a device
_GPU_SIDE, _CPU_SIDE = 8192, 2048
_SAID = 200  # characters of an error


class Device:
    """A place where models are timed.

    Args:
        name: As torch names it, ``cpu`` or ``cuda:0``.

    Raises:
        UsageError: If there is no such device.
    """

    def __init__(self, name: str) -> None:
        try:
            self.torch = torch.device(name)
        except RuntimeError as error:
            raise UsageError(f"{name} is no device", remedy="give cpu or cuda:0") from error
        self.is_gpu = self.torch.type == "cuda"
        if self.torch.type not in ("cpu", "cuda"):
            raise UsageError(f"{name}: only cpu and cuda can be timed")
        if self.is_gpu:
            index = self.torch.index or 0
            if not torch.cuda.is_available() or index >= torch.cuda.device_count():
                raise UsageError(f"{name}: torch sees no such GPU", remedy="reparto doctor")
            torch.cuda.set_device(index)
        self.watch: CpuWatch | GpuWatch = (
            GpuWatch(Nvml(_uuid(self.torch))) if self.is_gpu else CpuWatch()
        )
        self.core = Core() if self.is_gpu and Core.possible() else Anywhere()
        self._base = 0

    @property
    def label(self) -> str:
        """As people name it."""
        return torch.cuda.get_device_name(self.torch) if self.is_gpu else cpu_name()

    @property
    def threads(self) -> int:
        """That compute on a CPU; 0 on a GPU."""
        return 0 if self.is_gpu else torch.get_num_threads()

    def wait(self) -> None:
        """Return when all is done that was asked for."""
        if self.is_gpu:
            torch.cuda.synchronize(self.torch)

    # -------------------------------------------------------------------------- memory

    def tidy(self) -> None:
        """Give back what earlier work has left, and count memory from here."""
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()
            self._base = torch.cuda.memory_allocated(self.torch)
        else:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)  # glibc
            self._base = _status_bytes("VmRSS")

    def begin_peak(self) -> None:
        """The most memory is looked for from here."""
        if self.is_gpu:
            torch.cuda.reset_peak_memory_stats(self.torch)
        else:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM

    def peak_bytes(self) -> int:
        """The most memory since `begin_peak`, beyond what there was at `tidy`."""
        if self.is_gpu:
            return torch.cuda.max_memory_allocated(self.torch) - self._base
        return max(0, _status_bytes("VmHWM") - self._base)

    # ----------------------------------------------------------------------- precision

    @contextlib.contextmanager
    def computing(self, dtype: DType) -> Iterator[None]:
        """Compute in that precision inside, with weights that stay as they are.

        Raises:
            UsageError: If the device cannot.
        """
        with self.precision(dtype), self.autocast(dtype):
            yield

    @contextlib.contextmanager
    def precision(self, dtype: DType) -> Iterator[None]:
        """Compute products in that precision inside, as far as the device is to be told.

        Raises:
            UsageError: If the device cannot.
        """
        if dtype == "tf32" and not self.is_gpu:
            raise UsageError("a CPU has no TF32")
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        if self.is_gpu:
            torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def autocast(self, dtype: DType) -> contextlib.AbstractContextManager[object]:
        """What torch itself is to be told, around each step: it keeps weights that it has cast."""
        if dtype != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.torch.type, torch.bfloat16)

    # -------------------------------------------------------------------------- graphs

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work on a stream of its own inside, as what is to be captured has to before."""
        if not self.is_gpu:
            yield
            return
        stream = torch.cuda.Stream(self.torch)
        stream.wait_stream(torch.cuda.current_stream(self.torch))
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream(self.torch).wait_stream(stream)

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """What launches all of that work at once.

        Raises:
            RepartoError: If it cannot be captured; the process is of no use afterwards.
        """
        if not self.is_gpu:
            raise UsageError("only a GPU's work can be captured")
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                work()
        except Exception as error:  # of a user's model; the end of a capture may raise another
            said = " ".join(str(_first(error)).split())[:_SAID]
            raise RepartoError(f"a step cannot be captured as a CUDA graph: {said}") from error
        return graph.replay

    def peak_flops(self, dtype: DType) -> float:
        """Multiplications and additions a second, measured with one large product."""
        side = _GPU_SIDE if self.is_gpu else _CPU_SIDE
        number = torch.bfloat16 if dtype == "bf16" else torch.float32
        left, right = (torch.randn(side, side, device=self.torch).to(number) for _ in range(2))
        times: list[float] = []
        with self.computing(dtype), torch.inference_mode():
            for _ in range(2):
                torch.mm(left, right)
            self.wait()
            until = time.perf_counter() + _PEAK_S
            while time.perf_counter() < until or len(times) < 5:
                began = time.perf_counter()
                torch.mm(left, right)
                self.wait()
                times.append(time.perf_counter() - began)
        return 2.0 * side**3 / min(times)


def share(flops_per_s: float, peak: float) -> float | None:
    """Of a device's peak; None where that is not known, or was disturbed when it was measured."""
    return flops_per_s / peak if flops_per_s and flops_per_s <= peak else None


def _first(error: BaseException) -> BaseException:
    while error.__context__ is not None:
        error = error.__context__
    return error


def _status_bytes(field: str) -> int:
    with contextlib.suppress(OSError):
        found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
        return int(found[1]) << 10 if found is not None else 0
    return 0


def _uuid(device: torch.device) -> str:
    properties: Any = torch.cuda.get_device_properties(device)
    uuid = str(getattr(properties, "uuid", ""))
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
