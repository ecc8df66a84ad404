"""Folds: the same for every candidate, fair to the data, and views of one copy."""

import numpy as np
import pytest
from scipy import sparse

from reparto.errors import UsageError
from reparto.search._folds import folds_in, lay_out
from reparto.search._tables import Table
from reparto.spec import TableFacts


def table_of(num_rows, *, classes=0, shares=None, groups=None, times=None, seed=0, columns=1):
    rng = np.random.default_rng(seed)
    if classes:
        y = rng.choice(classes, num_rows, p=shares).astype(np.int32)
        y[:classes] = np.arange(classes)
        domain = "binary" if classes == 2 else "multiclass"
    else:
        y, domain = rng.normal(size=num_rows), "regression"
    facts = TableFacts(
        domain=domain, classes=tuple(f"k{n}" for n in range(classes)), groups="who", time="when"
    )
    return Table(facts, np.zeros((num_rows, columns)), y, groups, times)


def rows_in(layout, window):
    return layout.order[window.start : window.stop]


def check_folds(layout, num_rows):
    """Each row is tested once; none is in both parts of a fold; `all` is all of them."""
    tested = np.concatenate([rows_in(layout, fold.test) for fold in layout.folds])
    assert sorted(tested) == list(range(num_rows))
    for fold in layout.folds:
        both = np.concatenate([rows_in(layout, fold.test), rows_in(layout, fold.train)])
        assert sorted(both) == list(range(num_rows))
    assert sorted(rows_in(layout, layout.all)) == list(range(num_rows))


@pytest.mark.parametrize("folds", [2, 3, 5, 7])
@pytest.mark.parametrize("split", ["plain", "stratified"])
@pytest.mark.parametrize("classes", [0, 3])
def test_each_row_is_tested_once_and_trained_on_in_all_other_folds(folds, split, classes):
    layout = lay_out(table_of(101, classes=classes), folds=folds, split=split, seed=0)
    assert len(layout.folds) == folds and len(layout.order) < 2 * 101
    check_folds(layout, 101)
    sizes = [fold.test.stop - fold.test.start for fold in layout.folds]
    assert max(sizes) - min(sizes) <= 1


def test_stratified_folds_have_the_shares_of_the_classes_to_one_row():
    table = table_of(503, classes=3, shares=[0.7, 0.25, 0.05])
    layout = lay_out(table, folds=5, split="auto", seed=1)
    assert layout.how == "5 stratified folds" and not layout.notes
    counts = np.array([np.bincount(table.y[rows_in(layout, f.test)]) for f in layout.folds])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()


def test_each_beginning_of_a_training_window_is_a_stratified_sample():
    table = table_of(2000, classes=2, shares=[0.9, 0.1])
    layout = lay_out(table, folds=5, split="stratified", seed=0)
    whole = table.y.mean()
    for fold in layout.folds:
        train = table.y[rows_in(layout, fold.train)]
        for share in (0.05, 0.1, 0.3, 0.7):
            head = train[: round(share * len(train))]
            assert abs(head.sum() - whole * len(head)) <= 4


def test_stratified_folds_of_a_regression_share_out_high_and_low_values():
    table = table_of(400)
    layout = lay_out(table, folds=4, split="stratified", seed=0)
    means = [table.y[rows_in(layout, fold.test)].mean() for fold in layout.folds]
    plain = lay_out(table, folds=4, split="plain", seed=0)
    assert np.std(means) < 0.05 < np.std(
        [table.y[rows_in(plain, fold.test)].mean() for fold in plain.folds]
    )  # fmt: skip


def test_the_same_seed_gives_the_same_folds_and_another_one_others():
    table = table_of(60, classes=2)
    one, same, other = (lay_out(table, folds=3, split="auto", seed=seed) for seed in (4, 4, 5))
    assert (one.order == same.order).all() and (one.order != other.order).any()


