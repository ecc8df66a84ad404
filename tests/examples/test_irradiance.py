"""The irradiance example: it beats persistence, reads what reparto writes, and is shared out."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from reparto.bench._irradiance import generate, pairs, persistence, write_midc
from reparto.convert import convert

SCRIPT = Path(__file__).parents[2] / "examples" / "irradiance.py"
LINE = re.compile(r"test error (\d+\.\d) W/m2  persistence (\d+\.\d) W/m2")


@pytest.fixture
def lines(monkeypatch, tmp_path, capsys):
    """Run the example here, and return the errors that it prints each epoch."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return [tuple(map(float, found)) for found in LINE.findall(capsys.readouterr().out)]

    return run


def test_it_learns_more_than_persistence_knows(lines, tmp_path):
    told = lines("--seconds", 4000, "--epochs", 3, "--hidden", 64)
    assert len(told) == 3 and told[-1][0] < 0.8 * told[-1][1]
    assert (tmp_path / "irradiance.pt").exists()


def test_it_makes_the_same_pairs_of_a_file_as_reparto_does(lines, tmp_path):
    made = generate(1000, seed=2)
    made.watts[40, 3] = np.nan
    write_midc(made, tmp_path / "day.csv")
    ((_, told),) = lines("--data", "day.csv", "--epochs", 1, "--hidden")
    x, y = pairs(made)
    cut = int(0.8 * len(x))
    assert told == pytest.approx(300 * persistence(x[cut:], y[cut:]), abs=0.06)


def test_it_is_converted_without_an_edit():
    assert type(convert(SCRIPT)).__name__ == "Converted"
