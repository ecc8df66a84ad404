"""Rows are kept as they are made, and found again."""

import json

import pytest

from reparto.bench._store import Store, changes
from reparto.errors import UsageError
from tests.bench.rows import row

HERE = {"host": "a", "torch": "2"}


def test_a_row_is_found_again_by_another_store(tmp_path):
    made = row(notes=("one", "two"), flags=("noisy",))
    Store(tmp_path).add("k", made, HERE)
    assert Store(tmp_path).row("k") == made


def test_a_failed_row_is_kept_but_measured_again(tmp_path):
    store = Store(tmp_path)
    store.add("k", row(step_s=None, failure="no memory"), HERE)
    assert store.row("k") is None
    assert store.latest("k").failure == "no memory"


def test_of_two_rows_of_a_cell_the_later_one_counts(tmp_path):
    store = Store(tmp_path)
    store.add("k", row(), HERE)
    store.add("k", row(step_s=0.5), HERE)
    assert Store(tmp_path).row("k").step_s == 0.5


def test_a_line_that_was_broken_off_is_dropped_and_the_next_one_stands_alone(tmp_path):
    store = Store(tmp_path)
    store.add("a", row(), HERE)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"key": "b", "row": {"wor')
    Store(tmp_path).add("c", row(), HERE)
    found = Store(tmp_path)
    assert [found.row(key) is not None for key in "abc"] == [True, False, True]


def test_rows_of_another_version_are_left_out(tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"key": "k", "environment": "", "row": {"wrok": 1}}) + "\n"
    )
    assert Store(tmp_path).row("k") is None


def test_rows_of_another_environment_are_counted(tmp_path):
    store = Store(tmp_path)
    store.add("k", row(), HERE)
    assert store.of_elsewhere(HERE) == 0
    assert store.of_elsewhere({**HERE, "peaks": {"cpu f32": 1.0}}) == 0
    assert store.of_elsewhere({**HERE, "torch": "3"}) == 1


def test_what_has_changed_is_told():
    told = changes({**HERE, "steps": {}}, {**HERE, "torch": "3", "cores": 2})
    assert told == ("cores: none before, 2 now", "torch: 2 before, 3 now")


def test_a_number_that_json_does_not_know_is_kept_as_nothing(tmp_path):
    Store(tmp_path).add("k", row(loss_last=float("nan")), HERE)
    assert Store(tmp_path).row("k").loss_last is None


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--out"):
        Store(tmp_path / "file" / "folder")
