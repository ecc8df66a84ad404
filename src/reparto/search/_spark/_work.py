"""SparkWork: a thread that has the cluster train and test one candidate after the other."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.search._rows import Answer
from reparto.search._spark._bring import bring
from reparto.search._spark._brought import load_brought
from reparto.search._spark._mllib import MLlib
from reparto.search._spark._prepare import Prepared
from reparto.search._spark._read import Frame
from reparto.search._spark._scores import (
    PREDICTION,
    VALUES,
    answer_of,
    scores_of_clusters,
    scores_on_cluster,
)
from reparto.search._spark._session import cause_of
from reparto.search._spark._share_out import DRAW
from reparto.search._spark._techniques import spark_technique_named
from reparto.search._spark._typed import FEATURES, LABEL, ROW
from reparto.search._work import Attempt, Fitted, Reached, Work
from reparto.spec import Candidate, Rung, RungScore, TableFacts, to_plain

if TYPE_CHECKING:
    from reparto.search._spark._source import SparkSource

_COUNT = itertools.count()


class SparkWork(Work):
    """Trains candidates on a cluster. Jobs of a candidate are a group, which can be cancelled.

    Args:
        source: The table.
        metric: By which candidates are ranked.
        number: Of the worker; its jobs share the cluster fairly with others'.
    """

    def __init__(self, source: SparkSource, metric: str, number: int) -> None:
        self.source, self.metric, self._number = source, metric, number
        self._group = ""
        self._is_stopped = False

    def open(self, threads: int) -> None:
        """Nothing: the session is the search's."""

    def attempt(self, candidate: Candidate, seed: int) -> Attempt:
        """Begin with a candidate."""
        self._group = f"candidate {candidate.number}.{next(_COUNT)}"
        return _SparkAttempt(self, candidate, seed, self._group)

    def fit(self, candidate: Candidate, seed: int, folder: str) -> Fitted:
        """Train once more, bring the model home, and test it."""
        source, facts = self.source, self.source.facts
        self._group = f"model {candidate.number}.{next(_COUNT)}"
        with self.jobs(self._group), in_a_line():
            began = time.monotonic()
            trained = Trained(source, candidate, seed, None, 1.0)
            fit_s = time.monotonic() - began
            bring(trained.model, trained.prepared, facts, Path(folder))
            scores = {}
            if source.test_frame is not None and facts.domain != "clustering":
                predicted = trained.predict(source.test_frame)
                scores = scores_on_cluster(
                    predicted, facts, are_probabilities=trained.are_probabilities
                )
            few = source.sample(1000)
        home = load_brought(Path(folder), to_plain(facts))
        began = time.monotonic()
        home.predict(few.x)
        predict_s = time.monotonic() - began
        own = home.importances()
        return Fitted(
            folder=folder,
            fit_s=fit_s,
            size_bytes=sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file()),
            predict_row_s=predict_s / max(1, len(few)),
            test_answer=None if source.test is None else home.predict(source.test.x),
            test_scores=scores,
            importances=None if own is None else tuple(own),
        )

    def jobs(self, group: str) -> Any:
        """Spark's jobs of this thread are of this group.

        Raises:
            InterruptedError: If it was stopped.
        """
        if self._is_stopped:
            raise InterruptedError("it was stopped")
        return self.source.session.jobs(group, f"worker {self._number}")

    def stop(self) -> None:
        """Cancel the jobs that run for it."""
        self._is_stopped = True
        if self._group:
            self.source.session.cancel(self._group)


