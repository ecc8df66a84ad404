"""The report page: self-contained, with every row, and with what is wrong told in words."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from reparto._pages import _drawing
from reparto.bench import _told
from reparto.bench._page import page, write_report
from reparto.bench._shown import FLAGS
from reparto.errors import MissingExtraError, UsageError
from reparto.spec import BenchReport
from tests.bench.made import infer_row, report, train_row

pytestmark = pytest.mark.xdist_group("bench-page")  # which is made once


@pytest.fixture(scope="module")
def made():
    return report(widths=1, batches=(8, 512))


@pytest.fixture(scope="module")
def written(made, tmp_path_factory):
    return write_report(made, tmp_path_factory.mktemp("bench") / "new")


@pytest.fixture(scope="module")
def text(written):
    return written[0].read_text()


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_a_page_and_a_picture_a_figure_are_written(written):
    assert written[0].name == "bench.html"
    assert {path.suffix for path in written[1:]} == {".png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:])
    assert len({path.name for path in written}) == len(written) == 14


def test_the_page_needs_nothing_from_elsewhere(text, written):
    assert text.count("<figure") == len(written) - 1
    assert not re.search(r"https?:|<script|<link|@import|url\((?!#)", text)
    assert not re.search(r'\b(src|href)="(?!#)', text)


def test_drawings_take_the_colour_of_the_text_and_have_names_of_their_own(text):
    assert "currentColor" in text and _drawing._INK not in text
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(names)


def test_the_page_is_for_light_dark_and_paper(text):
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text and "@page" in text


def test_the_page_is_well_formed(text):
    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "br", "path", "rect", "circle", "use", "line"):
                self.open.append(tag)

        def handle_endtag(self, tag):
            if tag not in ("meta", "br", "path", "rect", "circle", "use", "line"):
                assert self.open.pop() == tag

    parser = Balance()
    parser.feed(text)
    assert parser.open == []


def test_every_row_is_in_a_table_and_every_flag_beside_it(text, made):
    tables = re.findall(r'<table class="rows">.*?</table>', text, flags=re.DOTALL)
    rows = [row for table in tables for row in re.findall(r"<tr><td>.*?</tr>", table)]
    assert len(rows) == len(made.measurements)
    ordered = sorted(made.measurements, key=lambda row: row.mode == "infer")
    for row, line in zip(ordered, rows, strict=True):
        assert f"<td>{row.work.model}</td>" in line
        assert [sign in line for _, sign, _ in FLAGS.values()] == [f in row.flags for f in FLAGS]


def test_flags_are_explained_in_words_with_the_rows_that_have_them(text, made):
    assert {flag for row in made.measurements for flag in row.flags} == set(FLAGS)
    for flag, (_, _, meaning) in FLAGS.items():
        assert f"<strong>{flag.replace('-', ' ')}</strong>" in text and meaning in text
    assert "out of memory on the device" in text and "the clock fell to 1.1 GHz" in text


def test_an_unfinished_report_says_how_many_rows_are_still_to_come(made):
    rows = len(made.measurements)
    assert _told.counts(made).startswith(f"{rows} of {rows + 4} rows; the others were not made")
    assert _told.counts(replace(made, planned=rows)).startswith(f"{rows} rows · measured in 8:07")


def test_the_environment_stands_at_the_end(text):
    assert text.rindex("Environment") > text.rindex("every row")
    assert "devices › cuda:0 › peak_flops_f32" in text and "4.6e+13" in text


def test_names_of_users_are_escaped(random):
    row = train_row((50,), "cpu", 8, random, device_name="<b>&", flags=("failed",))
    row = replace(row, work=replace(row.work, model="<i>"), failure="<u>", step_s=None)
    text = page(BenchReport(measurements=(row,), environment={"<s>": "<q>"}), [], 1.0)
    assert not re.search("<[biusq]>", text.replace("<summary>", ""))
    assert "&lt;b&gt;&amp;" in text and "&lt;i&gt;" in text and "&lt;u&gt;" in text


def test_an_empty_report_is_a_page_too(tmp_path):
    (only,) = write_report(BenchReport(), tmp_path)
    assert "0 rows" in only.read_text() and "No row is flagged" in only.read_text()


def test_columns_of_which_nothing_is_known_are_left_out(random):
    row = train_row((50,), "cpu", 8, random, loss_first=None)
    text = page(BenchReport(measurements=(row,)), [], 1.0)
    assert "<th>energy</th>" not in text and "<th>loss: first</th>" not in text
    assert "<th>epoch</th>" in text


# -------------------------------------------------------------------------------- in words


def test_the_crossover_is_told_for_each_batch(random):
    rows = [
        train_row((50 * 2**k, 25 * 2**k), device, batch, random)
        for k in range(10)
        for device in ("cpu", "cuda:0")
        for batch in (8, 512)
    ]
    few, many = _told.told_crossovers(rows)
    told = r"Batch (8|512): from about (\S+) parameters on, cuda:0 is faster than cpu\."
    assert re.fullmatch(told, few)[2] == "1.5M"
    assert re.fullmatch(told, many)[2] == "180k"


def test_a_device_that_is_always_faster_is_told(random):
    rows = [
        train_row((hidden,), device, 8, random, step_s=step_s)
        for hidden in (50, 100)
        for device, step_s in (("cpu", 1.0), ("cuda:0", 2.0))
    ]
    assert _told.told_crossovers(rows) == ["Batch 8: cpu is faster than cuda:0 with every model."]


def test_a_model_that_is_no_perceptron_is_told_by_itself(random):
    rows = [
        train_row((), device, batch, random, step_s=step_s)
        for device, step_s in (("cpu", 3.0), ("cuda:0", 1.0))
        for batch in (8, 512)
    ]
    assert _told.told_crossovers(rows)[-1] == (
        "cnn: cuda:0 is 3 times as fast as cpu at batch 8, 3 times at batch 512."
    )


def test_the_largest_call_within_the_deadline_goes_by_what_one_in_a_hundred_takes(random):
    rows = [
        replace(infer_row((50,), "cpu", samples, "eager", random), step_s=0.1, p99_s=p99_s)
        for samples, p99_s in ((1, 0.2), (64, 0.9), (512, 1.1))
    ]
    assert _told.told_deadline(rows, 1.0) == [("model", "cpu"), ("50", "64")]
    assert _told.told_deadline(rows, 2.0)[1] == ("50", "512 or more")
    assert _told.told_deadline(rows, 0.1)[1] == ("50", "none, not even 1")
    spoilt = [replace(row, flags=("not-like-for-like",)) for row in rows]
    assert _told.told_deadline(spoilt, 1.0) == [("model", "cpu")]


def test_cells_have_units_and_dashes_where_nothing_is_known(random):
    row = train_row(
        (50,), "cpu", 1024, random, step_s=2e-3, low_s=1.9e-3, high_s=2.2e-3, epoch_s=754.0,
        samples_per_s=512_345.0, peak_bytes=3 * 2**20, share_of_peak=0.1234, loss_last=None,
    )  # fmt: skip
    cells = dict(zip(_told.TRAIN_HEADER, _told.train_cells(row, "cpu"), strict=True))
    assert cells["step"] == "2.00 ms" and cells["95 %"] == "± 10 %"
    assert cells["epoch"] == "12:34 min" and cells["samples/s"] == "512 000"
    assert cells["memory"] == "3 MiB" and cells["of peak"] == "12 %"
    assert cells["last"] == cells["energy"] == "–"


# ---------------------------------------------------------------------------------- errors


def test_without_matplotlib_the_extra_is_named(made, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="reparto\\[compare\\]"):
        write_report(made, tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file"):
        write_report(BenchReport(), tmp_path / "file")
