"""What every technique must do, on small tables of each kind."""

import json

import numpy as np
import pytest

from reparto.errors import UsageError
from reparto.search._rows import Rows
from reparto.search.techniques import TECHNIQUES, Setting
from reparto.spec import to_plain
from tests.search.techniques.tables import locked, sparse_table, table

PAIRS = [
    pytest.param(technique, domain, id=f"{technique.kind}-{domain}")
    for technique in TECHNIQUES.values()
    for domain in technique.domains
]
SPARSE = [pair for pair in PAIRS if pair.values[0].takes_sparse]
SHARES = (1 / 9, 1 / 3, 1.0)
#: Small ones, so that a test takes milliseconds.
LITTLE = {"num_trees": 10, "iterations": 10, "max_iter": 20, "max_epochs": 2, "epochs": 2}


def little(technique, facts, index=0):
    """Settings of the portfolio with fewer iterations."""
    portfolio = technique.portfolio(facts)
    settings = dict(portfolio[index % len(portfolio)])
    for name, value in LITTLE.items():
        try:
            own = technique.setting_named(name, facts)
        except UsageError:
            continue
        settings[own] = value
    technique.check(settings, facts)
    return settings


def trained(technique, facts, rows, settings=None, shares=(1.0,), **setting):
    settings = little(technique, facts) if settings is None else settings
    trainer = technique.trainer(settings, Setting(facts, **setting))
    for share in shares:
        trainer.train(rows, share)
    return trainer


def assert_is_answer(answer, facts, num_rows):
    assert np.all(np.isfinite(answer.values))
    if facts.is_classification:
        assert answer.values.shape == (num_rows, len(facts.classes))
        if answer.are_probabilities:
            assert np.all(answer.values >= 0)
            assert np.allclose(answer.values.sum(axis=1), 1.0)
    else:
        assert answer.values.shape == (num_rows,)
    if facts.domain == "clustering":
        assert np.issubdtype(answer.values.dtype, np.integer)


