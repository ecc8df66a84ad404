"""Which rungs a candidate has, by the data, the technique and the kind of search."""

from __future__ import annotations

from reparto.spec import Rung, SearchKind, TableFacts

#: Parts of a fold's training after which a candidate may be given up.
SHARES = (1 / 9, 1 / 3)
#: A table of fewer values is trained on in no time: its folds are rungs enough.
SMALL_VALUES = 60_000
#: A part of the rows that is smaller says little.
FEWEST_ROWS = 300


def rungs_of(
    search: SearchKind, num_folds: int, resource: str, facts: TableFacts | None
) -> tuple[Rung, ...]:
    """The rungs of a candidate, in order; each fold ends with one of the whole training.

    Args:
        search: Only ``asha`` gives up in the midst of a fold.
        num_folds: Of the search.
        resource: What a part of the training is: ``rows``, or something that goes on.
        facts: Of the table; None for a script or a function.
    """
    shares: tuple[float, ...] = (
        SHARES if search == "asha" and _is_worth_it(resource, facts) else ()
    )
    if resource == "rows" and facts is not None:
        rows = facts.num_rows * (1 - 1 / max(num_folds, 5))
        shares = tuple(share for share in shares if share * rows >= FEWEST_ROWS)
    first = tuple(Rung(fold=0, share=share) for share in (*shares, 1.0))
    return (*first, *(Rung(fold=fold) for fold in range(1, num_folds)))


def _is_worth_it(resource: str, facts: TableFacts | None) -> bool:
    if facts is None:
        return resource != "none"
    return facts.num_rows * max(1, facts.num_columns) >= SMALL_VALUES
