"""Searches made up for the tests of the report, with the noise of a real one."""

import dataclasses

import numpy as np

from reparto.search._evidence import Evidence
from reparto.search._rows import Answer
from reparto.spec import (
    Bill,
    Candidate,
    Evaluation,
    FoundModel,
    Rung,
    RungScore,
    SearchColumn,
    SearchRequest,
    SearchResult,
    TableFacts,
    WorkerBill,
)

KINDS = ("lightgbm", "random-forest", "logistic-regression", "k-neighbours", "svm")
METRICS = {
    "binary": ("matthews", True),
    "multiclass": ("f1", True),
    "regression": ("rmse", False),
    "clustering": ("silhouette", True),
}
BESIDE = {
    "binary": ("accuracy", "auroc", "f1", "log-loss"),
    "multiclass": ("accuracy", "auroc"),
    "regression": ("mae", "r2"),
    "clustering": (),
}


def columns(count=6):
    """Numbers, a category with an angry name, one with missing values."""
    named = [SearchColumn(name=f"c{i}", why="all are numbers") for i in range(count)]
    named[0] = dataclasses.replace(named[0], num_missing=17)
    named[-1] = SearchColumn(name="<b>a&b</b>", kind="category", levels=("x", "<y>"), why="text")
    return tuple(named)


def facts(domain="binary", classes=("no", "yes"), rows=400, num_columns=6):
    """Of a table."""
    is_class = domain in ("binary", "multiclass")
    share = rows // max(1, len(classes))
    return TableFacts(
        path="data/some.csv",
        format="csv",
        num_rows=rows,
        num_rows_in_file=rows + 3,
        columns=columns(num_columns),
        target="" if domain == "clustering" else "wanted",
        domain=domain,
        classes=classes if is_class else (),
        class_counts=(share,) * len(classes) if is_class else (),
        digest="0123456789abcdef0123",
        notes=("column id was left out: each row has another value", "3 rows have no target"),
    )


def evaluation(number, domain, random, *, status="done", folds=5, at=0.0, kind=None, level=None):
    """A candidate that has come to an end."""
    metric, higher = METRICS.get(domain, ("value", False))
    level = 0.8 + 0.12 * random.beta(4, 2) if level is None else level
    level = level if higher else 100 * (1.3 - level)
    noise = 0.015 if higher else 2.0
    shares = [(0, 0.11), (0, 0.33), *((fold, 1.0) for fold in range(folds))]
    if status == "pruned":
        shares = shares[: 1 + number % 2]
        level = level * 0.7 if higher else level * 1.4
    rungs = []
    for fold, share in shares if status in ("done", "pruned") else ():
        score = level + noise * random.standard_normal() - (0.1 if higher else -8) * (1 - share)
        beside = {name: 0.9 + 0.02 * random.random() for name in BESIDE.get(domain, ())}
        rungs.append(
            RungScore(
                rung=Rung(fold=fold, share=share),
                score=float(score),
                scores={metric: float(score), **beside},
                fit_s=0.1,
                predict_s=0.01,
                num_rows=80,
            )
        )
    whole = [one.score for one in rungs if one.rung.share >= 1.0] if status == "done" else []
    busy_s = 0.2 + random.exponential(0.6)
    return Evaluation(
        candidate=Candidate(
            number=number,
            technique=kind or KINDS[number % len(KINDS)],
            settings={
                "learning_rate": float(10 ** random.uniform(-3, 0)),
                "trees": int(random.integers(10, 900)),
                "loss": ("log", "<exp>", "hinge")[number % 3],
                **({"depth": int(random.integers(2, 12))} if number % 4 else {}),
            },
            origin="portfolio" if number < 5 else "sampled",
        ),
        status=status,
        rungs=tuple(rungs),
        score=float(np.mean(whole)) if whole else None,
        spread=float(np.std(whole, ddof=1)) if len(whole) > 1 else None,
        scores={**rungs[-1].scores, metric: float(np.mean(whole))} if whole else {},
        failure="ValueError: <alpha> must be > 0" if status == "failed" else "",
        traceback="Traceback (most recent call last):\n  …\nValueError: <alpha> must be > 0"
        if status == "failed"
        else "",
        busy_s=busy_s,
        began_s=at,
        ended_s=at + busy_s,
        worker=number % 2,
        peak_bytes=5_000_000,
        size_bytes=int(random.integers(2_000, 4_000_000)),
        predict_row_s=float(10 ** random.uniform(-7, -4)),
    )