def reloaded(technique, trainer, settings, facts, folder):
    trainer.save(folder)
    assert any(folder.iterdir())
    about = {"settings": settings, "facts": to_plain(facts)}
    return technique.load(folder, json.loads(json.dumps(about)))


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_trains_in_parts_answers_and_is_the_same_when_read_again(technique, domain, tmp_path):
    facts, rows = table(domain, messy=True)
    settings = little(technique, facts)
    trainer = technique.trainer(settings, Setting(facts, seed=3))
    for share in SHARES:
        trainer.train(rows, share)
        answer = trainer.predict(rows.x)
        assert_is_answer(answer, facts, len(rows))
    again = reloaded(technique, trainer, settings, facts, tmp_path).predict(rows.x)
    assert np.array_equal(again.values, answer.values)
    assert again.are_probabilities == answer.are_probabilities


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_trained_in_parts_it_is_what_it_is_trained_at_once(technique, domain):
    facts, rows = table(domain)
    parts = trained(technique, facts, rows, shares=SHARES).predict(rows.x).values
    at_once = trained(technique, facts, rows).predict(rows.x).values
    assert np.allclose(parts, at_once, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_every_portfolio_is_right_and_within_its_space_and_learns(technique, domain):
    from reparto.search._ground import holds
    from reparto.search.metrics import constant_answer

    facts, rows = table(domain)
    space = technique.space(facts)
    for index, settings in enumerate(technique.portfolio(facts)):
        technique.check(settings, facts)
        assert all(holds(space[name], value) for name, value in settings.items() if name in space)
        answer = trained(technique, facts, rows, little(technique, facts, index)).predict(rows.x)
        if domain == "regression":
            constant = constant_answer(facts, rows.y, len(rows)).values
            assert np.square(answer.values - rows.y).mean() < np.square(constant - rows.y).mean()
        elif domain != "clustering":
            most = np.bincount(rows.y).max() / len(rows)
            assert np.mean(answer.labels == rows.y) >= most


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_what_is_drawn_from_the_space_is_right(technique, domain):
    from reparto.search._sampler import Uniform

    facts, _ = table(domain, num_rows=40)
    sampler = Uniform(technique.space(facts), 0)
    for _ in range(30):
        technique.check(sampler.draw(), facts)


@pytest.mark.parametrize(("technique", "domain"), SPARSE)
def test_trains_on_sparse_rows(technique, domain, tmp_path):
    facts, rows = sparse_table(domain)
    settings = little(technique, facts, -1)
    before = rows.x.copy()
    trainer = trained(technique, facts, rows, settings, SHARES)
    answer = trainer.predict(rows.x)
    assert_is_answer(answer, facts, len(rows))
    assert (rows.x != before).nnz == 0
    again = reloaded(technique, trainer, settings, facts, tmp_path)
    assert np.array_equal(again.predict(rows.x).values, answer.values)


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_float32_rows_are_answered_too(technique, domain):
    facts, rows = table(domain, dtype=np.float32, messy=True)
    trainer = trained(technique, facts, rows)
    assert_is_answer(trainer.predict(rows.x), facts, len(rows))


@pytest.mark.parametrize(
    ("technique", "domain"), [pair for pair in PAIRS if pair.values[1] == "multiclass"]
)
def test_a_class_that_was_not_trained_has_its_column(technique, domain):
    facts, rows = table(domain)
    part = Rows(rows.x[rows.y != 1], rows.y[rows.y != 1])
    trainer = trained(technique, facts, part)
    answer = trainer.predict(rows.x)
    assert_is_answer(answer, facts, len(rows))
    assert not np.any(answer.labels == 1)


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_one_class_one_value_one_row_are_a_constant_answer(technique, domain, tmp_path):
    facts, rows = table(domain)
    ones = None if rows.y is None else np.ones_like(rows.y)
    few = Rows(rows.x[:1], None if rows.y is None else rows.y[:1])
    for part in (few, Rows(rows.x, ones)) if ones is not None else (few,):
        settings = little(technique, facts)
        trainer = trained(technique, facts, part, settings, SHARES)
        answer = trainer.predict(rows.x)
        assert_is_answer(answer, facts, len(rows))
        assert np.ptp(answer.values, axis=0).max() == 0
        again = reloaded(technique, trainer, settings, facts, tmp_path)
        assert np.array_equal(again.predict(rows.x).values, answer.values)


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_a_table_of_constant_columns_is_a_finite_answer(technique, domain):
    facts, rows = table(domain)
    flat = locked(np.full_like(rows.x, 3.0), rows.y)
    settings = little(technique, facts)
    try:
        trainer = trained(technique, facts, flat, settings)
    except ValueError:
        assert domain == "clustering"  # there are no clusters in one point
        return
    assert_is_answer(trainer.predict(flat.x), facts, len(flat))


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_rows_unlike_those_trained_on_are_answered(technique, domain):
    facts, rows = table(domain, messy=True)
    trainer = trained(technique, facts, rows)
    strange = np.array(rows.x[:4])
    strange[0] = np.nan
    strange[1, 0] = np.inf
    strange[2, 4] = 6.0  # a level that was not there
    strange[3, 0] = -1e300
    assert_is_answer(trainer.predict(locked(strange).x), facts, 4)


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_the_same_seed_is_the_same_model(technique, domain):
    facts, rows = table(domain)
    first = trained(technique, facts, rows, seed=5).predict(rows.x)
    second = trained(technique, facts, rows, seed=5).predict(rows.x)
    assert np.array_equal(first.values, second.values)


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_importances_are_of_the_tables_columns(technique, domain):
    facts, rows = table(domain, messy=True)
    found = trained(technique, facts, rows).importances()
    if found is not None:
        assert len(found) == facts.num_columns
        assert sum(found) == pytest.approx(1.0)
        assert min(found) >= 0
        assert found[2] == found[3] == 0  # constant, and empty


@pytest.mark.parametrize(("technique", "domain"), PAIRS)
def test_a_setting_that_there_is_not_is_refused(technique, domain):
    facts, _ = table(domain)
    with pytest.raises(UsageError, match="no setting 'no_such_thing'"):
        technique.check({"no_such_thing": 1}, facts)
