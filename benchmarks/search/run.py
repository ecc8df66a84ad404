"""reparto search beside FLAML and AutoGluon: the same tables, cores, seconds and test rows.

    python benchmarks/search/run.py --flaml ENV/bin/python --autogluon ENV/bin/python
    python benchmarks/search/run.py --report     the figures so far

Each system has an environment of its own and the machine to itself; they take turns on each table.
The test rows are seen by none of them; what they foretell is scored here. Resumable.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import tables
from commit import commit

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "peers.json"
SYSTEMS = ("reparto", "flaml", "autogluon")
Json = dict[str, Any]


def ours(case: tables.Case, train: Path, test: Path, seconds: float, folder: Path) -> Json:
    """`reparto search`, then `reparto predict` in a process of its own."""
    found, answer = folder / "found", folder / "answer.csv"
    began = time.monotonic()
    own = ["--target", case.target, "--domain", case.domain, "--metric", case.metric]
    own += ["--time", f"{seconds:g}s", "--out", str(found)]
    command = [sys.executable, "-m", "reparto"]
    subprocess.run([*command, "search", str(train), *own], check=True, stdout=subprocess.DEVNULL)
    took_s = time.monotonic() - began
    asked = folder / "asked.csv"
    pd.read_csv(test).drop(columns=case.target).to_csv(asked, index=False)
    subprocess.run(
        [*command, "predict", str(found), str(asked), "--out", str(answer)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    told = json.loads((found / "search.json").read_text())
    best = next(one for one in told["evaluations"] if one["candidate"]["number"] == told["best"])
    return {
        "took_s": took_s,
        "score": scored(case, test, answer),
        "best": best["candidate"]["technique"],
        "foretold": best["score"],
        "num_candidates": len(told["evaluations"]),
    }


def peer(
    python: str,
    name: str,
    case: tables.Case,
    train: Path,
    test: Path,
    seconds: float,
    folder: Path,
) -> Json:
    """FLAML or AutoGluon."""
    answer = folder / "answer.csv"
    command = [python, str(HERE / "peers" / f"{name}_one.py"), str(train), str(test)]
    command += [case.target, case.domain, case.metric, str(seconds), str(answer)]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        return {"failure": done.stderr.strip().splitlines()[-1:]}
    told = json.loads(done.stdout.strip().splitlines()[-1])
    whole_s = time.monotonic() - began
    return {
        "took_s": told["fit_s"],
        "whole_s": whole_s,
        "score": scored(case, test, answer),
        "best": told["best"],
    }


def scored(case: tables.Case, test: Path, answer: Path) -> float:
    """By scikit-learn, from what was foretold."""
    from sklearn import metrics

    truth, said = pd.read_csv(test)[case.target], pd.read_csv(answer)
    if case.domain == "regression":
        return float(metrics.root_mean_squared_error(truth, said.iloc[:, 0]))
    classes = sorted(truth.astype(str).unique())
    columns = {name.removeprefix("probability of "): name for name in said.columns}
    chances = said[[columns[name] for name in classes]].to_numpy()
    if case.domain == "binary":
        return float(metrics.roc_auc_score(truth.astype(str) == classes[1], chances[:, 1]))
    return float(metrics.log_loss(truth.astype(str), chances, labels=classes))


def report(found: Json) -> Json:
    """Mean ranks beside each peer, on the tables that it was run on, and overruns of the time."""
    rows, overrun = [], dict[str, float]()
    for name, row in found["cases"].items():
        known = {it: row[it] for it in SYSTEMS if "score" in row.get(it, {})}
        for it, told in known.items():
            overrun[it] = max(told["took_s"] / row["seconds"] - 1, overrun.get(it, -1.0))
        rows.append({"table": name, **{it: told["score"] for it, told in known.items()}})
    return {
        "mean_rank": {peer: mean_ranks(rows, ("reparto", peer)) for peer in SYSTEMS[1:]},
        "of_all": mean_ranks(rows, SYSTEMS),
        "worst_overrun": overrun,
        "rows": rows,
    }


def mean_ranks(rows: list[Json], systems: tuple[str, ...]) -> Json:
    """On the tables that all of them were run on; equals share their ranks."""
    ranks: dict[str, list[float]] = {it: [] for it in systems}
    for row in rows:
        if not all(it in row for it in systems):
            continue
        sign = -1.0 if tables.case_named(row["table"]).metric == "auroc" else 1.0
        losses = [sign * row[it] for it in systems]
        for it, own in zip(systems, losses, strict=True):
            better = sum(other < own for other in losses)
            ranks[it].append(1 + better + (losses.count(own) - 1) / 2)
    count = len(ranks[systems[0]])
    means = {it: statistics.fmean(each) for it, each in ranks.items() if each}
    return {"tables": count, **means}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flaml", metavar="PYTHON")
    parser.add_argument("--autogluon", metavar="PYTHON")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", metavar="TABLE,…")
    parser.add_argument("--again", action="store_true", help="ours once more; peers are kept")
    parser.add_argument("--tables", type=Path, default=Path(tempfile.gettempdir(), "tables"))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    for case in () if args.report else tables.CASES:
        if args.only and case.name not in args.only.split(","):
            continue
        row = found["cases"].setdefault(case.name, {"seconds": args.seconds})
        train, test = tables.written(case, args.tables)
        for name, python in (
            ("reparto", sys.executable),
            ("flaml", args.flaml),
            ("autogluon", args.autogluon),
        ):
            if python is None or (name in row and not (args.again and name == "reparto")):
                continue
            with tempfile.TemporaryDirectory() as folder:
                at = (case, train, test, args.seconds, Path(folder))
                row[name] = ours(*at) if name == "reparto" else peer(python, name, *at)
            row[name]["date"] = time.strftime("%Y-%m-%d")
            if name == "reparto":
                row[name]["commit"] = commit()
            print(case.name, name, row[name], flush=True)
            found["environment"] = {
                "cores": os.cpu_count(),
                **{it: version(it) for it in ("scikit-learn", "lightgbm", "torch")},
            }
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(report(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
