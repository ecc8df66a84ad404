"""Times inference: a call goes from numbers on the host to an answer on the host.

    eager     the model as it is                     compiled  torch.compile
    exported  torch.export, then run                 onnx      ONNX Runtime, where it is installed

A form is made once for a model, for any number of samples. On a GPU only calls count during which
the processor's core was calm, but for p99: what is in time is so on a busy machine too.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from reparto.bench._cells import Cell
from reparto.bench._core import Anywhere
from reparto.bench._device import Device, share
from reparto.bench._statistics import interval, median, percentile
from reparto.bench._stretches import Stretches
from reparto.bench._subject import Subject
from reparto.errors import MissingExtraError, UsageError
from reparto.spec import Measurement

TIMED_S = 0.15
GPU_TIMED_S, GPU_MOST_S = 0.1, 0.3  # calm and at all
_STRETCH_S = 0.01
MIN_CALLS = 20
SLOW_S, SLOW_CALLS = 1.0, 3  # of calls that take longer, so few will do
_ROOM = 0.9  # of a deadline: 99 of 100 calls are to meet it, and one is tried
_MOST_ROWS = 1 << 20

Answer = Callable[[Tensor], object]


class Forms:
    """The forms of one model on one device; each is made when it is first asked for.

    Args:
        subject: The model.
        device: Where.
    """

    def __init__(self, subject: Subject, device: Device) -> None:
        self._subject, self.device = subject, device
        self._made: dict[tuple[str, str], Answer] = {}

    def get(self, form: str, dtype: str) -> Answer:
        """What answers a call."""
        if (form, dtype) not in self._made:
            self._made.clear()  # the forms of large models do not fit beside each other
            self.device.tidy()  # memory counts from here: weights are part of a call's
            self._made[form, dtype] = self._make(form, dtype)
        return self._made[form, dtype]

    def _make(self, form: str, dtype: str) -> Answer:
        if form == "onnx":
            if dtype != "f32":
                raise UsageError("the ONNX form computes in f32 only")
            return self._onnx()
        target = self.device.torch
        model = self._subject.model(target).eval().requires_grad_(False)
        if form == "compiled":
            torch._dynamo.reset()
            model = torch.compile(model, dynamic=True)  # type: ignore[assignment]
        elif form == "exported":
            model = self._exported(model).module()
        return lambda x: model(x.to(target)).cpu()

    def _exported(self, model: torch.nn.Module) -> torch.export.ExportedProgram:
        rows = torch.export.Dim("rows", min=1, max=_MOST_ROWS)
        example = self._subject.x[:2].to(self.device.torch)
        return torch.export.export(model, (example,), dynamic_shapes=({0: rows},))

    def _onnx(self) -> Answer:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "bench") from error
        name = "CUDAExecutionProvider" if self.device.is_gpu else "CPUExecutionProvider"
        if name not in onnxruntime.get_available_providers():
            where = "no GPU" if self.device.is_gpu else "no CPU"
            raise UsageError(f"the ONNX Runtime that is installed computes on {where}")
        model = self._subject.model(torch.device("cpu")).eval()
        rows = {0: torch.export.Dim("rows", min=1, max=_MOST_ROWS)}
        with tempfile.TemporaryDirectory(prefix="reparto-bench-") as folder:
            path = f"{folder}/model.onnx"
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    model, (self._subject.x[:2],), path, dynamo=True, dynamic_shapes=(rows,)
                )
            options = {"use_tf32": 0} if self.device.is_gpu else {}
            session = onnxruntime.InferenceSession(path, providers=[(name, options)])
        taken = session.get_inputs()[0].name
        return lambda x: session.run(None, {taken: x.numpy()})


def infer(subject: Subject, cell: Cell, forms: Forms, peak_flops: float) -> Measurement:
    """Measure the latency of calls with so many samples.

    Args:
        subject: The model.
        cell: The form, the number of samples.
        forms: Of this model on one device.
        peak_flops: What the device can do in a second; 0.0 if not known.
    """
    device = forms.device
    answer = forms.get(cell.form, cell.dtype)
    x = rows_of(subject.x, cell.batch_rows)
    device.begin_peak()
    with torch.inference_mode(), device.computing(cell.dtype):
        _warm_up(answer, x)  # not held: what compiles may need all cores
        with device.core.held():
            if device.is_gpu:
                _warm_up(answer, x)
            device.watch.begin()
            began = time.perf_counter()
            kept = latencies(answer, x, _room(device), device.core)
            elapsed_s = time.perf_counter() - began
    seen = device.watch.end()
    times = kept.times
    step_s = median(times)
    low_s, high_s = interval(times)
    flops = subject.flops(cell.batch_rows, train=False)
    every = len(kept.every)
    few = (f"p99 of {every} calls: the slowest of them",) if every < 100 else ()
    return Measurement(
        work=subject.work(cell),
        hidden=subject.hidden,
        mode="infer",
        form=cell.form,
        device=cell.device,
        device_name=device.label,
        threads=device.threads,
        dtype=cell.dtype,
        num_steps=every,
        step_s=step_s,
        low_s=low_s,
        high_s=high_s,
        p99_s=percentile(kept.every, 0.99),
        samples_per_s=cell.batch_rows / step_s,
        flops_a_step=flops,
        share_of_peak=share(flops / step_s, peak_flops),
        peak_bytes=device.peak_bytes(),
        energy_j=seen.energy_j * step_s / elapsed_s if seen.energy_j is not None else None,
        flags=kept.marked(seen.flags),
        notes=(*seen.notes, *device.core.notes, *kept.notes, *few),
    )


def _warm_up(answer: Answer, x: Tensor) -> None:
    for _ in range(3):  # the first one may compile
        began = time.perf_counter()
        answer(x)
        if time.perf_counter() - began > SLOW_S:
            break


def _room(device: Device) -> Stretches:
    return Stretches(*((GPU_TIMED_S, GPU_MOST_S) if device.is_gpu else (TIMED_S, TIMED_S)))


def latencies(answer: Answer, x: Tensor, kept: Stretches, core: Anywhere) -> Stretches:
    """Seconds of each of several calls."""
    calm = core.calm()
    while True:
        slow = kept.every and kept.every[0] > SLOW_S
        done = kept.enough and len(kept.every) >= (SLOW_CALLS if slow else MIN_CALLS)
        if done and not kept.extended(core.patience_s):
            return kept
        times: list[float] = []
        while sum(times) < _STRETCH_S:
            began = time.perf_counter()
            answer(x)
            times.append(time.perf_counter() - began)
        before, calm = calm, core.calm()
        kept.add(times, sum(times), counts=before and calm)


def rows_of(x: Tensor, count: int) -> Tensor:
    """So many samples, over and over again if there are fewer."""
    if count <= len(x):
        return x[:count]
    times = -(-count // len(x))
    return x.repeat(times, *(1 for _ in x.shape[1:]))[:count]


def in_time(subject: Subject, cell: Cell, forms: Forms, rows: int, limit_s: float) -> bool:
    """Whether a call with so many samples is well within a time, the second of two calls."""
    answer = forms.get(cell.form, cell.dtype)
    x = rows_of(subject.x, rows)
    with torch.inference_mode(), forms.device.computing(cell.dtype):
        answer(x)
        began = time.perf_counter()
        answer(x)
        return time.perf_counter() - began <= _ROOM * limit_s
