"""By which rows training sees when to stop: of other groups, or later, where tested ones are."""

from dataclasses import replace

import numpy as np
import pytest

from reparto.search._board import Board
from reparto.search._folds import lay_out
from reparto.search._rows import Rows
from reparto.search._tables import Table
from reparto.search.techniques import TECHNIQUES, Setting
from reparto.search.techniques._spared import parted
from tests.search.techniques.tables import facts_of

PATIENT = {"iterations": 100, "early_stopping": True, "learning_rate": 0.3, "min_samples_leaf": 2}


def places(count, part):
    return set(np.arange(count)[part].tolist())


def trained(kind, facts, rows, settings=PATIENT, shares=(1 / 3, 1.0)):
    trainer = TECHNIQUES[kind].trainer(settings, Setting(facts, seed=0))
    for share in shares:
        trainer.train(rows, share)
    return trainer


def num_trees(kind, trainer):
    """How many it took until the spared rows were foretold best."""
    if kind == "lightgbm":
        return trainer._best[1]
    losses = -trainer.estimator.validation_score_
    return int(np.argmin(losses))


def by_heart(domain, num_groups=60, each=12):
    """A table of which nothing can be learnt but which group a row is of, which tells all."""
    random = np.random.default_rng(0)
    groups = random.permutation(np.repeat(np.arange(num_groups), each))
    told = random.normal(size=num_groups)
    x = np.stack([groups + 0.0, random.normal(size=len(groups))], axis=1)
    y = told[groups]
    if domain == "binary":
        y = (y > 0).astype(np.int32)
    facts = facts_of(x, domain, 2 if domain == "binary" else 0)
    return replace(facts, groups="who"), x, y, groups


def old_and_new(num_rows=800):
    """The newest fifth follows nothing of what the older rows followed."""
    random = np.random.default_rng(0)
    times = random.permutation(num_rows).astype(float)
    x = random.normal(size=(num_rows, 3))
    y = 3.0 * np.sin(3.0 * x[:, 0]) + x[:, 1] * x[:, 2]
    is_new = times >= 0.8 * num_rows
    y[is_new] = random.permutation(y[is_new])
    return replace(facts_of(x, "regression"), time="when"), x, y, times


@pytest.mark.parametrize("kind", ["lightgbm", "hist-boosting"])
@pytest.mark.parametrize("domain", ["regression", "binary"])
def test_boosting_stops_by_groups_that_it_was_not_trained_on(kind, domain):
    facts, x, y, groups = by_heart(domain)
    alone = num_trees(kind, trained(kind, facts, Rows(x, y)))
    apart = num_trees(kind, trained(kind, facts, Rows(x, y, groups)))
    assert apart <= 8 < alone


@pytest.mark.parametrize("kind", ["lightgbm", "hist-boosting"])
def test_boosting_stops_by_the_newest_rows_where_folds_are_by_time(kind):
    facts, x, y, times = old_and_new()
    newest = np.argsort(-times)
    x, y = x[newest], y[newest]
    alone = num_trees(kind, trained(kind, facts, Rows(x, y)))
    apart = num_trees(kind, trained(kind, facts, Rows(x, y, newest_first=True)))
    assert apart <= 8 < alone


def test_network_holds_whole_groups_out(monkeypatch):
    from reparto.search.techniques._network_training import Training

    seen = []
    go_on = Training.go_on

    def watched(self, x, y, until):
        held = self.course.held
        seen.append((set(y[:held].tolist()), set(y[held:].tolist())))
        go_on(self, x, y, until)

    monkeypatch.setattr(Training, "go_on", watched)
    facts, x, _, groups = by_heart("regression")
    rows = Rows(x, groups.astype(float), groups)
    trained("network", facts, rows, {"epochs": 3, "members": 1, "width": 8, "depth": 1})
    assert len(seen) == 2
    for held, others in seen:
        assert held and others and not held & others


def test_groups_are_spared_whole_and_about_as_many_rows_as_asked():
    groups = np.random.default_rng(0).integers(0, 40, 1000)
    parts = parted(Rows(np.zeros((1000, 1)), groups=groups), 100)
    spared, kept = groups[parts.spared], groups[parts.kept]
    assert len(spared) == parts.num_spared and len(spared) + len(kept) == 1000
    assert not set(spared.tolist()) & set(kept.tolist())
    assert 100 <= len(spared) < 150


def test_of_few_large_groups_none_is_spared():
    groups = np.repeat([0, 1], 50)
    assert parted(Rows(np.zeros((100, 1)), groups=groups), 10) is None
    facts, x, y, _ = by_heart("regression", num_groups=2, each=60)
    halves = np.repeat([0, 1], 60)
    for kind in ("lightgbm", "hist-boosting"):
        told = trained(kind, facts, Rows(x, y, halves)).predict(x)
        assert np.isfinite(told.values).all()


def test_by_a_few_rows_of_small_groups_training_is_not_stopped():
    groups = np.repeat([0, 1, 2, 3], [50, 48, 1, 1])
    rows = Rows(np.zeros((100, 1)), groups=groups)
    assert parted(rows, 10) is None
    few = parted(rows, 3)
    assert few is not None and few.num_spared == 2


@pytest.mark.parametrize("kind", ["lightgbm", "hist-boosting"])
def test_class_that_only_spared_rows_have_is_not_lost(kind):
    facts, x, _, groups = by_heart("binary")
    last = groups[-1]
    y = (groups == last).astype(np.int32)
    answer = trained(kind, facts, Rows(x, y, groups)).predict(x)
    assert answer.values[y == 1, 1].mean() > 0.5
    newest = np.argsort(-y, kind="stable")
    x, y = x[newest], y[newest]
    answer = trained(kind, facts, Rows(x, y, newest_first=True)).predict(x)
    assert answer.values[y == 1, 1].mean() > 0.5


def test_rows_without_groups_and_time_are_spared_at_the_end():
    parts = parted(Rows(np.zeros((50, 1))), 5)
    assert places(50, parts.spared) == set(range(45, 50))
    assert parted(Rows(np.zeros((1, 1))), 1) is None


def test_workers_see_groups_and_time_as_the_layout_says():
    facts, x, y, groups = by_heart("regression")
    times = np.random.default_rng(1).permutation(len(y)).astype(float)
    table = Table(facts, x, y, groups=groups, times=times)
    for split in ("groups", "time", "plain"):
        layout = lay_out(table, folds=4, split=split, seed=0)
        board = Board.put(table, layout)
        rows = board.seen().train(1)
        window = layout.folds[1].train
        order = layout.order[window.start : window.stop]
        assert rows.newest_first == (split == "time")
        if split == "groups":
            np.testing.assert_array_equal(rows.groups, groups[order])
            np.testing.assert_array_equal(rows.head(0.5).groups, rows.groups[: len(rows) // 2])
        else:
            assert rows.groups is None
        if split == "time":
            newer, older = times[order][:-1], times[order][1:]
            assert (newer >= older).all() and rows.head(0.5).newest_first
        board.close()


def test_perceptron_does_not_stop_by_rows_of_groups_that_it_knows():
    facts, x, y, groups = by_heart("binary")
    settings = {"solver": "adam", "early_stopping": True, "max_iter": 5}
    kind = "multilayer-perceptron"
    alone = trained(kind, facts, Rows(x, y), settings, (1.0,))
    apart = trained(kind, facts, Rows(x, y, groups), settings, (1.0,))
    assert alone.estimator.early_stopping and not apart.estimator.early_stopping
    assert any("early_stopping is left out" in note for note in apart.notes())
