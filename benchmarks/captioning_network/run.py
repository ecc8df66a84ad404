"""Four machines on a slow network: how much sooner does the captioning job reach its quality?

    python benchmarks/captioning_network/run.py --data FOLDER          as root; about an hour
    python benchmarks/captioning_network/run.py --data FOLDER --only steps times

Five parts, each resumable; see README.md for what they mean.

    steps    steps to a development loss of 3.60, three seeds; nothing is limited
    times    seconds of a step on the lab: nodes × rates × {one node, reparto, DDP}
    whole    one run of reparto at each rate, from the first step to the loss
    length   1800 steps of one node, and what four nodes do in that time: loss and BLEU
    beside   seconds of a step at 1 Gbit/s once more: one node, reparto and DDP in turn
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "captioning"
BIN = Path(sys.executable).parent
RESULTS = HERE / "results" / "captioning.json"
TARGET, CPU = 3.60, 0.45
RATES = ("none", "1gbit", "100mbit", "10mbit")
SEEDS = (0, 1, 2)
Json = dict[str, Any]

ROUNDS = ("batch=worker", "outer_momentum=0.5", "moments=level", "show=round")
ONE_BIT = ("compressor.kind=quantize", "compressor.bits=1")
#: What is to be reached: so many times one node, and so many times the peer.
BARS = {"none": (2.6, 1.0), "1gbit": (2.4, 1.3), "100mbit": (2.0, 0.0), "10mbit": (1.5, 0.0)}
#: What reparto runs, by name.
SETTINGS: dict[str, tuple[str, ...]] = {
    "rounds of 4, 1 bit": ("sync_every=4", *ROUNDS, *ONE_BIT),
    "rounds of 8, 1 bit, overlapped": (
        "sync_every=8", "overlap=3", "keep=1.0", *ROUNDS, *ONE_BIT
    ),
}  # fmt: skip
#: Which of them at which rate.
CHOSEN = {
    "none": "rounds of 4, 1 bit",
    "1gbit": "rounds of 4, 1 bit",
    "100mbit": "rounds of 4, 1 bit",
    "10mbit": "rounds of 8, 1 bit, overlapped",
}


class Book:
    """Rows by key, in a file; what is there is not measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: Json = json.loads(path.read_text()) if path.exists() else {}

    def has(self, key: str) -> bool:
        return key in self.rows

    def put(self, key: str, row: Json) -> None:
        self.rows[key] = {**row, "commit": _commit(), "date": time.strftime("%Y-%m-%d")}
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n")
        told = {name: value for name, value in row.items() if name != "curve"}
        print(f"{time.strftime('%H:%M:%S')}  {key}: {told}", flush=True)


def curve_of(text: str) -> list[tuple[int, float, float]]:
    """Step, development loss, seconds of training."""
    found = re.findall(r"step (\d+)  dev loss (\d+\.\d+)  train (\d+\.\d+) s", text)
    return [(int(step), float(loss), float(seconds)) for step, loss, seconds in found]


def crossing(curve: list[tuple[int, float, float]]) -> float | None:
    """The step at which the target is crossed, between two evaluations."""
    for (s0, l0, _), (s1, l1, _) in itertools.pairwise(curve):
        if l1 <= TARGET < l0:
            return round(s0 + (s1 - s0) * (l0 - TARGET) / (l0 - l1), 1)
    return None


