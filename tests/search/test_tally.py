"""Tally: what is known of a candidate while it is tried."""

import pytest

from reparto.search._crew import RungReached
from reparto.search._tally import Tally
from reparto.search._work import Reached
from reparto.spec import Candidate, Rung, RungScore


def reached(fold, share, row_s):
    rung = Rung(fold=fold, share=share)
    score = RungScore(rung=rung, score=1.0, predict_s=100 * row_s, num_rows=100)
    return RungReached(worker=0, number=0, reached=Reached(score))


def test_time_of_a_row_is_not_that_of_the_fold_which_waited_for_a_library():
    candidate = Candidate(number=0, technique="svm")
    rungs = (Rung(fold=0, share=0.3), *(Rung(fold=fold) for fold in range(3)))
    tally = Tally(candidate, rungs, worker=0, began_s=0.0)
    tally.add(reached(0, 0.3, 7e-6))
    assert tally.predict_row_s == pytest.approx(7e-6)
    for fold, row_s in enumerate((2e-6, 3e-6, 900e-6)):
        tally.add(reached(fold, 1.0, row_s))
    assert tally.evaluation("done", 1.0).predict_row_s == pytest.approx(3e-6)
