"""Every strategy, at several numbers of workers: what it costs in accuracy and saves in bytes.

    python benchmarks/strategies/run.py                          the whole table, hours
    python benchmarks/strategies/run.py --only diloco --workers 16
    python benchmarks/strategies/run.py --cores 16               several runs at once

A run that is broken off goes on where it was when it is started again; new rows say of which
commit they are, and those of older defaults are to be deleted by hand. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Json = dict[str, Any]

WORKER = ("batch=worker",)
#: Drifts of every step, with the momentum after the sum.
DRIFTS = (*WORKER, "sync_every=1", "show=round")
#: Steps of two.
PAIRS = (*WORKER, "sync_every=2", "show=round")
#: Drifts of four.
ROUNDS = (*WORKER, "sync_every=4", "show=round")


def compressed(kind: str, **settings: float) -> tuple[str, ...]:
    return (f"compressor.kind={kind}", *(f"compressor.{k}={v}" for k, v in settings.items()))


#: Name in the table: strategy, settings.
CELLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sequential": ("single", ()),
    "all-reduce": ("all-reduce", ()),
    "sharded": ("sharded", ("min_bytes=0",)),
    "parameter-server": ("parameter-server", ()),
    "all-reduce, 64 a worker": ("all-reduce", WORKER),
    "stale": ("parameter-server", (*WORKER, "mode=stale")),
    "async": ("parameter-server", (*WORKER, "mode=async")),
    "backup": ("parameter-server", (*WORKER, "backup=1")),
    "switch": ("switch", WORKER),
    "switch, window 20": ("switch", (*WORKER, "window=20")),
    "local-sgd": ("local-sgd", (*PAIRS, *compressed("quantize", bits=1))),
    "local-sgd, 8 bits": ("local-sgd", (*PAIRS, *compressed("quantize"))),
    "post-local-sgd": (
        "post-local-sgd",
        (*PAIRS, "begin_after=30", *compressed("quantize")),
    ),
    "diloco": ("diloco", ROUNDS),
    "diloco, 1 bit": (
        "diloco",
        (
            *ROUNDS,
            "outer_rate=1.5",
            "outer_momentum=0.7",
            *compressed("quantize", bits=1, block=1024),
        ),
    ),
    "diloco, rank 2": ("diloco", (*ROUNDS, *compressed("powersgd", rank=2))),
    "gossip": ("gossip", WORKER),
    "drifts": ("diloco", DRIFTS),
    "f16": ("diloco", (*DRIFTS, *compressed("cast"))),
    "8 bits": ("diloco", (*DRIFTS, *compressed("quantize"))),
    "4 bits": ("diloco", (*DRIFTS, *compressed("quantize", bits=4))),
    "1 bit": ("diloco", (*DRIFTS, *compressed("quantize", bits=1))),
    "top-k 10 %": ("diloco", (*DRIFTS, *compressed("topk", fraction=0.1))),
    "top-k 1 %": ("diloco", (*DRIFTS, *compressed("topk"))),
    "top-k 0.1 %": ("diloco", (*DRIFTS, *compressed("topk", fraction=0.001))),
    "random-k 10 %": ("diloco", (*DRIFTS, *compressed("randomk", fraction=0.1))),
    "random-k 1 %": ("diloco", (*DRIFTS, *compressed("randomk"))),
    "rank 4": ("diloco", (*DRIFTS, *compressed("powersgd"))),
    "rank 1": ("diloco", (*DRIFTS, *compressed("powersgd", rank=1))),
    "gradients, 8 bits": ("all-reduce", (*WORKER, *compressed("quantize"))),
    "gradients, 1 bit": ("all-reduce", (*WORKER, *compressed("quantize", bits=1))),
    "gradients, top-k 1 %": ("all-reduce", (*WORKER, *compressed("topk"))),
    "gradients, rank 4": ("all-reduce", (*WORKER, *compressed("powersgd"))),
}


def measured(name: str, workers: int, seed: int, epochs: int, extra: list[str]) -> Json:
    """One run, as its own processes."""
    strategy, settings = CELLS[name]
    settings = (*settings, *extra)
    row: Json = {"name": name, "strategy": strategy, "settings": list(settings),
                 "workers": workers, "seed": seed, "epochs": epochs,
                 **environment()}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "result.json")
        command = [sys.executable, "-m", "reparto", "run", "--no-probe", "--json", str(report),
                   "--threads", "1", "--strategy", strategy]  # fmt: skip
        if strategy != "single":
            command += ["--workers", str(workers), "--relaxed"]
            command += [word for setting in settings for word in ("--set", setting)]
        command += [str(HERE / "lenet.py"), "--epochs", str(epochs), "--seed", str(seed)]
        began = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        row["seconds"] = round(time.perf_counter() - began, 1)
        row["accuracy"] = [float(one) for one in re.findall(r"accuracy (\d\.\d+)", done.stdout)]
        if done.returncode:
            return {**row, "error": done.stderr[-2000:]}
        result = json.loads(report.read_text())["result"]
    if fired := re.search(r"asynchronous after step (\d+)", done.stdout + done.stderr):
        row["fired_at"] = int(fired[1])
    row["num_steps"] = result["num_steps"]
    row["wire_bytes"] = result["wire_bytes"]
    return row


def table(rows: list[Json]) -> str:
    """Accuracy at the end and bytes of a worker, by strategy and number of workers."""
    lines = ["| strategy | workers | accuracy | against sequential | steps | MB a worker |"]
    lines.append("|---|---|---|---|---|---|")
    groups: dict[tuple[str, int], list[Json]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault((row["name"], row["workers"]), []).append(row)
    sequential = groups.get(("sequential", 1), [])
    alone = {row["seed"]: row["accuracy"][-1] for row in sequential}
    for (name, workers), found in groups.items():
        last = [row["accuracy"][-1] for row in found]
        lost = [row["accuracy"][-1] - alone[row["seed"]] for row in found if row["seed"] in alone]
        sent = statistics.mean(row["wire_bytes"] for row in found) / 1e6
        lines.append(
            f"| {name} | {workers} | {statistics.mean(last):.4f} | "
            f"{100 * statistics.mean(lost) if lost else float('nan'):+.2f} | "
            f"{found[0]['num_steps']} | {sent:.1f} |"
        )
    return "\n".join(lines)


def environment() -> Json:
    import torch

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    )
    return {"torch": torch.__version__, "cores": os.cpu_count(),
            "commit": commit.stdout.strip(), "date": time.strftime("%Y-%m-%d")}  # fmt: skip


class Cores:
    """So many cores, a core a worker; a run waits until there are enough, unless it is alone."""

    def __init__(self, number: int) -> None:
        self._all = self._free = number
        self._changed = threading.Condition()

    def take(self, wanted: int) -> int:
        taken = min(wanted, self._all)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= taken)
            self._free -= taken
        return taken

    def give_back(self, taken: int) -> None:
        with self._changed:
            self._free += taken
            self._changed.notify_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", metavar="REGEX", help="of the names in the table")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8, 16], metavar="N")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="S")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1, metavar="N", help="to run on at once")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "accuracy.json")
    args = parser.parse_args()
    rows: list[Json] = (
        json.loads(args.results.read_text())["rows"] if args.results.exists() else []
    )
    if not args.set:  # what was measured with other settings than those of the table
        rows = [row for row in rows if tuple(row["settings"]) == CELLS[row["name"]][1]]

    def key(row: Json) -> Any:
        return row["name"], row["workers"], row["seed"], row["epochs"], tuple(row["settings"])

    done = {key(row) for row in rows if "error" not in row}
    todo = [
        (name, workers, seed)
        for name in CELLS
        if re.search(args.only, name)
        for workers in (args.workers if name != "sequential" else [1])
        for seed in args.seeds
        if (name, workers, seed, args.epochs, (*CELLS[name][1], *args.set)) not in done
    ]
    cores, writing = Cores(args.cores), threading.Lock()

    def run(cell: tuple[str, int, int]) -> None:
        name, workers, seed = cell
        taken = cores.take(workers)
        try:
            row = measured(name, workers, seed, args.epochs, args.set)
        finally:
            cores.give_back(taken)
        with writing:
            rows.append(row)
            told = row.get("error", f"{row['accuracy'][-1:]} {row['seconds']} s")[-200:]
            print(f"{name:<24} {workers:>2} workers  seed {seed}  {told}", flush=True)
            args.results.parent.mkdir(exist_ok=True)
            text = json.dumps({"rows": rows}, indent=1)
            args.results.write_text(text + "\n")

    with ThreadPoolExecutor(args.cores) as pool:
        list(pool.map(run, todo))
    print(table(rows))


if __name__ == "__main__":
    main()
