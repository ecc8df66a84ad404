import dataclasses

import numpy as np
import pytest

from reparto.search import _ensemble
from reparto.search._answers import Answers
from reparto.search._bill import Ledger
from reparto.search._ensemble import Pool, mixed, weigh
from reparto.search._finish import is_surely_better
from reparto.search._prune import Pruner
from reparto.search._rows import Answer
from reparto.search._rungs import rungs_of
from reparto.search._tally import mean_scores
from reparto.spec import Candidate, Evaluation, Rung, RungScore, TableFacts


def regression_pool(noises, seed=0, costs=None):
    """Candidates whose answers are the truth and noise of their own."""
    draws = np.random.default_rng(seed)
    truths = [draws.normal(size=60) for _ in range(3)]
    answers = [
        [Answer(truth + noise * draws.normal(size=60)) for truth in truths] for noise in noises
    ]
    numbers = [10 + index for index in range(len(noises))]
    return Pool(numbers, answers, truths, False, costs or [1.0] * len(noises))


def error(pool, weights, fold):
    index = {number: i for i, number in enumerate(pool.numbers)}
    answers = [pool.answers[index[number]][fold] for number in weights]
    answer = mixed(answers, list(weights.values()))
    return float(np.square(answer.values - pool.truths[fold]).mean())


def test_candidates_that_err_apart_are_combined_and_better_on_a_fold_that_was_not_looked_at():
    pool = regression_pool([0.5, 0.5, 0.5, 3.0])
    weights = weigh(pool, most_s=100.0, without=2)
    assert set(weights) >= {10, 11, 12}
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights.get(13, 0.0) < 0.1
    alone = min(error(pool, {number: 1.0}, 2) for number in pool.numbers)
    assert error(pool, weights, 2) < 0.7 * alone


def test_a_perfect_candidate_is_left_alone():
    assert weigh(regression_pool([0.0, 0.5, 0.5]), most_s=100.0) == {10: 1.0}


def test_of_very_many_that_are_alike_those_that_count_most_are_taken():
    weights = weigh(regression_pool([2.0] * 300), most_s=1e9)
    assert len(weights) > 3 and sum(weights.values()) == pytest.approx(1.0)


def test_ensemble_takes_no_longer_to_train_than_there_is_time():
    pool = regression_pool([0.5] * 4, costs=[1.0, 5.0, 5.0, 1.0])
    assert set(weigh(pool, most_s=2.5)) == {10, 13}


def test_classes_are_combined_by_the_probability_of_what_is_true():
    truth = np.array([0, 1, 0, 1] * 10, dtype=np.int32)
    right = np.eye(2)[truth]
    sure = Answer(0.9 * right + 0.05, True)
    wrong = Answer(1.0 - (0.9 * right + 0.05), True)
    pool = Pool([0, 1], [[wrong], [sure]], [truth], True, [1.0, 1.0])
    assert weigh(pool, most_s=10.0) == {1: 1.0}


def test_of_few_rows_weights_are_found_on_several_draws_and_hold_better_on_others():
    """Many candidates that are alike: which of them is best on few rows is luck."""
    gains = []
    for seed in range(6):
        pool = regression_pool([1.0] * 15, seed=seed)
        few = dataclasses.replace(
            pool,
            answers=[
                [Answer(fold.values[:15]) for fold in one[:2]] + [one[2]] for one in pool.answers
            ],
            truths=[truth[:15] for truth in pool.truths[:2]] + [pool.truths[2]],
        )
        once = greedy(few, without=2)
        drawn = weigh(few, most_s=100.0, without=2)
        assert min(drawn.values()) >= 0.02 and sum(drawn.values()) == pytest.approx(1.0)
        assert drawn == weigh(few, most_s=100.0, without=2)
        gains.append(error(few, once, 2) / error(few, drawn, 2))
    assert np.mean(gains) > 1.05 and min(gains) > 1.0


def test_of_many_rows_weights_are_found_once(monkeypatch):
    monkeypatch.setattr(_ensemble, "DRAWN_VALUES", 100)
    pool = regression_pool([1.0] * 15)
    assert weigh(pool, most_s=100.0) == pytest.approx(greedy(pool))


def greedy(pool, without=None):
    """What is chosen on the rows as they are."""
    folds = [fold for fold in range(len(pool.truths)) if fold != without]
    answers = [np.concatenate([one[fold].values for fold in folds]) for one in pool.answers]
    truth = np.concatenate([pool.truths[fold] for fold in folds])
    chosen, best = [], np.inf
    for _ in range(_ensemble.ROUNDS):
        losses = [
            np.square(np.mean([*(answers[it] for it in chosen), one], axis=0) - truth).mean()
            for one in answers
        ]
        if min(losses) >= best:
            break
        best = min(losses)
        chosen.append(int(np.argmin(losses)))
    shares = np.bincount(chosen) / len(chosen)
    kept = {pool.numbers[at]: it for at, it in enumerate(shares) if it >= 0.02}
    return {number: share / sum(kept.values()) for number, share in kept.items()}


def evaluated(scores):
    rungs = tuple(RungScore(rung=Rung(fold=at), score=it) for at, it in enumerate(scores))
    mean = float(np.mean(scores))
    candidate = Candidate(number=0, technique="a")
    return Evaluation(candidate=candidate, status="done", rungs=rungs, score=mean)