def test_a_single_split_is_tested_on_a_fifth():
    table = table_of(100, classes=2, shares=[0.5, 0.5])
    layout = lay_out(table, folds=1, split="auto", seed=0)
    (fold,) = layout.folds
    assert "single stratified split, 20 %" in layout.how and len(layout.order) == 100
    assert fold.test.stop - fold.test.start == 20
    assert sorted(layout.order) == list(range(100)) == sorted(rows_in(layout, layout.all))
    assert not set(rows_in(layout, fold.test)) & set(rows_in(layout, fold.train))


@pytest.mark.parametrize("num_groups", [9, 25_000])
@pytest.mark.parametrize("classes", [0, 2])
def test_a_group_is_in_one_fold_only(num_groups, classes):
    num_rows = max(300, num_groups + 100)
    groups = np.random.default_rng(0).integers(0, num_groups, num_rows)
    layout = lay_out(
        table_of(num_rows, classes=classes, groups=groups), folds=4, split="auto", seed=0
    )
    assert layout.how == "4 folds by groups (who)"
    check_folds(layout, num_rows)
    for fold in layout.folds:
        test, train = (set(groups[rows_in(layout, at)]) for at in (fold.test, fold.train))
        assert not test & train


def test_folds_by_groups_are_even_and_stratified_as_far_as_groups_allow():
    rng = np.random.default_rng(2)
    groups = rng.integers(0, 60, 3000)
    table = table_of(3000, classes=2, groups=groups)
    object.__setattr__(table, "y", (groups % 3 == 0).astype(np.int32))
    layout = lay_out(table, folds=5, split="groups", seed=0)
    sizes = [fold.test.stop - fold.test.start for fold in layout.folds]
    shares = [table.y[rows_in(layout, fold.test)].mean() for fold in layout.folds]
    assert max(sizes) < 1.1 * min(sizes) and max(shares) - min(shares) < 0.05


def test_fewer_groups_than_folds_give_fewer_folds_and_it_is_told():
    groups = np.arange(30) % 3
    layout = lay_out(table_of(30, groups=groups), folds=5, split="groups", seed=0)
    assert len(layout.folds) == 3
    assert "3 folds instead of 5" in layout.notes[0]


def test_folds_by_time_are_tested_on_what_comes_after_and_trained_on_the_newest_first():
    times = np.random.default_rng(0).permutation(200).astype(float)
    layout = lay_out(table_of(200, times=times), folds=4, split="auto", seed=0)
    assert len(layout.folds) == 4 and "by time (when)" in layout.how
    last = -np.inf
    for fold in layout.folds:
        test, train = times[rows_in(layout, fold.test)], times[rows_in(layout, fold.train)]
        assert train.max() < test.min() and last < test.min() and len(train) >= 100
        assert (np.diff(train) < 0).all()  # so that a beginning of them is the most recent part
        last = test.max()
    assert sorted(rows_in(layout, layout.all)) == list(range(200))


def test_rows_of_the_same_moment_are_never_parted():
    times = np.repeat(np.arange(5.0), 20)
    layout = lay_out(table_of(100, times=times), folds=8, split="time", seed=0)
    assert len(layout.folds) < 8 and "instead of 8" in layout.notes[0]
    for fold in layout.folds:
        test, train = (set(times[rows_in(layout, at)]) for at in (fold.test, fold.train))
        assert not test & train


def test_a_single_split_by_time_is_tested_on_the_newest_fifth():
    layout = lay_out(table_of(50, times=np.arange(50.0)), folds=1, split="time", seed=0)
    (fold,) = layout.folds
    assert sorted(rows_in(layout, fold.test)) == list(range(40, 50))


def test_rare_classes_are_told_and_folded_all_the_same():
    table = table_of(100, classes=3, shares=[0.5, 0.5, 0.0])
    layout = lay_out(table, folds=5, split="stratified", seed=0)
    check_folds(layout, 100)
    assert layout.notes[0].startswith("class k2 has one row")
    table.y[:3] = 2
    layout = lay_out(table, folds=5, split="stratified", seed=0)
    assert layout.notes[0] == "class k2 has 3 rows: 2 of 5 folds are tested without it"


