"""Labs of several sizes and rates: how a sweep is shown, and what is kept of it."""

import json
import re
import time

import pytest

from reparto.errors import UsageError
from reparto.spec import Job, LabCell, LabSweep, RunResult, from_plain
from reparto.sweep import (
    LabRequest,
    _lab_sweep,
    cell_name,
    lab_page,
    parse_entries,
    sweep_lab,
    text_table,
    write_lab,
)
from reparto.sweep._lab_plots import lab_png
from reparto.sweep._lab_table import lab_header, lab_in_words, lab_rows
from tests.sweep.synthetic import failed, run
from tests.sweep.test_usage import two_hosts

#: One after the other: who builds a lab sweeps those that were abandoned, also another test's.
pytestmark = pytest.mark.xdist_group("labs")

TARGET = 0.5  # reached after 14 steps


def cell(nodes, rate, label="all-reduce", *, step_s=0.01, target=TARGET, made=None, **more):
    """A cell whose training takes 13 steps to the target, or 49 in all."""
    found = made or run(label, step_s=step_s, target=target)
    return LabCell(nodes=nodes, rate_bits_per_s=rate, label=label, run=found, **more)


def sweep(*cells, **changes):
    made = {"script": "/there/train.py", "args": ("--name", "<script>"), "target": TARGET}
    made |= {"limits": "0.5 of a core each", "notes": ("<no> netem",), "cells": cells}
    return LabSweep(**{**made, "environment": {"hosts": "a & b"}, **changes})


def stopped(label="all-reduce"):
    return run(label, num_steps=3, result=RunResult(status="stopped", num_workers=2))


MADE_UP = sweep(
    cell(1, None, "single", step_s=0.04),
    cell(2, 1e7, step_s=0.08),
    cell(4, 1e7, made=stopped(), is_late=True),
    cell(2, None, step_s=0.02, usage=two_hosts()),
    cell(4, None, step_s=0.01),
    cell(2, 1e7, "gossip", made=failed()),
    cell(2, None, "gossip", made=run("gossip", num_steps=3, target=TARGET)),
)


def test_sizes_rates_and_strategies_are_those_of_the_cells_fastest_rate_first():
    assert MADE_UP.sizes == (1, 2, 4)
    assert MADE_UP.rates == (None, 1e7)
    assert MADE_UP.labels == ("all-reduce", "gossip")


def test_speed_up_is_over_one_node_and_none_where_either_did_not_get_there():
    assert MADE_UP.seconds(1, 1e7, "gossip") == pytest.approx(13 * 0.04)  # one node has no rate
    assert MADE_UP.speed_up(1, None, "all-reduce") == 1
    assert MADE_UP.speed_up(4, None, "all-reduce") == pytest.approx(4)
    assert MADE_UP.speed_up(2, 1e7, "all-reduce") == pytest.approx(0.5)
    assert MADE_UP.speed_up(4, 1e7, "all-reduce") is None  # too late
    assert MADE_UP.speed_up(2, None, "gossip") is None  # not as low
    assert MADE_UP.speed_up(8, None, "all-reduce") is None  # not measured
    alone = cell(1, None, "single", made=failed("single"))
    assert sweep(alone, cell(2, None)).speed_up(2, None, "all-reduce") is None


def test_without_a_target_all_of_a_run_counts_unless_it_was_ended():
    made = sweep(
        cell(1, None, "single", step_s=0.04, target=None),
        cell(2, None, target=None),
        cell(4, None, made=stopped(), is_late=True),
        target=None,
    )
    assert made.seconds(2, None, "all-reduce") == pytest.approx(49 * 0.01)
    assert made.speed_up(2, None, "all-reduce") == pytest.approx(4)
    assert made.seconds(4, None, "all-reduce") is None
    assert lab_header(made)[4] == "time"


