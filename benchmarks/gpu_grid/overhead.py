"""How much Python a played step takes: `grid.py` on a machine without a GPU, launching nothing.

    python overhead.py --model 50

Trains a model of the grid as `reparto run --accelerate` does, with a player that has the memory of
a captured graph and computes nothing when it is launched. What is left is what the processor does
while the GPU could compute: the script's own loop, and holding its calls against the tape.

The whole, and what begins and ends a pass, is processor time of the thread that trains, so that
other work on the machine does not count; parts of a step are medians of the clock, which few steps
of other work do not move.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path
from types import SimpleNamespace

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


def whole(model, seconds, samples):
    """Microseconds of processor time per step, pass by pass, of the script as it is converted."""
    program = convert.accelerate(Path(grid.__file__))
    names = {"__name__": "converted"}
    exec(compile(program.files[0].converted, grid.__file__, "exec"), names)
    names["time"] = SimpleNamespace(perf_counter=time.thread_time)
    engine = accelerated().engine
    try:
        found = names["train"](model, seconds, samples)
    finally:
        stopped()
    share = f"{engine.num_played} of {engine.num_steps} steps played {engine.reason}"
    return [1e6 * one for one in found["step_s"][2:]], share


def parts(model, passes, samples):
    """Microseconds of each part of the loop, as medians over played steps."""
    import reparto

    torch.manual_seed(0)
    loader = DataLoader(
        TensorDataset(*grid.data_of(model, samples)), grid.batch_of(model), shuffle=True
    )
    clock = time.perf_counter
    rows, ends = [], []
    accelerated()
    try:
        net = grid.model_of(model)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
        for _ in range(passes):
            begin = time.thread_time()
            total, batches = 0.0, iter(loader)
            inputs, targets = first = next(batches)
            batches = itertools.chain([first], batches)
            began = time.thread_time()
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
            end = time.thread_time()
            total = reparto.now(total)
            ends.append((began - begin, time.thread_time() - end))
    finally:
        stopped()
    rows = rows[len(rows) // 4 :]
    found = {
        name: 1e6 * statistics.median(row[i + 1] - row[i] for row in rows)
        for i, name in enumerate(PARTS)
    }
    begin, end = (1e6 * statistics.median(one) for one in zip(*ends, strict=True))
    return found, begin, end


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="50")
    parser.add_argument("--seconds", type=float, default=0.5, help="of the whole")
    parser.add_argument("--passes", type=int, default=20, help="of the parts")
    parser.add_argument("--samples", type=int, default=50_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    each, share = whole(args.model, args.seconds, args.samples)
    median, least = statistics.median(each), min(each)
    print(f"{args.model}: {median:.1f} µs of Python a step, {least:.1f} at best; {share}")
    found, begin, end = parts(args.model, args.passes, args.samples)
    print("  ".join(f"{name} {value:.1f}" for name, value in found.items()))
    print(f"sum of parts {sum(found.values()):.1f}; a pass: begin {begin:.0f}, end {end:.0f}")


if __name__ == "__main__":
    main()
