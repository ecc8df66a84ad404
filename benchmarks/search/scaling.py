"""Two workers beside one: candidates a second, and memory. Candidates are of equal size.

    python benchmarks/search/scaling.py                 in turns, a line a run; appends to results
    python benchmarks/search/scaling.py --report        the figures so far

A run is `reparto.search.search` in a process of its own, over a table that is made here. Seconds
are those from the first candidate's begin to the last one's end. Memory is the most that the
search and all its workers had together in that time, a page that several of them share counted
once (PSS).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "scaling.json"
#: By technique: settings with which a candidate takes seconds on the table.
KINDS: dict[str, dict[str, Any]] = {
    "lightgbm": {"iterations": 120, "num_leaves": 31},
    "random-forest": {"num_trees": 8},
}
ROWS, COLUMNS, FOLDS = 40_000, 40, 3
LOOK_S = 0.1
Json = dict[str, Any]


def make_table(path: Path) -> None:
    """Numbers, and a target that follows from some of them."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(ROWS, COLUMNS)).round(4)
    y = x[:, 0] + x[:, 1] * x[:, 2] + np.sin(3 * x[:, 3]) + 0.3 * draws.normal(size=ROWS)
    names = [*(f"c{n}" for n in range(COLUMNS)), "y"]
    np.savetxt(path, np.column_stack([x, y]), "%.6g", ",", header=",".join(names), comments="")


def run_one(table: str, kind: str, workers: int, count: int, folder: str) -> None:
    """One search; tells on standard output what came of it."""
    from reparto.search import search
    from reparto.spec import Candidate, SearchRequest

    # Those that are alike are tried only once, so each has a seed of its own.
    candidates = tuple(
        Candidate(number=number, technique=kind, settings={**KINDS[kind], "seed": number})
        for number in range(count)
    )
    request = SearchRequest(
        data=table,
        target="y",
        candidates=candidates,
        max_workers=workers,
        folds=FOLDS,
        ensemble=False,
    )
    start = time.monotonic()
    result = search(request, folder)
    done = [one for one in result.evaluations if one.status == "done"]
    assert len(done) == count, [one.failure for one in result.evaluations]
    began, ended = min(it.began_s for it in done), max(it.ended_s for it in done)
    told = {
        "search_s": ended - began,
        "whole_s": result.took_s,
        "candidate_s": statistics.median(it.busy_s for it in done),
        "candidate_bytes": max(it.peak_bytes for it in done),
        "busy_s": sum(it.busy_s for it in done),
        "between": [start + began, start + ended],
    }
    print(json.dumps(told))


def measured(table: Path, kind: str, workers: int, count: int) -> Json:
    """One run in a process of its own, and the most memory of all of its processes."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--one", str(table), kind, str(workers), str(count), folder + "/found"]
        process = subprocess.Popen(
            [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True
        )
        looks = []
        while process.poll() is None:
            looks.append((time.monotonic(), shared_out_bytes(process.pid)))
            time.sleep(LOOK_S)
        assert process.stdout is not None
        lines = process.stdout.read().strip().splitlines()
    if process.returncode:
        raise SystemExit(f"a search ended with status {process.returncode}")
    told = json.loads(lines[-1])
    begin, end = told.pop("between")
    most = max(size for at, size in looks if begin < at < end)
    return {"kind": kind, "workers": workers, "memory_bytes": most, **told}


def shared_out_bytes(pid: int) -> int:
    """PSS of a process and all that it has started."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # ended meanwhile
        return 0
    own = next((int(it.split()[1]) for it in rollup.splitlines() if it.startswith("Pss:")), 0)
    return own * 1024 + sum(shared_out_bytes(int(each)) for each in children)


def report(runs: list[Json]) -> Json:
    """Medians of what each turn says: how much faster, and how much more memory."""
    found = {}
    for kind in KINDS:
        one, two = (
            [it for it in runs if (it["kind"], it["workers"]) == (kind, n)] for n in (1, 2)
        )
        if not one or not two:
            continue
        pairs = list(zip(one, two, strict=False))
        more = [b["memory_bytes"] - a["memory_bytes"] for a, b in pairs]
        found[kind] = {
            "turns": len(pairs),
            "faster": statistics.median(a["search_s"] / b["search_s"] for a, b in pairs),
            "candidate_slower": statistics.median(
                b["candidate_s"] / a["candidate_s"] for a, b in pairs
            ),
            "busy_share_of_2": statistics.median(it["busy_s"] / it["search_s"] / 2 for it in two),
            "memory_1_mb": statistics.median(it["memory_bytes"] for it in one) / 1e6,
            "memory_more_mb": statistics.median(more) / 1e6,
            "candidate_mb": statistics.median(it["candidate_bytes"] for it in two) / 1e6,
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        table, kind, workers, count, folder = args.one
        run_one(table, kind, int(workers), int(count), folder)
        return 0
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": []}
    if not args.report:
        table = Path(tempfile.gettempdir(), "reparto-scaling.csv")
        make_table(table)
        for turn in range(args.turns):
            for kind in KINDS:
                for workers in (1, 2) if turn % 2 == 0 else (2, 1):
                    row = measured(table, kind, workers, args.candidates)
                    row |= {"date": time.strftime("%Y-%m-%d"), "load": os.getloadavg()[0]}
                    print(row, flush=True)
                    found["runs"].append(row)
        found["environment"] = {"cores": os.cpu_count(), "rows": ROWS, "columns": COLUMNS}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(report(found["runs"]), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