class Bench:
    def __init__(self, data: Path, book: Book) -> None:
        self.data, self.book = data.resolve(), book

    def words(self, **options: Any) -> list[str]:
        """The script and its arguments."""
        found = [str(EXAMPLE / "train.py"), "--data", str(self.data), "--features", "surrogate",
                 "--epochs", "20"]  # fmt: skip
        for name, value in options.items():
            found += [f"--{name.replace('_', '-')}", str(value)]
        return found

    def done(self, command: list[str], **env: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1", **env},
            )  # fmt: skip
        if ended.returncode:
            raise SystemExit(f"{command}\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}")
        return ended.stdout

    def reparto(self, lab: list[str], settings: tuple[str, ...], words: list[str]) -> Json:
        """A run on a lab; what it printed and what reparto says of it."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "result.json")
            command = [str(BIN / "reparto"), "lab", "run", *lab, "--json", str(report)]
            if settings:
                command += ["--strategy", "diloco", "--relaxed"]
                command += [word for one in settings for word in ("--set", one)]
            else:
                command += ["--strategy", "single"]
            printed = self.done([*command, *words])
            result = json.loads(report.read_text())["result"]
        return {"printed": printed, **result}

    def ddp(self, nodes: int, rate: str, cpu: float | None, *words: str) -> str:
        """The peer, one process a node of a lab that stands for it."""
        name = f"ddp-{os.getpid()}"
        limits = ["--nodes", str(nodes), "--rate", rate, "--name", name]
        limits += ["--cpu", str(cpu)] if cpu else []
        up = subprocess.run(
            [str(BIN / "reparto"), "lab", "up", *limits, "--json", "-"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        hosts = json.loads(up.stdout)["cluster"]["hosts"]
        try:
            running = []
            for rank, host in enumerate(hosts):
                env = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank),
                       "WORLD_SIZE": str(nodes), "MASTER_ADDR": hosts[0]["address"],
                       "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}  # fmt: skip
                command = [*host["enter"], sys.executable, str(HERE / "ddp.py"),
                           "--data", str(self.data), *words]  # fmt: skip
                running.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE,
                                                stderr=subprocess.STDOUT, text=True))  # fmt: skip
            printed = [one.communicate()[0] for one in running]
        finally:
            subprocess.run([str(BIN / "reparto"), "lab", "down", name], capture_output=True)
        if any(one.returncode for one in running):
            raise SystemExit("\n".join(printed))
        return printed[0]

    # ------------------------------------------------------------------------------- steps

    def steps(self) -> None:
        """How many steps to the target; nothing is limited, so that it takes less long."""
        for seed in SEEDS:
            key = f"steps, one node, seed {seed}"
            if not self.book.has(key):
                words = self.words(seed=seed, target=TARGET, evaluate_every=48)
                self._steps(key, self.done([sys.executable, *words]))
        for seed in SEEDS:
            for name, settings in SETTINGS.items():
                for nodes in (4, 2) if seed == 0 else (4,):
                    key = f"steps, {name}, {nodes} nodes, seed {seed}"
                    if not self.book.has(key):
                        words = self.words(seed=seed, target=TARGET, evaluate_every=32)
                        found = self.reparto(["--nodes", str(nodes)], settings, words)
                        self._steps(key, found["printed"])
            key = f"steps, DDP, batch x 4, seed {seed}"
            if not self.book.has(key):
                words = ["--seed", str(seed), "--target", str(TARGET), "--evaluate-every", "32"]
                self._steps(key, self.ddp(4, "none", None, *words))

    def _steps(self, key: str, printed: str) -> None:
        curve = curve_of(printed)
        self.book.put(key, {"steps": crossing(curve), "curve": curve})

    # ------------------------------------------------------------------------------- times

    def times(self, num_steps: int = 51) -> None:
        """Seconds of a step: the mean over all steps but the first, for reparto and one node.

        51 steps, so that a round that is sent with step 48 and lands three steps later is paid.
        """
        quick = self.words(steps=num_steps, evaluate_captions=64)
        for again in range(3):
            key = f"time, one node, {again}"
            if not self.book.has(key):
                found = self.reparto(["--nodes", "1", "--cpu", str(CPU)], (), quick)
                self.book.put(key, _step_time(found))
            for rate in RATES:
                for nodes in (4, 2) if again == 0 else (4,):
                    key = _time_key(rate, nodes, again)
                    if not self.book.has(key):
                        lab = ["--nodes", str(nodes), "--rate", rate, "--cpu", str(CPU)]
                        found = self.reparto(lab, SETTINGS[CHOSEN[rate]], quick)
                        self.book.put(key, {**_step_time(found), "settings": CHOSEN[rate]})
        for rate in RATES:
            # Where the link decides, a step takes as long with 8 samples a node, and there are
            # 3.5 times as many of them: only the larger batch is measured there.
            slow = rate in ("100mbit", "10mbit")
            for batch, lr in ((32, 3e-3),) if slow else ((32, 3e-3), (8, 1e-3)):
                key = f"time, DDP, {batch} a node, {rate}"
                if not self.book.has(key):
                    count = 12 if slow else 32
                    words = ["--steps", str(count), "--batch-size", str(batch), "--lr", str(lr)]
                    words += ["--warmup", "1"] if batch == 8 else []
                    printed = self.ddp(4, rate, CPU, *words)
                    found_s = re.search(r"median step (\d+\.\d+) s", printed)
                    assert found_s is not None, printed
                    self.book.put(key, {"step_s": float(found_s[1])})

    def beside(self, rate: str = "1gbit", rounds: int = 3, num_steps: int = 51) -> None:
        """One node, four nodes and DDP in turn, where they are held against each other."""
        quick = self.words(steps=num_steps, evaluate_captions=64)
        lab = ["--nodes", "4", "--rate", rate, "--cpu", str(CPU)]
        for turn in range(rounds):
            if not self.book.has(key := f"beside, one node, {turn}"):
                one = self.reparto(["--nodes", "1", "--cpu", str(CPU)], (), quick)
                self.book.put(key, _step_time(one))
            if not self.book.has(key := f"beside, reparto, {rate}, {turn}"):
                self.book.put(key, _step_time(self.reparto(lab, SETTINGS[CHOSEN[rate]], quick)))
            if not self.book.has(key := f"beside, DDP, {rate}, {turn}"):
                words = ["--steps", "32", "--batch-size", "32", "--lr", "0.003"]
                found = re.search(r"median step (\d+\.\d+) s", self.ddp(4, rate, CPU, *words))
                assert found is not None
                self.book.put(key, {"step_s": float(found[1])})

    # ------------------------------------------------------------------------------- whole

    def whole(self) -> None:
        """One run at each rate, for as many steps as the target took, evaluated once."""
        for rate in RATES:
            key = f"whole, {rate}"
            steps = self.book.rows[f"steps, {CHOSEN[rate]}, 4 nodes, seed 0"]["steps"]
            if not self.book.has(key):
                lab = ["--nodes", "4", "--rate", rate, "--cpu", str(CPU)]
                count = -(-round(steps) // 8) * 8
                words = self.words(steps=count, evaluate_every=count)
                found = self.reparto(lab, SETTINGS[CHOSEN[rate]], words)
                ((_, loss, _),) = curve_of(found["printed"])
                self.book.put(key, {**_step_time(found), "steps": count, "dev_loss": loss,
                                    "train_s": found["train_s"]})  # fmt: skip

    # ------------------------------------------------------------------------------ length

    def length(self, num_steps: int = 1800) -> None:
        """Loss and BLEU after the time that one node needs for 1800 steps; nothing limited."""
        alone = _median(self.book, "time, one node, {}")
        shared = _median(self.book, _time_key("10mbit", 4, "{}"))
        # No more than the slowest link has time for, and no more than is needed here.
        count = min(720, int(num_steps * alone / shared))
        name = CHOSEN["100mbit"]
        for key, steps, settings in (
            ("length, one node", num_steps, ()),
            (f"length, {name}, 4 nodes", count, SETTINGS[name]),
        ):
            if self.book.has(key):
                continue
            with tempfile.TemporaryDirectory() as out:
                words = self.words(steps=steps, evaluate_every=steps, out=out)
                if settings:
                    printed = self.reparto(["--nodes", "4"], settings, words)["printed"]
                else:
                    printed = self.done([sys.executable, *words])
                told = self.done([sys.executable, str(EXAMPLE / "caption.py"), "--data",
                                  str(self.data), "--checkpoint", f"{out}/last.pt"])  # fmt: skip
            bleu = dict(re.findall(r"(BLEU-\d) (\d\.\d+)", told))
            self.book.put(key, {"steps": steps, "dev_loss": curve_of(printed)[-1][1], **bleu})

    # ------------------------------------------------------------------------------- table

    def gains(self) -> dict[str, dict[str, list[float]]]:
        """Speed-ups over one node by link and by who, one a seed; two nodes by one seed."""
        rows = self.book.rows
        one_s = _median(self.book, "time, one node, {}")
        alone = {seed: rows[f"steps, one node, seed {seed}"]["steps"] for seed in SEEDS}

        def gain(name: str, step_s: float) -> list[float]:
            return [
                count * one_s / (row["steps"] * step_s)
                for seed, count in alone.items()
                if (row := rows.get(f"steps, {name}, seed {seed}")) is not None and row["steps"]
            ]

        found: dict[str, dict[str, list[float]]] = {}
        for rate in RATES:
            large = rows[f"time, DDP, 32 a node, {rate}"]["step_s"]
            same = rows.get(f"time, DDP, 8 a node, {rate}")
            here = found[rate] = {"DDP, batch × 4": gain("DDP, batch x 4", large)}
            here["DDP, same batch"] = [one_s / same["step_s"]] if same is not None else []
            for nodes in (2, 4):
                step_s = _median(self.book, _time_key(rate, nodes, "{}"))
                here[f"reparto, {nodes} nodes"] = gain(f"{CHOSEN[rate]}, {nodes} nodes", step_s)
        return found

    def table(self) -> str:
        """Medians, and the bars."""
        found = self.gains()
        head = ["link", *next(iter(found.values())), "bar"]
        lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for rate, who in found.items():
            cells = [f"{statistics.median(each):.2f}×" if each else "–" for each in who.values()]
            ddp = max(
                statistics.median(each) for name, each in who.items() if each and "DDP" in name
            )
            bar = max(BARS[rate][0], BARS[rate][1] * ddp)
            lines.append(f"| {rate} | {' | '.join(cells)} | {bar:.2f}× |")
        return "\n".join(lines)

    def plot(self, path: Path) -> None:
        """Speed-up against the link; development loss against time at 100 Mbit/s."""
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot

        found = self.gains()
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
        names = [name for name in next(iter(found.values())) if name != "DDP, same batch"]
        colours = dict(zip(names, ("#dd6b3d", "#8fb8de", "#2f83d1"), strict=True))
        order = list(reversed(RATES))
        for name in names:
            values = [statistics.median(found[rate][name]) for rate in order]
            left.plot(order, values, "o-", color=colours[name], label=name)
        left.plot(order, [BARS[rate][0] for rate in order], "_", color="black", markersize=18,
                  label="to be reached")  # fmt: skip
        left.axhline(1, color="#7f8792", linestyle=":")
        left.set(title="Times as fast as one node to a dev loss of 3.60", ylim=(0, None),
                 xlabel="each node's line")  # fmt: skip
        left.legend(frameon=False)
        rows, rate = self.book.rows, "100mbit"
        lines = {
            "one node": ("steps, one node, seed 0", _median(self.book, "time, one node, {}")),
            "DDP, batch × 4": ("steps, DDP, batch x 4, seed 0",
                               rows[f"time, DDP, 32 a node, {rate}"]["step_s"]),
            "reparto, 4 nodes": (f"steps, {CHOSEN[rate]}, 4 nodes, seed 0",
                                 _median(self.book, _time_key(rate, 4, "{}"))),
        }  # fmt: skip
        for name, (key, step_s) in lines.items():
            curve = rows[key]["curve"]
            right.plot([step * step_s for step, _, _ in curve], [loss for _, loss, _ in curve],
                       color=colours.get(name, "#7f8792"), label=name)  # fmt: skip
        right.axhline(TARGET, color="#7f8792", linestyle=":")
        right.set(title="Development loss at 100 Mbit/s, seed 0", xlabel="seconds of training")
        right.legend(frameon=False)
        figure.savefig(path, dpi=130)


def _time_key(rate: str, nodes: int, again: object) -> str:
    return f"time, {CHOSEN[rate]}, {nodes} nodes, {rate}, {again}"


def _median(book: Book, pattern: str) -> float:
    """Of what was measured up to three times."""
    keys = [pattern.format(again) for again in range(3)]
    return float(statistics.median(book.rows[key]["step_s"] for key in keys if book.has(key)))


def _step_time(result: Json) -> Json:
    return {"step_s": round(result["train_s"] / (result["num_steps"] - 1), 4),
            "wire_mb_per_step": round(result["wire_bytes"] / 1e6 / result["num_steps"], 3),
            "waited_s": round(result["waited_s"], 2)}  # fmt: skip


def _commit() -> str:
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    )
    return told.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, help="Flickr8k's files")
    parts = ["steps", "times", "whole", "length", "beside"]
    parser.add_argument("--only", nargs="+", default=parts, choices=parts)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    bench = Bench(args.data, Book(args.results))
    for part in args.only:
        getattr(bench, part)()
    if {"steps", "times"} <= set(args.only):
        print(bench.table())
        bench.plot(args.results.with_suffix(".png"))
        told = {
            rate: {name: f"{statistics.median(each):.2f}" for name, each in who.items() if each}
            for rate, who in bench.gains().items()
        }
        table = args.results.with_name("speed-ups.json")
        table.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
