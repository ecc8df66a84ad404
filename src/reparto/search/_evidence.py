"""Evidence: what the best candidate answered, beside what is true, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reparto.search._rows import Answer, Vector

if TYPE_CHECKING:
    from reparto.search._finish import Finished
    from reparto.search._setup import Setup


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Rows that a model was not trained on, in the same order in truth and answer.

    Attributes:
        truth: Of the tested rows of all folds, one fold after the other; None for clustering.
        answer: Of the best candidate; of a clustering, the clusters of a sample.
        test_truth: Of the rows of the test table.
        test_answer: Of the model that is saved.
        importances: Of each column, the most important first, adding up to one.
        importances_how: How these were found.
    """

    truth: Vector | None = None
    answer: Answer | None = None
    test_truth: Vector | None = None
    test_answer: Answer | None = None
    importances: tuple[tuple[str, float], ...] = ()
    importances_how: str = ""


def evidence_of(setup: Setup, finished: Finished) -> Evidence:
    """What is known of the best one when a search is over."""
    import numpy as np

    from reparto.search._importances import Importances, importances_of

    truth, answer = None, finished.clusters
    if finished.answers and setup.truths:
        truth = np.concatenate(setup.truths[: len(finished.answers)])
        values = np.concatenate([one.values for one in finished.answers])
        answer = Answer(values, all(one.are_probabilities for one in finished.answers))
    importances: Importances = ()
    how = ""
    test_truth = None if setup.test is None else setup.test.y
    if finished.model is not None and setup.facts is not None:
        importances, how = importances_of(
            setup.facts.columns,
            finished.lost,
            finished.importances,
            setup.metric,
            on_test=test_truth is not None,
        )
    return Evidence(
        truth=truth,
        answer=answer,
        test_truth=test_truth,
        test_answer=finished.test_answer,
        importances=importances,
        importances_how=how,
    )
