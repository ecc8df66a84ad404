"""An evaluation as a table and as files."""

import csv
import json
import sys

import pytest

from reparto.bench import guarded, text_table, write_files
from reparto.bench._files import NO_PARQUET
from reparto.bench._table import COLUMNS, figures, seconds, size
from reparto.spec import BenchReport
from tests.bench.rows import call, row


@pytest.fixture
def report():
    rows = [row(), call(), row(device="cuda:0", step_s=None, failure="no memory")]
    return BenchReport(
        environment={"host": "here"}, measurements=guarded(rows), planned=5, took_s=1.0
    )


def test_table_has_a_line_a_row_and_says_what_is_missing(report):
    lines = text_table(report)
    assert len(lines) == 1 + 3 + 1
    assert "failed: no memory" in lines[3]
    assert "2 of 5 cells are not measured yet" in lines[4]


def test_flags_stand_in_the_table():
    dead = BenchReport(measurements=guarded([row(loss_last=0.8)]), planned=1)
    assert "did-not-learn" in text_table(dead)[1]


@pytest.fixture
def no_page(monkeypatch):
    """Drawing takes seconds."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_csv_has_a_line_a_row_and_every_column(report, tmp_path, no_page):
    write_files(report, tmp_path)
    with (tmp_path / "bench.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == list(COLUMNS)
    assert [line["failure"] for line in lines] == ["", "", "no memory"]
    assert float(lines[0]["step_s"]) == 0.01


def test_json_has_the_report_with_its_environment(report, tmp_path, no_page):
    write_files(report, tmp_path)
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["environment"] == {"host": "here"}
    assert len(found["measurements"]) == 3


def test_missing_pyarrow_is_told(report, tmp_path, monkeypatch, no_page):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    _, remarks = write_files(report, tmp_path)
    assert NO_PARQUET in remarks


def test_parquet_has_the_same_rows_and_the_environment(report, tmp_path, no_page):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_files(report, tmp_path)
    table = parquet.read_table(tmp_path / "bench.parquet")
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == 3
    assert b"here" in table.schema.metadata[b"reparto.environment"]


def test_missing_matplotlib_leaves_the_page_out(report, tmp_path, no_page):
    paths, remarks = write_files(report, tmp_path)
    assert not any(path.suffix == ".html" for path in paths)
    assert any("no page" in remark for remark in remarks)


@pytest.mark.parametrize(
    ("told", "number"),
    [("1.23 ms", 0.001234), ("12.3 s", 12.34), ("5.2 µs", 5.2e-6), ("1 s", 0.9999)],
)
def test_seconds_have_three_figures(told, number):
    assert seconds(number) == told


def test_numbers_have_three_figures():
    assert (figures(123456.0), figures(0.01234), size(12_345_678)) == (
        "123 000",
        "0.0123",
        "12.3 MB",
    )


def test_a_script_whose_batch_nobody_knows_is_drawn_nowhere():
    from reparto.bench._figures import drawings

    alone = row(work={"suite": "train.py", "model": "", "batch_rows": 0}, hidden=())
    assert drawings(BenchReport(measurements=(alone,), planned=1), 1.0) == []
