"""`--survey`: whose it is, what contradicts it, and what cannot have been measured."""

import json

import pytest
from tests.conftest import TRAIN
from tests.plan.recorded import FOLDER

from reparto.cli import main
from reparto.plan import flaw_of
from reparto.spec import Forecast, Survey, from_plain

LAB = FOLDER / "captioning-100mbit.json"
PLAIN = json.loads(LAB.read_text())


@pytest.fixture
def told(capsys):
    """Runs `reparto plan` on a recorded survey: its exit status, output and errors."""

    def run(*words, script="train.py", survey=LAB):
        capsys.readouterr()
        given = ("--survey", survey) if survey is not None else ()
        try:
            status = main(["plan", *map(str, (*given, *words)), *script.split()])
        except SystemExit as leaving:  # argparse
            status = leaving.code
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize("script", ["other.py", "train.py --scenes 900"])
def test_a_survey_of_another_script_or_of_other_arguments_is_refused(told, script):
    status, _, err = told(script=script)
    assert status == 2
    assert "measured" in err


@pytest.mark.parametrize("script", ["train.py", "here/train.py --scenes 200 --dimension 64"])
def test_a_survey_is_taken_wherever_the_script_lies(told, script):
    assert told(script=script)[0] == 0


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        (("--hosts", "hosts.toml"), "--hosts"),
        (("--lab", "lab.toml"), "--lab"),
        (("--engine", "ray"), "--engine"),
        (("--save-survey", "again.json"), "--save-survey"),
        (("--workers", 64), "64 workers"),
        (("--what-if", "rate=1gbit,hosts=8", "--workers", 9), "9 workers"),
        (("--budget", "nan", "--price", "1/h"), "--budget"),
        (("--budget", "-3", "--price", "1/h"), "--budget"),
    ],
)
def test_what_means_nothing_beside_it_is_refused(told, words, told_of):
    status, _, err = told(*words)
    assert status == 2
    assert told_of in err


def test_the_number_of_steps_may_be_another_one(told):
    status, out, _ = told("--steps", 7, "--json", "-")
    assert status == 0
    found = from_plain(Forecast, json.loads(out))
    assert found.survey.num_steps == found.predictions[0].num_steps == 7


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        (("--what-if", "wheels=4"), "wheels=4"),
        (("--budget", 5), "--budget"),
        (("--save-survey", "nowhere/s.json"), "nowhere"),
        (("--price", "moon=0.40/h"), "moon"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_measured(told, tmp_path, words, told_of):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    status, _, err = told(*words, script=str(script), survey=None)
    assert status == 2
    assert told_of in err
    assert "measuring" not in err


def _changed(path, value):
    """The survey with something in it that is another."""
    plain = json.loads(LAB.read_text())
    *way, last = path
    there = plain
    for key in way:
        there = there[key]
    there[last] = value
    return plain


FLAWS = [
    (("placement",), []),
    (("num_steps",), -4),
    (("startup_s",), -1.0),
    (("profile", "batch_rows"), -1),
    (("alone", "forward_s"), -3.0),
    (("workers", 0, "slices"), []),
    (("workers", 0, "slices"), 2 * PLAIN["workers"][0]["slices"][:1]),
    (("workers", 0, "rank"), 99),
    (("exchanges",), []),
    (("exchanges", 0, "seconds"), -1.0),
    (("costs", 0, "step_s"), -1.0),
    (("cluster", "links", 0, "rate_bits_per_s"), 0.0),
]


@pytest.mark.parametrize(("path", "value"), FLAWS)
def test_what_cannot_have_been_measured_is_told(path, value):
    assert path[0] in flaw_of(from_plain(Survey, _changed(path, value)))


def test_a_damaged_survey_is_bad_usage(told, tmp_path):
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(_changed(*FLAWS[0])))
    status, _, err = told(survey=damaged)
    assert status == 2
    assert "placement" in err


@pytest.mark.parametrize("name", ["captioning-100mbit", "digits"])
def test_what_was_measured_has_no_flaw(name):
    assert not flaw_of(from_plain(Survey, json.loads((FOLDER / f"{name}.json").read_text())))
