"""Imported by every Python that `run.py` starts: lets a training process wait for its turn.

After an optimizer step the process may have to tell `run.py` how long its steps took and to wait
for the next turn. The hook is torch's own, and the same in all contenders:

    worker    step ─ told "0 …" ─ waits ─ step … step ─ told "wall cpu" ─ waits ─ …
    run.py                      ─ go "20" ────────────                  ─ go "20" ─ … ─ "0": leave

Two named pipes a rank, in the folder OVERHEAD_TURNS; no variable, no hook. The first line that is
told holds the clock's time at the end of the first step, from which the start-up is known.
"""

import os
import sys
import time
from importlib.util import find_spec

_MODULE = "torch.optim.optimizer"


class _Turns:
    """Counts steps and waits between rounds."""

    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank
        self.left = 1
        self.told = self.go = None
        self.wall_ns = self.cpu_ns = 0

    def after_step(self, optimizer, args, kwargs):
        self.left -= 1
        if self.left == 0:
            self._wait()

    def _wait(self):
        wall_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        if self.told is None:
            self.told = open(f"{self.folder}/told-{self.rank}", "w")
            self.go = open(f"{self.folder}/go-{self.rank}")
        print(wall_ns - self.wall_ns, cpu_ns - self.cpu_ns, file=self.told, flush=True)
        self.left = int(self.go.readline() or 0)
        if self.left == 0:
            raise SystemExit(0)
        self.wall_ns, self.cpu_ns = time.monotonic_ns(), time.process_time_ns()


class _AtImport:
    """Finds `torch.optim.optimizer` like any other module, and adds the hook once it is there."""

    def __init__(self, turns):
        self.turns = turns

    def find_spec(self, name, path=None, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.register_optimizer_step_post_hook(self.turns.after_step)

        spec.loader.exec_module = exec_module
        return spec


if "OVERHEAD_TURNS" in os.environ:
    # The rank is taken now: a single worker of reparto's looks like plain Python to its script.
    turns = _Turns(os.environ["OVERHEAD_TURNS"], int(os.environ.get("RANK", "0")))
    sys.meta_path.insert(0, _AtImport(turns))
