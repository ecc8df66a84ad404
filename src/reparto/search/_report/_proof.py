"""Proof: the evidence of a search, looked through: what is there, of one length, and finite."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from reparto.search._evidence import Evidence
from reparto.search._rows import Answer, Vector
from reparto.spec import TableFacts


@dataclass(frozen=True)
class Pair:
    """Answers beside truths.

    Attributes:
        truth: Of each row.
        answer: Of each row, finite.
        where: Which rows these are, for people.
        num_dropped: Rows whose answer is no number.
    """

    truth: Vector
    answer: Answer
    where: str
    num_dropped: int = 0


@dataclass(frozen=True)
class Proof:
    """What can be shown.

    Attributes:
        pairs: For the tested rows of the folds, and for the test table.
        clusters: Of a sample of the rows.
        importances: Of each column.
        how: How these were found.
        num_test_rows: Of the test table.
        notes: What cannot be shown, and why.
    """

    pairs: tuple[Pair, ...] = ()
    clusters: Vector | None = None
    importances: tuple[tuple[str, float], ...] = ()
    how: str = ""
    num_test_rows: int = 0
    notes: tuple[str, ...] = field(default=())


def proof_of(evidence: Evidence, facts: TableFacts | None, num_folds: int) -> Proof:
    """Look through the evidence."""
    if facts is None:
        return Proof()
    finite = tuple((name, value) for name, value in evidence.importances if np.isfinite(value))
    num_test = 0 if evidence.test_truth is None else len(evidence.test_truth)
    if facts.domain == "clustering":
        clusters = None if evidence.answer is None else evidence.answer.values
        return Proof((), clusters, finite, evidence.importances_how, num_test)
    folds = "rows of the folds that it was not trained on"
    folds = folds if num_folds > 1 else "rows of the split that it was not trained on"
    parts = (
        (evidence.test_truth, evidence.test_answer, "rows of the test table"),
        (evidence.truth, evidence.answer, folds),
    )
    pairs, notes = [], []
    for truth, answer, where in parts:
        if truth is None or answer is None or not len(truth):
            continue
        if not _fits(truth, answer, facts):
            notes.append(f"{where}: answers of the form {answer.values.shape} for {len(truth)}")
            continue
        pairs.append(_finite(truth, answer, where))
    return Proof(
        tuple(one for one in pairs if len(one.truth)), None, finite,
        evidence.importances_how, num_test, tuple(notes),
    )  # fmt: skip


def _fits(truth: Vector, answer: Answer, facts: TableFacts) -> bool:
    shape = (len(truth), len(facts.classes)) if facts.is_classification else (len(truth),)
    return answer.values.shape == shape


def _finite(truth: Vector, answer: Answer, where: str) -> Pair:
    values = answer.values
    good = np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)
    good = good & np.isfinite(truth)
    if good.all():
        return Pair(truth, answer, where)
    kept = Answer(values[good], answer.are_probabilities)
    return Pair(truth[good], kept, where, int((~good).sum()))
