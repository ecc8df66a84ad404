"""How much Python a played step takes: `grid.py` on a machine without a GPU, launching nothing.

    python overhead.py --model 50

Trains a model of the grid as `reparto run --accelerate` does, with a player that has the memory of
a captured graph and computes nothing when it is launched. What is left is what the processor does
while the GPU could compute: the script's own loop, and holding its calls against the tape.

The whole is processor time, so that other work on the machine does not count; parts are medians
of the clock, which few steps of other work do not move.
"""

import argparse
import statistics
import time
from pathlib import Path

import grid
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from reparto import convert, strategies
from reparto.runtime import _patches
from reparto.runtime._current import current, enter
from reparto.runtime._world import World
from reparto.runtime.accelerate import Accelerator
from reparto.runtime.accelerate._player import CapturedPlayer
from reparto.runtime.accelerate._precision import kept_state
from reparto.spec import Options

PARTS = "next to zero_grad forward loss backward step later".split()


class IdlePlayer(CapturedPlayer):
    """Has all that a captured graph has, and computes nothing."""

    def _capture(self, body):
        with kept_state(self.tape):
            body()

    def _replay(self):
        pass


def accelerated():
    """Go on as an accelerated run does; returns the accelerator."""
    world = World(options=Options())
    world.strategy = strategies.Single.Config().build(None)
    _patches.install(current, tracking=False)
    enter(world)
    cpu = torch.device("cpu")
    world.accelerator = accelerator = Accelerator(cpu, world, capture="repeat")
    accelerator.engine._make_player = lambda tape: IdlePlayer(tape, cpu, accelerator.home)
    accelerator.install()
    return accelerator


def stopped():
    """Go on as torch does."""
    current().accelerator.uninstall()
    enter(None)
    _patches.uninstall()


def whole(model, passes, samples):
    """Microseconds of processor time per step, of the script as it is converted."""
    program = convert.accelerate(Path(grid.__file__))
    names = {"__name__": "converted"}
    exec(compile(program.files[0].converted, grid.__file__, "exec"), names)
    times = []

    class Clock:
        """The script's own clock, which ends its training after so many passes."""

        now = 0.0

        def perf_counter(self):
            times.append(time.process_time())
            return 0.0 if len(times) < 2 * passes else 1e9

    names["time"] = Clock()
    accelerator = accelerated()
    try:
        names["train"](model, 1.0, samples)
    finally:
        engine = accelerator.engine
        share = f"{engine.num_played} of {engine.num_steps} steps played {engine.reason}"
        stopped()
    steps = samples // grid.batch_of(model)
    ends = times[2:-1:2] if len(times) % 2 else times[1::2]
    each = [1e6 * (end - begin) / steps for begin, end in zip(ends[2:], ends[3:], strict=False)]
    return statistics.median(each), min(each), share


def parts(model, passes, samples):
    """Microseconds of each part of the loop, as medians over played steps."""
    import reparto

    torch.manual_seed(0)
    loader = DataLoader(
        TensorDataset(*grid.data_of(model, samples)), grid.batch_of(model), shuffle=True
    )
    clock = time.perf_counter
    rows = []
    accelerated()
    try:
        net = grid.model_of(model)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
        for _ in range(passes):
            total, batches = 0.0, iter(loader)
            while True:
                t0 = clock()
                try:
                    inputs, targets = next(batches)
                except StopIteration:
                    break
                t1 = clock()
                inputs, targets = inputs.to("cpu"), targets.to("cpu")
                t2 = clock()
                optimizer.zero_grad()
                t3 = clock()
                output = net(inputs)
                t4 = clock()
                loss = F.mse_loss(output, targets)
                del output
                t5 = clock()
                loss.backward()
                t6 = clock()
                optimizer.step()
                t7 = clock()
                total += reparto.later(loss, total) * len(inputs)
                rows.append((t0, t1, t2, t3, t4, t5, t6, t7, clock()))
            total = reparto.now(total)
    finally:
        stopped()
    rows = rows[len(rows) // 4 :]
    return {
        name: 1e6 * statistics.median(row[i + 1] - row[i] for row in rows)
        for i, name in enumerate(PARTS)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="50")
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--samples", type=int, default=100_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    median, least, share = whole(args.model, args.passes, args.samples)
    print(f"{args.model}: {median:.1f} µs of Python a step (least of a pass {least:.1f}); {share}")
    found = parts(args.model, args.passes, args.samples)
    print("  ".join(f"{name} {value:.1f}" for name, value in found.items()))
    print(f"sum of parts {sum(found.values()):.1f}")


if __name__ == "__main__":
    main()
