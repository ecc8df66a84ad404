"""What a worker on a table tells beside scores."""

import pytest

from reparto.search._table_work import _size_of
from reparto.search.techniques import Setting, technique_named
from tests.search.techniques.tables import table


@pytest.mark.parametrize("kind", ["k-neighbors", "svm", "random-forest", "lightgbm"])
def test_size_of_a_model_is_told_also_where_it_keeps_rows(kind):
    facts, rows = table("binary")
    trainer = technique_named(kind).trainer({}, Setting(facts))
    trainer.train(rows, 1.0)
    assert _size_of(trainer) > 1000
