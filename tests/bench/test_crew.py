"""The process that measures: what it says, and what is said when it dies."""

import json
import sys
from contextlib import closing
from dataclasses import asdict

import pytest

from reparto.bench._cells import Cell
from reparto.bench._crew import Crew
from tests.bench.rows import row

CELL = Cell(source="grid", suite="grid", model="50", batch_rows=32)

#: Answers as the worker does, without torch: with the row that it is given, or as it is told to.
FAKE = """
import json, os, sys, time
row = json.loads(sys.argv[1])
for line in sys.stdin:
    asked = json.loads(line)
    how = asked["cell"]["model"]
    if how == "dies":
        os.kill(os.getpid(), 9)
    if how == "leaves":
        sys.exit(3)
    if how == "hangs":
        time.sleep(1000)
    if how == "lacks":
        row["failure"] = "not enough memory: 3 GiB"
    row["notes"] = [str(os.getpid()), str(asked["peak"])]
    print(json.dumps({"row": row, "peak": 5.0}), flush=True)
    row["failure"] = ""
"""


@pytest.fixture
def crew(tmp_path):
    answer = json.dumps(asdict(row()))
    with closing(Crew(tmp_path, (sys.executable, "-c", FAKE, answer), limit_s=20.0)) as crew:
        yield crew


def cell(model):
    return Cell(source="grid", suite="grid", model=model)


def pid(measured):
    return measured.notes[0]


def test_one_process_measures_many_cells(crew):
    first, second = crew.measure(CELL), crew.measure(CELL)
    assert pid(first) == pid(second)
    assert first.step_s == row().step_s


def test_peak_that_was_measured_is_handed_on(crew):
    assert crew.measure(CELL).notes[1] == "0.0"
    assert crew.measure(CELL).notes[1] == "5.0"
    assert crew.peaks == {"cpu f32": 5.0}


def test_a_process_that_the_system_kills_is_a_failed_row_and_a_fresh_one_takes_over(crew):
    before = crew.measure(CELL)
    gone = crew.measure(cell("dies"))
    assert gone.flags == ("failed",)
    assert "killed by SIGKILL, as the system does when memory runs out" in gone.failure
    assert pid(crew.measure(CELL)) != pid(before)


def test_a_process_that_leaves_is_a_failed_row(crew):
    assert "left with status 3" in crew.measure(cell("leaves")).failure


def test_a_fresh_process_takes_over_after_a_lack_of_memory(crew):
    before = crew.measure(cell("lacks"))
    assert before.failure
    assert pid(crew.measure(CELL)) != pid(before)


def test_another_device_gets_a_process_of_its_own(crew):
    other = Cell(source="grid", suite="grid", model="50", device="cuda:0")
    assert pid(crew.measure(CELL)) != pid(crew.measure(other))


def test_a_cell_that_takes_too_long_is_ended(tmp_path):
    answer = json.dumps(asdict(row()))
    with closing(Crew(tmp_path, (sys.executable, "-c", FAKE, answer), limit_s=0.3)) as crew:
        assert "longer than 0.3 s" in crew.measure(cell("hangs")).failure
