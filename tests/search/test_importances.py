"""How much each column matters, and how that is told."""

import pytest

from reparto.search._importances import importances_of
from reparto.spec import SearchColumn

COLUMNS = (SearchColumn(name="a"), SearchColumn(name="b"), SearchColumn(name="c"))


@pytest.mark.parametrize(
    ("on_test", "where"), [(True, "of the test table"), (False, "trained on")]
)
def test_what_is_lost_is_shared_out_and_told_in_words_for_people(on_test, where):
    found, how = importances_of(COLUMNS, (0.1, 0.3, -0.2), None, "matthews", on_test=on_test)
    assert [name for name, _ in found] == ["b", "a", "c"]
    assert [share for _, share in found] == pytest.approx([0.75, 0.25, 0.0])
    assert how.startswith("what Matthews correlation loses when a column is shuffled")
    assert where in how
