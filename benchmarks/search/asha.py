"""How soon does ASHA reach what random search finds? The same tables, techniques, spaces, seconds.

    python benchmarks/search/asha.py --seconds 25 --seeds 0,1,2     20 minutes; resumable
    python benchmarks/search/asha.py --seconds 25 --seeds 0 --bayes 3 minutes: a third kind
    python benchmarks/search/asha.py --report                       the figures so far

Random search trains every candidate on all folds and knows no settings to begin with. A search's
best so far is that of the candidates that have ended on all folds; ensembles are left out. What is
compared is the moment at which ASHA's best is as good as random search's at its end. A search of
kind bayes begins with the same settings as ASHA and draws more in the same way, but gives nobody
up: what it gains on random search is due to these, and what ASHA gains on it to giving up.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tables
from commit import commit

from reparto.search import search
from reparto.search.metrics import METRICS
from reparto.spec import SearchRequest

RESULTS = Path(__file__).resolve().parent / "results" / "asha.json"
KINDS = ("random", "asha", "bayes")
Json = dict[str, Any]


def searched(kind: Any, case: tables.Case, train: Path, seconds: float, seed: int) -> Json:
    """The best so far, each time that it got better: seconds and score."""
    request = SearchRequest(
        data=str(train),
        target=case.target,
        domain=case.domain,  # type: ignore[arg-type]
        metric=case.metric,
        search=kind,
        time_s=seconds,
        ensemble=False,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        result = search(request, Path(folder, "found"))
    sign = -1.0 if METRICS[case.metric].higher_is_better else 1.0
    best, steps = math.inf, []
    ended = sorted(result.evaluations, key=lambda one: one.ended_s)
    for one in ended:
        if one.score is not None and sign * one.score < best:
            best = sign * one.score
            steps.append([round(one.ended_s, 3), one.score, one.candidate.technique])
    counts: dict[str, int] = {}
    for one in ended:
        counts[one.status] = counts.get(one.status, 0) + 1
    last_s = max((one.ended_s for one in ended), default=0.0)
    return {"steps": steps, "counts": counts, "last_s": last_s, "took_s": result.took_s}


def report(found: Json) -> Json:
    """When the others were as good, as a share of the time that random search had."""
    rows: list[Json] = []
    for name, row in found["cases"].items():
        sign = -1.0 if METRICS[tables.case_named(name).metric].higher_is_better else 1.0
        for seed, kinds in row.items():
            if "random" in kinds:
                rows.append({"table": name, "seed": int(seed), **compared(kinds, sign)})
    medians = {kind: medians_of(kind, rows) for kind in KINDS[1:]}
    return {"seconds": found.get("seconds"), **medians, "rows": rows}


def compared(kinds: Json, sign: float) -> Json:
    """Of one table and seed."""
    random = kinds["random"]
    goal = sign * random["steps"][-1][1]
    found: Json = {"random": {"best": sign * goal, "candidates": random["counts"]}}
    for kind in KINDS[1:]:
        if kind not in kinds:
            continue
        steps = kinds[kind]["steps"]
        reached = [at for at, score, _ in steps if sign * score <= goal]
        found[kind] = {
            "best": steps[-1][1],
            "share_of_time": reached[0] / random["last_s"] if reached else None,
            "candidates": kinds[kind]["counts"],
        }
    return found


def medians_of(kind: str, rows: list[Json]) -> Json | None:
    """Over tables, of the median over each one's seeds; one that never was as good is infinite."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        if kind in row:
            share = row[kind]["share_of_time"]
            shares.setdefault(row["table"], []).append(math.inf if share is None else share)
    if not shares:
        return None
    by_table = {name: statistics.median(own) for name, own in shares.items()}
    runs = [share for own in shares.values() for share in own]
    return {
        "median_share": statistics.median(by_table.values()),
        "by_table": by_table,
        "runs": len(runs),
        "runs_as_good_in_half_the_time": sum(share <= 0.5 for share in runs),
        "runs_never_as_good": sum(math.isinf(share) for share in runs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", default="0", metavar="0,1,…")
    parser.add_argument("--bayes", action="store_true", help="this kind too")
    parser.add_argument("--anew", action="store_true", help="what was measured is forgotten")
    parser.add_argument("--only", metavar="TABLE,…")
    parser.add_argument("--tables", type=Path, default=Path(tempfile.gettempdir(), "tables"))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    kept = RESULTS.exists() and not args.anew
    found = json.loads(RESULTS.read_text()) if kept else {"cases": {}}
    todo = [
        (seed, case, kind)
        for seed in args.seeds.split(",")
        for case in tables.CASES
        for kind in (KINDS if args.bayes else KINDS[:2])
        if not args.only or case.name in args.only.split(",")
    ]
    for seed, case, kind in () if args.report else todo:
        row = found["cases"].setdefault(case.name, {}).setdefault(seed, {})
        if kind in row:
            continue
        train, _ = tables.written(case, args.tables)
        row[kind] = searched(kind, case, train, args.seconds, int(seed))
        row[kind]["commit"] = commit()
        found |= {"date": time.strftime("%Y-%m-%d"), "seconds": args.seconds}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print(case.name, seed, kind, row[kind]["counts"], row[kind]["steps"][-1], flush=True)
    print(json.dumps(report(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