def result(domain="binary", count=40, *, seed=0, classes=("no", "yes"), **changes):
    """A search over a table."""
    random = np.random.default_rng(seed)
    metric, higher = METRICS[domain]
    clocks, found = [0.3, 0.5], []
    for number in range(count):
        status = "failed" if number % 13 == 7 else "pruned" if number % 3 == 2 else "done"
        one = evaluation(number, domain, random, status=status, at=clocks[number % 2])
        clocks[number % 2] = one.ended_s + 0.02
        found.append(one)
    end_s = max(clocks) + 1.5
    bill = Bill(
        workers=tuple(
            WorkerBill(
                worker=i,
                host="here",
                released_s=end_s - 0.5,
                busy_s=sum(one.busy_s for one in found if one.worker == i),
                num_candidates=count // 2,
            )
            for i in range(2)
        ),
        price_per_hour=0.4,
        paid_s=2 * (end_s - 0.5),
        busy_s=sum(one.busy_s for one in found),
        cost=2 * (end_s - 0.5) * 0.4 / 3600,
    )
    made = SearchResult(
        request=SearchRequest(data="data/some.csv", target="wanted", time_s=60.0),
        metric=metric,
        higher_is_better=higher,
        facts=facts(domain, classes),
        num_folds=5,
        split="5 stratified folds",
        evaluations=tuple(found),
        baseline=None if domain == "clustering" else (0.0 if higher else 77.0),
        bill=bill,
        took_s=end_s,
        ended="time",
        environment={"host": "here", "cores": 2, "versions": {"numpy": "2"}},
        command="reparto search search/again.json --out search-again",
        notes=("no limit was given, so it ends after 60 s",),
    )
    if made.leaderboard:
        best = made.leaderboard[0]
        model = FoundModel(
            folder="model",
            candidate=best.candidate,
            score=best.score,
            size_bytes=123_456,
            predict_row_s=3e-6,
        )
        made = dataclasses.replace(made, best=best.candidate.number, model=model)
    return dataclasses.replace(made, **changes)


def answers(num_classes, rows=400, seed=0):
    """Of a classification: right most of the time, and about as sure as that."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, num_classes, rows).astype(np.int32)
    logits = random.standard_normal((rows, num_classes)) * 1.3
    logits[np.arange(rows), truth] += 2.2
    values = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return truth, Answer(values, are_probabilities=True)


def evidence(domain="binary", num_classes=2, rows=400, num_columns=6):
    """Of the best candidate."""
    random = np.random.default_rng(1)
    named = [column.name for column in columns(num_columns)]
    weights = np.sort(random.dirichlet(np.full(len(named), 0.5)))[::-1]
    important = tuple(zip(named, map(float, weights), strict=True))
    how = "what it loses when a column is shuffled, on rows that it was trained on"
    if domain == "clustering":
        clusters = random.choice(5, rows, p=[0.4, 0.3, 0.15, 0.1, 0.05])
        return Evidence(answer=Answer(clusters))
    if domain == "regression":
        truth = 150 + 60 * random.standard_normal(rows)
        said = Answer(150 + 0.6 * (truth - 150) + 35 * random.standard_normal(rows))
    else:
        truth, said = answers(num_classes, rows)
    return Evidence(truth=truth, answer=said, importances=important, importances_how=how)
