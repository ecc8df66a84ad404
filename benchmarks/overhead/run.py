"""What reparto costs, beside plain Python and beside DDP written by hand. See README.md.

    python benchmarks/overhead/run.py                    everything, about 20 minutes
    python benchmarks/overhead/run.py two-workers --models cnn --rounds 60
    python benchmarks/overhead/run.py start-up convert help

Contenders live side by side and take turns, so that all of them see the same machine:

    peer      ██████                    ██████             each block is one round of 20 steps;
    reparto          ██████      ██████                    whoever has no turn sleeps on a pipe
    peer again              ██████             ██████      (hook/sitecustomize.py)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle, permutations
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
MODELS = ("perceptron", "cnn", "lstm")
LIMITS = {"one-worker": 1.02, "two-workers": 1.02, "start-up": 2.0, "convert": 1.0, "help": 0.3}
TURN_LIMIT_S = 300.0
WARM_UP_ROUNDS = 3
NUM_STARTS = 6

Json = dict[str, Any]


# ------------------------------------------------------------------------------- contenders


@dataclass(frozen=True)
class Round:
    """One turn of a contender: seconds a step on the clock, and of all its workers' CPU time."""

    wall_s: float
    cpu_s: float


@dataclass
class Contender:
    """A training run that stands by until it is given a turn.

    Args:
        name: For the table.
        command: What is started.
        num_ranks: How many workers it has.
        env: Added to the environment.
    """

    name: str
    command: list[str]
    num_ranks: int = 1
    env: dict[str, str] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)

    def __enter__(self) -> Contender:
        self._folder = tempfile.mkdtemp(prefix="overhead-")
        self._told, self._go = [], []
        for rank in range(self.num_ranks):
            for kind, pipes in (("told", self._told), ("go", self._go)):
                path = f"{self._folder}/{kind}-{rank}"
                os.mkfifo(path)
                # Open for both: opening does not wait for the worker, and no end is ever seen.
                pipes.append(os.fdopen(os.open(path, os.O_RDWR), "rb+", buffering=0))
        self._terminal, theirs = pty.openpty()  # as people run it: with a progress line
        self._output = bytearray()
        env = {**os.environ, **self.env, "OVERHEAD_TURNS": self._folder}
        env["PYTHONPATH"] = os.pathsep.join([str(HERE / "hook"), env.get("PYTHONPATH", "")])
        self._began_ns = time.monotonic_ns()
        self._process = subprocess.Popen(
            self.command, cwd=self._folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        threading.Thread(target=self._drain, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            for go in self._go:
                go.write(b"0\n")
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()
        for pipe in (*self._told, *self._go):
            pipe.close()
        shutil.rmtree(self._folder)

    def first_step_s(self) -> float:
        """Wait for the end of the first step; seconds since the start."""
        return (self._hear()[0][0] - self._began_ns) / 1e9

    def turn(self, num_steps: int) -> Round:
        """Let it make some steps."""
        for go in reversed(self._go):
            go.write(b"%d\n" % num_steps)
        heard = self._hear()
        wall_ns, cpu_ns = heard[0][0], sum(cpu for _, cpu in heard)
        return Round(wall_ns / num_steps / 1e9, cpu_ns / num_steps / 1e9)

    def _hear(self) -> list[tuple[int, int]]:
        heard = []
        for told in self._told:
            until = time.monotonic() + TURN_LIMIT_S
            while not select.select([told], [], [], 1.0)[0]:
                if self._process.poll() is not None or time.monotonic() > until:
                    text = self._output.decode(errors="replace")[-4000:]
                    raise SystemExit(f"{self.name} stopped:\n{text}")
            wall_ns, cpu_ns = told.readline().split()
            heard.append((int(wall_ns), int(cpu_ns)))
        return heard

    def _drain(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # the last writer is gone
                data = b""
            if not data:
                os.close(self._terminal)
                return
            self._output += data
            del self._output[:-65536]


def plain(name: str, model: str) -> Contender:
    return Contender(name, [sys.executable, str(HERE / f"{model}.py"), "--epochs", "1000000"])


def ddp(name: str, model: str) -> Contender:
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    script = [str(HERE / f"{model}_ddp.py"), "--epochs", "1000000"]
    return Contender(name, [*launcher, *script], 2, {"OMP_NUM_THREADS": "1"})


def reparto(name: str, model: str, workers: int, *options: str) -> Contender:
    options = ("--workers", str(workers), "--no-probe", *options)
    script = [str(HERE / f"{model}.py"), "--epochs", "1000000"]
    return Contender(name, [str(BIN / "reparto"), "run", *options, *script], workers)


# --------------------------------------------------------------------------------- measures


def take_turns(contenders: list[Contender], num_rounds: int, num_steps: int) -> None:
    """Alternate rounds, in every order as often, after a few that do not count.

    Two starts of one program may differ by 3 % (where its memory comes to lie), and the one that
    was started first is the luckier: so all are started anew a few times, in another order.
    """
    for number in range(NUM_STARTS):
        first = number % len(contenders)
        in_order = contenders[first:] + contenders[:first]
        _take_turns(in_order, -(-num_rounds // NUM_STARTS), num_steps)


def _take_turns(contenders: list[Contender], num_rounds: int, num_steps: int) -> None:
    with ExitStack() as stack:
        for one in contenders:
            stack.enter_context(one)
            one.first_step_s()
        for _ in range(WARM_UP_ROUNDS):
            for one in contenders:
                one.turn(num_steps)
        orders = cycle(permutations(contenders))
        for _ in range(num_rounds):
            for one in next(orders):
                one.rounds.append(one.turn(num_steps))


def compare_steps(kind: str, model: str, num_rounds: int, num_steps: int) -> Json:
    """The step time of reparto over that of its peer, and of the peer over itself."""
    if kind == "one-worker":
        peer, again = plain("plain", model), plain("plain again", model)
        ours = reparto("reparto", model, 1)
    else:
        peer, again = ddp("ddp", model), ddp("ddp again", model)
        ours = reparto("reparto", model, 2, "--threads", "1")
    take_turns([peer, ours, again], num_rounds, num_steps)
    found: Json = {
        "kind": kind,
        "model": model,
        "num_rounds": num_rounds,
        "steps_a_round": num_steps,
        "peer": peer.name,
        "limit": LIMITS[kind],
    }
    for measure in ("wall_s", "cpu_s"):
        times = [[getattr(one, measure) for one in c.rounds] for c in (peer, ours, again)]
        medians = [statistics.median(one) for one in times]
        found[measure] = {
            "ratio": medians[1] / medians[0],
            "noise": medians[2] / medians[0],
            "ratio_of_pairs": statistics.median(b / a for a, b in zip(*times[:2], strict=True)),
            "noise_of_pairs": statistics.median(
                b / a for a, b in zip(times[0], times[2], strict=True)
            ),
            # Round by round, against the mean of both peers: the machine's own drift falls out.
            "ratio_to_both": statistics.median(
                2 * b / (a + c) for a, b, c in zip(*times, strict=True)
            ),
            "medians": medians,
            "rounds": {c.name: one for c, one in zip((peer, ours, again), times, strict=True)},
        }
    return found


def start_up(model: str, num_rounds: int) -> Json:
    """Seconds from the command to the end of the first step."""
    makers: dict[str, Callable[[], Contender]] = {
        "plain": lambda: plain("plain", model),
        "reparto, 1 worker": lambda: reparto("reparto", model, 1),
        "reparto, 2 workers": lambda: reparto("reparto", model, 2),
        "plain again": lambda: plain("plain again", model),
    }
    times: dict[str, list[float]] = {name: [] for name in makers}
    for number in range(num_rounds + 1):
        for name in list(makers)[:: -1 if number % 2 else 1]:
            with makers[name]() as one:
                seconds = one.first_step_s()
            if number:  # the first brings files into memory
                times[name].append(seconds)
    medians = {name: statistics.median(one) for name, one in times.items()}
    over = {name: median - medians["plain"] for name, median in medians.items() if name != "plain"}
    return {
        "kind": "start-up", "model": model, "num_rounds": num_rounds, "limit": LIMITS["start-up"],
        "medians": medians, "over_plain": over, "rounds": times,
    }  # fmt: skip


def command_time(kind: str, command: list[str], num_rounds: int) -> Json:
    """Seconds that a command takes, and that Python takes to do nothing."""
    commands = {"command": command, "python": [sys.executable, "-c", "pass"]}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(num_rounds + 1):
        for name, words in commands.items():
            began = time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            if number:
                times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(one) for name, one in times.items()}
    return {
        "kind": kind, "num_rounds": num_rounds, "limit": LIMITS[kind], "medians": medians,
        "rounds": times,
    }  # fmt: skip


def long_script(num_lines: int = 500) -> str:
    """A script of that many lines: the three models' code over and over, under other names."""
    parts: list[str] = []
    number = 0
    while sum(part.count("\n") for part in parts) < num_lines:
        for text in ((HERE / f"{model}.py").read_text() for model in ("cnn", "lstm")):
            for name in ("Net", "Classifier", "make_data", "train", "main"):
                text = text.replace(f"{name}(", f"{name}{number}(")
            parts.append(text)
            number += 1
    return "\n".join("\n".join(parts).splitlines()[:num_lines]) + "\n"


# ----------------------------------------------------------------------------------- report


def environment() -> Json:
    import torch

    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    )  # fmt: skip
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    )
    return {
        "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
        "python": platform.python_version(), "torch": torch.__version__,
        "commit": commit.stdout.strip(), "date": time.strftime("%Y-%m-%d"),
        "load_before": os.getloadavg()[0],
    }  # fmt: skip


def measures(args: argparse.Namespace) -> Iterable[Json]:
    for kind in args.what:
        if kind in ("one-worker", "two-workers"):
            for model in args.models:
                yield compare_steps(kind, model, args.rounds, args.steps)
        elif kind == "start-up":
            yield start_up(args.models[0], args.start_up_rounds)
        elif kind == "convert":
            with tempfile.TemporaryDirectory() as folder:
                script = Path(folder, "train.py")
                script.write_text(long_script())
                command = [str(BIN / "reparto"), "convert", str(script), "-o", f"{folder}/out.py"]
                yield command_time(kind, command, args.start_up_rounds)
        elif kind == "help":
            yield command_time(kind, [str(BIN / "reparto"), "--help"], args.start_up_rounds)


def line(found: Json) -> str:
    """A row of the README's table."""
    if "wall_s" in found:
        wall, cpu = found["wall_s"], found["cpu_s"]
        peer_ms, ours_ms, _ = (1e3 * median for median in wall["medians"])
        return (
            f"{found['kind']:<12} {found['model']:<11} {found['peer']} {peer_ms:6.2f} ms  "
            f"reparto {ours_ms:6.2f} ms  ratio {wall['ratio']:.3f}  noise {wall['noise']:.3f}  "
            f"(limit {found['limit']})  to both {wall['ratio_to_both']:.3f}  "
            f"CPU {cpu['ratio']:.3f}  noise {cpu['noise']:.3f}"
        )
    if "over_plain" in found:
        over = "  ".join(f"{name} {value:+.2f} s" for name, value in found["over_plain"].items())
        return f"{found['kind']:<12} plain {found['medians']['plain']:.2f} s  {over}  " + (
            f"(limit +{found['limit']})"
        )
    median, nothing = found["medians"]["command"], found["medians"]["python"]
    limits = f"(limit {found['limit']}; python -c pass {nothing:.2f})"
    return f"{found['kind']:<12} {median:.2f} s {limits}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="*", default=list(LIMITS), metavar="MEASURE",
                        help=f"of {', '.join(LIMITS)}; default: all")  # fmt: skip
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=48, help="of each contender")
    parser.add_argument("--steps", type=int, default=20, help="in a round")
    parser.add_argument("--start-up-rounds", type=int, default=10)
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER")
    args = parser.parse_args()
    if unknown := set(args.what) - set(LIMITS):
        parser.error(f"no such measure: {', '.join(unknown)}")
    args.results.mkdir(exist_ok=True)
    about = environment()
    for found in measures(args):
        print(line(found), flush=True)
        name = "-".join([found["kind"], *([found["model"]] if "wall_s" in found else [])])
        about["load_after"] = os.getloadavg()[0]
        text = json.dumps({**found, "environment": about}, indent=1)
        (args.results / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