@pytest.mark.parametrize("higher", [True, False])
def test_best_candidate_alone_has_to_be_surely_better_than_an_ensemble(higher):
    def surely(best, other):
        sign = 1.0 if higher else -1.0
        best, other = (evaluated([sign * it for it in one]) for one in (best, other))
        return is_surely_better(best, other, higher_is_better=higher)

    assert surely([0.9, 0.8, 0.7], [0.8, 0.7, 0.61])
    assert not surely([0.9, 0.8, 0.7], [0.8, 0.82, 0.69])
    assert not surely([0.9, 0.8, 0.7], [0.9, 0.8, 0.7])
    assert not surely([0.9, 0.8], [1.0, 0.9])
    # On a single split there is nothing to tell luck by.
    assert surely([0.9], [0.9]) and not surely([0.9], [0.91])


def test_answers_come_back_as_they_were_kept(tmp_path):
    kept = Answers(tmp_path / "answers")
    given = [Answer(np.array([[0.25, 0.75]], dtype=np.float32), True), Answer(np.array([2.0]))]
    kept.keep(3, given)
    found = kept.of(3)
    assert [one.are_probabilities for one in found] == [True, False]
    assert all((a.values == b.values).all() for a, b in zip(found, given, strict=True))
    assert kept.of(4) is None


def test_bill_counts_what_is_held_and_what_is_worked():
    ledger = Ledger(price_per_hour=36.0)
    ledger.acquired(0, 0.0)
    ledger.acquired(1, 10.0, "b")
    ledger.worked(0, 25.0)
    ledger.released(0, 30.0)
    ledger.released(0, 99.0)  # it is gone: nothing changes
    bill = ledger.bill(40.0)
    assert [line.paid_s for line in bill.workers] == [30.0, 30.0]
    assert (bill.busy_s, bill.paid_s, bill.cost) == (25.0, 60.0, pytest.approx(0.6))
    resumed = Ledger(36.0, bill)
    resumed.acquired(0, 40.0)
    assert resumed.bill(50.0).paid_s == 70.0


def score(value, fold=0, share=1.0):
    return RungScore(rung=Rung(fold=fold, share=share), score=value)


def candidate(number, technique="a"):
    return Candidate(number=number, technique=technique)


def test_one_in_three_goes_on_from_a_rung():
    pruner = Pruner(higher_is_better=True)
    order = np.random.default_rng(0).permutation(60)
    first = pruner.goes_on(candidate(0), [score(100.0, share=1 / 9)])
    on = [pruner.goes_on(candidate(int(i)), [score(float(i), share=1 / 9)]) for i in order]
    assert first
    assert sum(on[10:]) <= 0.5 * 50
    worst = [int(i) for i, it in zip(order, on, strict=True) if it][5:]
    assert min(worst) > 15


def test_lower_is_better_where_the_metric_says_so():
    pruner = Pruner(higher_is_better=False)
    for number in range(10):
        pruner.goes_on(candidate(number), [score(1.0)])
    assert pruner.goes_on(candidate(11), [score(0.5)])
    assert not pruner.goes_on(candidate(12), [score(2.0)])


def test_best_of_a_technique_goes_on_beside_better_ones():
    pruner = Pruner(higher_is_better=True)
    for number in range(10):
        pruner.goes_on(candidate(number), [score(0.9)])
    assert pruner.goes_on(candidate(11, "b"), [score(0.5)])
    assert not pruner.goes_on(candidate(12, "b"), [score(0.4)])


def test_many_of_a_good_technique_do_not_crowd_out_another_good_one():
    pruner = Pruner(higher_is_better=True)
    for number in range(30):
        pruner.goes_on(candidate(number), [score(0.9)])
    for number in range(6):
        pruner.goes_on(candidate(100 + number, "b"), [score(0.8 + 0.01 * number)])
    assert pruner.goes_on(candidate(200, "b"), [score(0.845)])  # among the best third of b
    assert not pruner.goes_on(candidate(201, "b"), [score(0.805)])
    for kind in ("c", "d"):  # b is the fourth best now
        pruner.goes_on(candidate(300, kind), [score(0.95)])
    assert not pruner.goes_on(candidate(202, "b"), [score(0.845)])


def test_hopeless_is_what_is_behind_on_all_folds_and_not_what_varies():
    pruner = Pruner(higher_is_better=True)
    pruner.done([score(0.9, fold) for fold in range(5)])
    behind = [score(0.8 + 0.001 * fold, fold) for fold in range(3)]
    varies = [score(0.7, 0), score(1.0, 1), score(0.9, 2)]
    assert not pruner.goes_on(candidate(1), behind)
    assert pruner.goes_on(candidate(2), varies)


def test_rungs_of_large_tables_begin_small():
    facts = TableFacts(num_rows=10_000, columns=())
    shares = [(one.fold, round(one.share, 2)) for one in rungs_of("asha", 3, "rows", facts)]
    assert shares == [(0, 1.0), (1, 1.0), (2, 1.0)]  # no columns: it is trained in no time
    wide = TableFacts(num_rows=100_000, columns=())
    shares = [(one.fold, round(one.share, 2)) for one in rungs_of("asha", 2, "rows", wide)]
    assert shares == [(0, 0.11), (0, 0.33), (0, 1.0), (1, 1.0)]
    assert len(rungs_of("random", 2, "rows", wide)) == 2


def test_part_of_few_rows_is_no_rung():
    facts = TableFacts(num_rows=1000, columns=tuple([None] * 100))
    assert next(round(one.share, 2) for one in rungs_of("asha", 5, "rows", facts)) == 1.0
    assert next(round(one.share, 2) for one in rungs_of("asha", 5, "iterations", facts)) == 0.11


def test_metrics_that_a_fold_lacks_have_no_mean():
    folds = [
        RungScore(rung=Rung(fold=0), score=1.0, scores={"f1": 0.5, "auroc": 0.7}),
        RungScore(rung=Rung(fold=1), score=1.0, scores={"f1": 0.7}),
    ]
    assert mean_scores(folds) == {"f1": pytest.approx(0.6)}