class Trained:
    """A model of MLlib, trained on the rows of a fold or on all.

    Args:
        source: The table.
        candidate: What is trained.
        seed: Of all that is random.
        fold: Which one; None for all rows.
        share: Of the fold's rows.
    """

    def __init__(
        self, source: SparkSource, candidate: Candidate, seed: int, fold: int | None, share: float
    ) -> None:
        facts = source.facts
        technique = spark_technique_named(candidate.technique)
        self.prepared: Prepared = source.prepared(fold, technique.way(candidate.settings, facts))
        rows = self.prepared.apply(source.split.trained(source.frame, fold, share))
        rows = rows.select(FEATURES, LABEL) if facts.target else rows.select(FEATURES)
        _refuse_untrainable(technique, rows, facts)
        estimator = technique.estimator(candidate.settings, facts, seed)
        self.model: Any = estimator.fit(rows)
        self._facts = facts
        self.are_probabilities = facts.is_classification and self.model.hasParam("probabilityCol")

    def predict(self, frame: Frame) -> Frame:
        """Rows with what the model says of them."""
        from pyspark.ml.functions import vector_to_array
        from pyspark.sql import functions as f

        facts = self._facts
        rows = self.model.transform(self.prepared.apply(frame))
        wanted = [ROW, DRAW, PREDICTION]
        if facts.target:
            wanted.append(LABEL)
        if facts.is_classification:
            column = "probability" if self.are_probabilities else "rawPrediction"
            rows = rows.withColumn(VALUES, vector_to_array(f.col(column)))
            wanted.append(VALUES)
        return rows.select(*wanted)


@contextlib.contextmanager
def in_a_line() -> Iterator[None]:
    """A failure of Spark in a line; a hundred lines of Java follow in its traceback.

    Raises:
        SparkFailure: If Spark failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise SparkFailure(cause_of(error)) from error


class SparkFailure(Exception):
    """What the cluster could not do."""


def _refuse_untrainable(technique: MLlib, rows: Frame, facts: TableFacts) -> None:
    """Naive Bayes of MLlib numbers classes anew if one of them is not there."""
    if technique.kind != "naive-bayes":
        return
    there = {int(row[0]) for row in rows.select(LABEL).distinct().collect()}
    lost = [name for number, name in enumerate(facts.classes) if number not in there]
    if lost:
        raise ValueError(
            f"MLlib's naive Bayes wants rows of each class, and there is none of {lost[0]} "
            "among those that it is trained on"
        )


class _SparkAttempt(Attempt):
    def __init__(self, work: SparkWork, candidate: Candidate, seed: int, group: str) -> None:
        self._work, self._candidate, self._seed, self._group = work, candidate, seed, group

    def reach(self, rung: Rung) -> Reached:
        with self._work.jobs(self._group), in_a_line():
            return self._reached(rung)

    def _reached(self, rung: Rung) -> Reached:
        source, facts = self._work.source, self._work.source.facts
        began = time.monotonic()
        trained = Trained(source, self._candidate, self._seed, rung.fold, rung.share)
        fit_s = time.monotonic() - began
        began = time.monotonic()
        tested = source.split.tested(source.frame, rung.fold)
        count = source.counts[rung.fold]
        whole = rung.share >= 1.0
        answer: Answer | None = None
        if facts.domain == "clustering":
            few = trained.predict(source.told(tested, count))
            answer = answer_of(few, facts, are_probabilities=False)
            judged = source.judged(rung.fold)
            scores = scores_of_clusters(answer, facts, judged, self._seed)
        else:
            predicted = trained.predict(tested).persist()
            try:
                scores = scores_on_cluster(
                    predicted, facts, are_probabilities=trained.are_probabilities
                )
                if whole:
                    few = source.told(predicted, count)
                    answer = answer_of(few, facts, are_probabilities=trained.are_probabilities)
            finally:
                predicted.unpersist()
        predict_s = time.monotonic() - began
        score = RungScore(
            rung=rung,
            score=self._score(scores, rung, trained),
            scores=scores,
            fit_s=fit_s,
            predict_s=predict_s,
            num_rows=count,
        )
        return Reached(
            score=score,
            answer=answer if whole else None,
        )

    def _score(self, scores: dict[str, float], rung: Rung, trained: Trained) -> float:
        metric = self._work.metric
        value = scores.get(metric, math.nan)
        if math.isfinite(value):
            return value
        if self._work.source.facts.is_classification and not trained.are_probabilities:
            raise ValueError(
                f"{metric} wants probabilities, and {self._candidate.technique} has none"
            )
        raise ValueError(f"{metric} is not defined on fold {rung.fold}")
