"""How soon does ASHA reach what random search finds? The same tables, techniques, spaces, seconds.

    python benchmarks/search/asha.py             17 minutes on a quiet machine; resumable
    python benchmarks/search/asha.py --report    the figures so far

Random search trains every candidate on all folds and knows no settings to begin with. A search's
best so far is that of the candidates that have ended on all folds; ensembles are left out. What is
compared is the moment at which ASHA's best is as good as random search's at its end.
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

from reparto.search import search
from reparto.search.metrics import METRICS
from reparto.spec import SearchRequest

RESULTS = Path(__file__).resolve().parent / "results" / "asha.json"
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
    """When ASHA was as good, as a share of the time that random search had."""
    rows = []
    for name, row in found["cases"].items():
        case = tables.case_named(name)
        sign = -1.0 if METRICS[case.metric].higher_is_better else 1.0
        for seed, pair in row.items():
            goal = sign * pair["random"]["steps"][-1][1]
            whole_s = pair["random"]["last_s"]
            reached = [at for at, score, _ in pair["asha"]["steps"] if sign * score <= goal]
            rows.append(
                {
                    "table": name,
                    "seed": int(seed),
                    "random": sign * goal,
                    "asha": pair["asha"]["steps"][-1][1],
                    "share_of_time": reached[0] / whole_s if reached else None,
                    "random_candidates": pair["random"]["counts"],
                    "asha_candidates": pair["asha"]["counts"],
                }
            )
    shares = [math.inf if row["share_of_time"] is None else row["share_of_time"] for row in rows]
    return {"median_share": statistics.median(shares) if shares else None, "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="TABLE,…")
    parser.add_argument("--tables", type=Path, default=Path(tempfile.gettempdir(), "tables"))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    for case in () if args.report else tables.CASES:
        if args.only and case.name not in args.only.split(","):
            continue
        row = found["cases"].setdefault(case.name, {})
        if str(args.seed) in row:
            continue
        train, _ = tables.written(case, args.tables)
        row[str(args.seed)] = {
            kind: searched(kind, case, train, args.seconds, args.seed)
            for kind in ("random", "asha")
        }
        found["date"] = time.strftime("%Y-%m-%d")
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(report(found)["rows"][-1]), flush=True)
    print(json.dumps(report(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
