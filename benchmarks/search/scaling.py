"""Two workers beside one: candidates a second, and memory. Candidates are of equal size.

    python benchmarks/search/scaling.py --turns 3       in turns, a line a run; appends to results
    python benchmarks/search/scaling.py --anew          the same; what was measured is forgotten
    python benchmarks/search/scaling.py --time-only     no runs in which memory is measured
    python benchmarks/search/scaling.py --report        the figures so far

A run is `reparto.search.search` in a process of its own, over a table that is made here. Seconds
are those from the first candidate's begin to the last one's end. Beside each stands what nothing
can do better (`bare.py`): forks of a process that has imported the library and laid out the table,
which call the library itself and wait for nobody.

Memory is measured in runs of their own: to look at it takes 3 ms of each process, of which a
machine whose cores are all at work has none to spare. It is the most that all processes had
together while candidates ran, a page that several of them share counted once (PSS).

Two workers need all of two cores, so a line says how much of the machine others had meanwhile, the
begin of the run included, at which a core is free.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from bare import KINDS, read_table, run_bare
from commit import commit

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "scaling.json"
#: Candidates of a run in which time is measured, and of one in which memory is.
COUNTS = {"time": {"lightgbm": 12, "random-forest": 8}, "memory": dict.fromkeys(KINDS, 4)}
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


def run_reparto(table: str, kind: str, workers: int, count: int) -> Json:
    """One search."""
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
    with tempfile.TemporaryDirectory() as folder:
        result = search(request, Path(folder, "found"))
    done = [one for one in result.evaluations if one.status == "done"]
    assert len(done) == count, [one.failure for one in result.evaluations]
    began, ended = min(it.began_s for it in done), max(it.ended_s for it in done)
    return {
        "search_s": ended - began,
        "candidate_s": statistics.median(it.busy_s for it in done),
        "busy_s": sum(it.busy_s for it in done),
        "candidate_bytes": max(it.peak_bytes for it in done),
        "between": [start + began, start + ended],
    }


def others_share(busy_s: float, own_s: float, wall_s: float) -> float:
    return max(0.0, busy_s - own_s) / wall_s / (os.cpu_count() or 1)


def busy_s() -> float:
    """That all cores together have worked, for whomever, or were taken away."""
    user, nice, system, _, _, *more = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = int(user) + int(nice) + int(system) + sum(map(int, more[:3]))
    return ticks / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """That this process and those that it has waited for have worked."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def measured(what: str, system: str, table: Path, kind: str, workers: int) -> Json:
    """One run in a process of its own; if memory is measured, the most of all its processes."""
    before = busy_s(), own_s(), time.monotonic()
    count = COUNTS[what][kind]
    words = ["--one", system, str(table), kind, str(workers), str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, env=environment
    )
    looks = []
    while what == "memory" and process.poll() is None:
        looks.append((time.monotonic(), shared_out_bytes(process.pid)))
        time.sleep(LOOK_S)
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a run ended with status {process.returncode}")
    told = json.loads(text.strip().splitlines()[-1])
    begin, end = told.pop("between")
    if what == "memory":
        told["memory_bytes"] = max(size for at, size in looks if begin < at < end)
    after = busy_s(), own_s(), time.monotonic()
    told["others_share"] = others_share(*(b - a for a, b in zip(before, after, strict=True)))
    return {"what": what, "system": system, "kind": kind, "workers": workers, **told}


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

    def of(what: str, system: str, kind: str, workers: int, name: str) -> list[float]:
        wanted = (what, system, kind, workers)
        keys = ("what", "system", "kind", "workers")
        return [it[name] for it in runs if tuple(it[key] for key in keys) == wanted and name in it]

    found: Json = {}
    for kind in KINDS:
        row: Json = {}
        for system in ("reparto", "bare"):
            one, two = (of("time", system, kind, n, "search_s") for n in (1, 2))
            faster = [a / b for a, b in zip(one, two, strict=False)]
            one, two = (of("time", system, kind, n, "candidate_s") for n in (1, 2))
            slower = [b / a for a, b in zip(one, two, strict=False)]
            one, two = (of("memory", system, kind, n, "memory_bytes") for n in (1, 2))
            more = [(b - a) / 1e6 for a, b in zip(one, two, strict=False)]
            if not faster or not more:
                continue
            row[system] = {
                "turns": len(faster),
                "faster": statistics.median(faster),
                "faster_by_turn": [round(it, 3) for it in faster],
                "candidate_slower": statistics.median(slower),
                "others_most_beside_two": max(
                    of("time", system, kind, 2, "others_share"), default=None
                ),
                "memory_1_mb": statistics.median(one) / 1e6,
                "memory_more_mb": statistics.median(more),
                "memory_more_mb_by_turn": [round(it, 1) for it in more],
            }
        if len(row) < 2:
            continue
        own = of("memory", "reparto", kind, 2, "candidate_bytes")
        busy = of("time", "reparto", kind, 2, "busy_s"), of("time", "reparto", kind, 2, "search_s")
        row["reparto"]["busy_share_of_2"] = statistics.median(
            a / b / 2 for a, b in zip(*busy, strict=True)
        )
        row["candidate_own_mb"] = statistics.median(own) / 1e6
        row["faster_as_share_of_bare"] = row["reparto"]["faster"] / row["bare"]["faster"]
        found[kind] = row
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", choices=tuple(KINDS))
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--time-only", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        system, table, kind, workers, count = args.one
        if system == "reparto":
            told = run_reparto(table, kind, int(workers), int(count))
        else:
            told = run_bare(*read_table(table, FOLDS), kind, int(workers), int(count), FOLDS)
        print(json.dumps(told))
        return 0
    kept = RESULTS.exists() and not args.anew
    found = json.loads(RESULTS.read_text()) if kept else {"runs": []}
    if not args.report:
        table = Path(tempfile.gettempdir(), "reparto-scaling.csv")
        make_table(table)
        for turn in range(args.turns):
            runs = [
                (what, system, kind, workers)
                for kind in ([args.only] if args.only else KINDS)
                for what in (("time",) if args.time_only else ("time", "memory"))
                for system in ("reparto", "bare")
                for workers in (1, 2)
            ]
            for what, system, kind, workers in runs if turn % 2 == 0 else runs[::-1]:
                row = measured(what, system, table, kind, workers)
                row["date"] = time.strftime("%Y-%m-%d")
                print(row, flush=True)
                found["runs"].append(row)
        found["environment"] = {
            "cores": os.cpu_count(), "rows": ROWS, "columns": COLUMNS, "commit": commit()
        }  # fmt: skip
        found["settings"] = KINDS
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(report(found["runs"]), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
