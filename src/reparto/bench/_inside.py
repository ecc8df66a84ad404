r"""Runs a user's script under a profiler, and leaves it after some steps.

    python -m reparto.bench._inside FOLDER SCRIPT ARGS…

    script ──► Optimizer.step ── hook: 3 steps warm-up │ 20 timed │ 1 traced │ leave (SystemExit)
           └─► first module that is called ── hook: the graph that TensorBoard draws

The script is not edited.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from reparto.bench._statistics import median
from reparto.bench._tensorboard import write_logs
from reparto.bench._trace import LOGGED, TRACED, WARM_UP, finish, profiler
from reparto.bench._traces import WORDS


class Inside:
    """Counts the steps of a script that runs, and traces one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._first: Any = None
        self._times: list[float] = []
        self._before = time.perf_counter()
        self._called: tuple[Any, Any] | None = None
        self._profiler: Any = None

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has stepped; the first one counts."""
        self._first = self._first or optimizer
        if optimizer is not self._first:
            return
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._made += 1
        if WARM_UP < self._made <= WARM_UP + LOGGED:
            self._times.append(now - self._before)
        if self._made == WARM_UP + LOGGED:
            self._profiler = profiler()
            self._profiler.__enter__()
        if self._made == WARM_UP + LOGGED + TRACED:
            raise SystemExit(0)
        self._before = time.perf_counter()

    def called(self, module: Any, args: Any) -> None:
        """A module is called; the first one of all is the model."""
        if self._called is None and args and all(isinstance(one, torch.Tensor) for one in args):
            self._called = (module, tuple(one.detach() for one in args))

    def finish(self) -> None:
        """Write what was seen."""
        words: tuple[str, ...] = ("the script made too few steps to be traced",)
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            device = "cuda" if torch.cuda.is_initialized() else "cpu"
            words = finish(self._profiler, TRACED, median(self._times), device, self._folder)
            model, inputs = self._called or (None, None)
            remark = write_logs(self._folder, {"step_s": self._times}, model, inputs)
            words = (*words, *([remark] if remark else []))
        (self._folder / WORDS).write_text(json.dumps(words), encoding="utf-8")


def main() -> None:
    """Run the script that the arguments name."""
    folder, script = Path(sys.argv[1]), sys.argv[2]
    inside = Inside(folder)
    register_optimizer_step_post_hook(inside.stepped)
    seen = torch.nn.modules.module.register_module_forward_pre_hook(inside.called)
    sys.argv = sys.argv[2:]
    sys.path.insert(0, str(Path(script).parent))
    with contextlib.suppress(SystemExit):  # ours, or the script's own
        runpy.run_path(script, run_name="__main__")
    seen.remove()
    inside.finish()


if __name__ == "__main__":
    main()
