"""Evidence: what the best candidate answered, beside what is true, for the report."""

from __future__ import annotations

from dataclasses import dataclass

from reparto.search._rows import Answer, Vector


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