@pytest.mark.parametrize(
    ("num_rows", "columns", "folds"),
    [(2, 3, 2), (100, 3, 10), (5000, 3, 5), (30_000, 3, 3), (200_000, 3, 1), (20_000, 1500, 1)],
)
def test_the_number_of_folds_follows_from_the_size(num_rows, columns, folds):
    table = table_of(num_rows)
    wide = sparse.csr_matrix((num_rows, columns))
    x = np.broadcast_to(0.0, (num_rows, columns))
    chosen = lay_out(Table(table.facts, x, table.y), folds=None, split="auto", seed=0)
    assert len(chosen.folds) == folds
    if columns == 3:  # of a sparse table, what is not zero counts
        few = lay_out(Table(table.facts, wide, table.y), folds=None, split="auto", seed=0)
        assert len(few.folds) == folds


@pytest.mark.parametrize(("num_rows", "folds"), [(2, 2), (60, 2), (3500, 3), (8000, 5)])
def test_clusters_are_tested_on_many_rows_each(num_rows, folds):
    facts = TableFacts(domain="clustering")
    table = Table(facts, np.zeros((num_rows, 2)))
    assert len(lay_out(table, folds=None, split="auto", seed=0).folds) == folds


def test_no_fold_is_tested_on_a_single_row_where_that_can_be():
    for num_rows in range(4, 40):
        layout = lay_out(table_of(num_rows), folds=None, split="auto", seed=0)
        assert min(fold.test.stop - fold.test.start for fold in layout.folds) >= 2, num_rows


def test_a_rare_second_class_gives_fewer_folds_so_that_each_has_it():
    table = table_of(300, classes=2, shares=[1.0, 0.0])
    table.y[:4] = 1
    layout = lay_out(table, folds=None, split="auto", seed=0)
    assert len(layout.folds) == 4
    assert all(table.y[rows_in(layout, fold.test)].sum() == 1 for fold in layout.folds)


@pytest.mark.parametrize(
    ("table", "folds", "split", "told"),
    [
        (table_of(10), 0, "auto", "0 folds"),
        (table_of(10), 5, "time", "--time"),
        (table_of(10), 5, "groups", "--groups"),
        (table_of(10), 5, "odd", "no split 'odd'"),
        (table_of(1), 5, "plain", "one row"),
        (table_of(10, groups=np.zeros(10, int)), 5, "auto", "same group in who"),
        (table_of(10, times=np.zeros(10)), 5, "auto", "same time in when"),
    ],
)
def test_what_cannot_be_shared_out_is_refused_with_the_way_to_do_it(table, folds, split, told):
    with pytest.raises(UsageError, match=told) as caught:
        lay_out(table, folds=folds, split=split, seed=0)
    assert caught.value.remedy


def test_groups_and_a_time_want_a_word_which_of_them_counts():
    moments, own = np.arange(100.0), np.arange(100) % 10
    table = table_of(100, groups=own, times=moments)
    with pytest.raises(UsageError, match="by both") as told:
        lay_out(table, folds=2, split="auto", seed=0)
    assert "--split groups" in told.value.remedy
    layout = lay_out(table, folds=2, split="time", seed=0)
    assert any("may be in several folds" in note for note in layout.notes)


def test_there_are_fewer_folds_where_the_time_is_short_for_the_table():
    wide = table_of(4_000, classes=10, columns=700)
    assert [folds_in(wide, time_s) for time_s in (60.0, 700.0, 10_000.0)] == [1, 3, None]
    small = table_of(500, classes=2, columns=10)
    assert folds_in(small, 5.0) is None
    assert folds_in(table_of(150_000, columns=100), 10.0) is None  # it has a single one anyway