def test_table_has_a_row_a_cell_in_its_order():
    rows = [dict(zip(lab_header(MADE_UP), row, strict=True)) for row in lab_rows(MADE_UP)]
    assert [(row["nodes"], row["rate"], row["strategy"]) for row in rows] == [
        ("1", "–", "single"),
        ("2", "10mbit", "all-reduce"),
        ("4", "10mbit", "all-reduce"),
        ("2", "none", "all-reduce"),
        ("4", "none", "all-reduce"),
        ("2", "10mbit", "gossip"),
        ("2", "none", "gossip"),
    ]
    assert [row["time to target"] for row in rows] == [
        "0.520 s", "1.04 s", "–", "0.260 s", "0.130 s", "–", "–",
    ]  # fmt: skip
    assert [row["speed-up"] for row in rows] == [
        "1.00×", "0.50×", "–", "2.00×", "4.00×", "–", "–",
    ]  # fmt: skip
    assert [row["ended"] for row in rows] == [
        "reached", "reached", "too late", "reached", "reached", "failed", "done",
    ]  # fmt: skip
    assert rows[4]["steps"] == "14" and rows[4]["sent"] == "14.0 MB"


def test_text_ends_with_where_it_begins_to_pay():
    lines = text_table(MADE_UP)
    assert len(lines) == 1 + len(MADE_UP.cells) + 1 + len(MADE_UP.labels)
    assert lines[-2:] == lab_in_words(MADE_UP)
    assert lab_in_words(MADE_UP) == [
        "all-reduce: without a limit it pays from 2 nodes on (4.00× with 4); "
        "at 10mbit it does not pay.",
        "gossip: without a limit nothing got there; at 10mbit nothing got there.",
    ]


def test_page_and_picture_show_every_cell_also_those_that_did_not_get_there(tmp_path):
    files = write_lab(MADE_UP, tmp_path)
    assert [path.name for path in files] == [
        "sweep.html", "sweep.png", "sweep.json", "sweep.txt", "usage.png",
    ]  # fmt: skip
    page = files[0].read_text()
    assert page.count("<tr>") == 1 + len(MADE_UP.cells)
    assert page.count("<figure>") == 2 * len(MADE_UP.labels)
    assert page.count("nothing got there") >= 2
    assert "too late" in page and "&lt;no&gt; netem" in page and "a &amp; b" in page
    assert "<script>" not in page and not re.search(r'(src|href)="http', page)
    assert page.count("<details") == 1 and cell_name(2, None, "all-reduce") in page
    for path in (files[1], files[4]):
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5_000
    assert from_plain(LabSweep, json.loads(files[2].read_text())).rates == MADE_UP.rates
    assert files[3].read_text().splitlines() == text_table(MADE_UP)


def test_a_sweep_where_nothing_got_there_can_be_drawn():
    made = sweep(cell(1, None, "single", made=failed("single")), cell(2, 1e7, made=failed()))
    assert lab_png(made).startswith(b"\x89PNG")
    assert "nothing got there" in lab_page(made)


def request(**changes):
    made = {"job": Job(script="/there/train.py"), "entries": parse_entries("all-reduce,single")}
    made |= {"nodes": (4, 1, 2, 2), "rates": (None, 1e7, None), "of_host": {"cpu": 0.5}}
    return LabRequest(**{**made, **changes})


def test_one_node_is_measured_once_and_first():
    places = [(nodes, rate, entry.label) for nodes, rate, entry in request().places()]
    assert places[0] == (1, None, "single")
    assert places[1:] == [
        (nodes, rate, label)
        for rate in (None, 1e7)
        for nodes in (2, 4)
        for label in ("all-reduce", "single")
    ]


def test_the_lab_of_a_cell_has_its_rate_and_what_holds_for_every_host():
    lab = request().lab(2, 1e7)
    assert [(host.cpu, host.line.up_bits_per_s) for host in lab.hosts] == [(0.5, 1e7)] * 2
    assert request().lab(1, None).hosts[0].line.down_bits_per_s is None


def test_a_sweep_of_one_node_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(UsageError, match="nothing to compare"):
        sweep_lab(request(nodes=(1,)), tmp_path)
    assert list(tmp_path.iterdir()) == []


SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(320, 100)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
for epoch in range(20):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
"""
PLACES = [(1, None, "single"), (2, 5e6, "all-reduce"), (2, None, "all-reduce")]


@pytest.mark.forked
@pytest.mark.alone
@pytest.mark.slow
def test_a_sweep_goes_on_where_an_earlier_one_has_ended(cli):
    script = cli.write(SCRIPT)
    options = ("--emulate", "--nodes", "1,2", "--rates", "5mbit,none", "--target", 80)

    def swept():
        """The sweep, and how many of its cells were measured before."""
        done = cli.run("lab", "sweep", *options, "--out", "out", "--json", "-", script)
        assert done.returncode == 0, done.stderr
        found = from_plain(LabSweep, json.loads(done.stdout)["sweep"])
        return found, done.stderr.count("measured before")

    first, kept = swept()
    assert kept == 0
    assert [(one.nodes, one.rate_bits_per_s, one.label) for one in first.cells] == PLACES
    assert {one.run.status for one in first.cells} == {"reached"}
    steps = first.cells[0].run.reached.step
    assert {one.run.reached.step for one in first.cells} == {steps}
    # 20,401 parameters take 0.13 s a step at 5 Mbit/s, and next to nothing else takes long.
    slow, quick = (first.seconds(2, rate, "all-reduce") for rate in (5e6, None))
    assert slow > 0.8 * (steps - 1) * 20_401 * 32 / 5e6
    assert slow > 1.3 * quick

    began = time.monotonic()
    again, kept = swept()
    assert (kept, again.cells) == (3, first.cells)
    assert time.monotonic() - began < 60

    (slow_cell,) = (cli.folder / "out" / "cells").glob("2-nodes-5mbit*.json")
    slow_cell.unlink()
    third, kept = swept()
    assert kept == 2
    same = [one == before for one, before in zip(third.cells, first.cells, strict=True)]
    assert same == [True, False, True]
    assert slow_cell.exists()


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Sweep without a worker: which cells were to be measured. Ends are those of `ends`."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    job = Job(script=str(script))
    ends = {}

    def sweep(**changes):
        asked = []

        def pretend(request, program, job, plan, place, watcher):
            nodes, rate, entry = place
            asked.append((nodes, rate, entry.label))
            return ends.get((nodes, rate)) or cell(nodes, rate, entry.label)

        monkeypatch.setattr(_lab_sweep, "_measured", pretend)
        made = {"job": job, "entries": parse_entries("all-reduce"), "nodes": (2,), "emulate": True}
        found = sweep_lab(request(**{**made, "rates": (5e6, None), **changes}), tmp_path)
        return asked, found

    sweep.script, sweep.ends, sweep.cells = script, ends, tmp_path / "cells"
    return sweep


def test_what_was_measured_is_not_measured_again(measured):
    asked, first = measured()
    assert asked == PLACES
    asked, again = measured()
    assert asked == []
    assert again.cells == first.cells


def test_all_is_measured_anew_once_the_script_has_changed(measured):
    measured()
    measured.script.write_text(SCRIPT + "print(loss)\n")
    assert measured()[0] == PLACES


@pytest.mark.parametrize("changes", [{"of_host": {"cpu": 0.7}}, {"target": 3.0}, {"at_most_s": 9}])
def test_all_is_measured_anew_under_other_conditions(measured, changes):
    measured()
    assert measured(**changes)[0] == PLACES


def test_a_wider_sweep_measures_only_what_it_adds(measured):
    measured()
    assert measured(rates=(5e6, 1e7, None))[0] == [(2, 1e7, "all-reduce")]


@pytest.mark.parametrize("text", ["", "{", '{"key": "other"}'])
def test_a_cell_that_cannot_be_read_is_measured_again(measured, text):
    measured()
    (path,) = measured.cells.glob("2-nodes-5mbit*.json")
    path.write_text(text)
    assert measured()[0] == [(2, 5e6, "all-reduce")]


def test_a_run_that_failed_is_tried_again_and_one_that_was_late_is_not(measured):
    measured.ends[2, 5e6] = cell(2, 5e6, made=failed("all-reduce"))
    measured.ends[2, None] = cell(2, None, made=stopped(), is_late=True)
    _, found = measured()
    assert len(found.cells) == 3
    assert measured()[0] == [(2, 5e6, "all-reduce")]


def test_after_a_run_that_the_user_stopped_none_follows_and_it_is_not_kept(measured):
    measured.ends[2, 5e6] = cell(2, 5e6, made=stopped())
    asked, found = measured()
    assert asked == PLACES[:2] and len(found.cells) == 2
    measured.ends.clear()
    assert measured()[0] == PLACES[1:]
