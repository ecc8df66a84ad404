"""`reparto simulate`: what it prints, keeps and refuses, from a recorded survey."""

import json
from pathlib import Path

import pytest
from tests.conftest import TRAIN
from tests.plan.recorded import FOLDER, recorded

from reparto.cli import main
from reparto.spec import Simulation, Survey, from_json, from_plain

HERE, LAB = FOLDER / "digits.json", FOLDER / "captioning-100mbit.json"


@pytest.fixture
def told(capsys):
    """Runs the command: its exit status, standard output and standard error."""

    def run(*words, survey=LAB):
        given = () if survey is None else ("--survey", survey)
        capsys.readouterr()
        try:
            script = Path(recorded(survey.stem).script).name if survey else "train.py"
            status = main(["simulate", *map(str, (*given, *words)), script])
        except SystemExit as leaving:  # argparse
            status = leaving.code
        return status, *capsys.readouterr()

    return run


def test_a_table_tells_what_exact_strategies_would_take(told):
    status, out, err = told("--hosts", 16, "--rate", "1gbit", "--steps", 50)
    assert status == 0
    first, header, *rows = out.splitlines()
    assert first == "16 hosts that are not there: hosts=16,rate=1gbit; 50 steps each"
    for column in ("step", "p95", "samples/s", "efficiency", "waiting", "steps lost"):
        assert column in header
    assert rows[0].split()[:2] == ["one", "host"]
    assert {row.split()[0] for row in rows[1:]} == {"all-reduce", "parameter-server", "sharded"}
    assert all("exact" in row for row in rows)
    assert "simulating all-reduce on 16 hosts" in err


def test_relaxed_strategies_need_consent(told):
    status, out, _ = told("--hosts", 16, "--rate", "1gbit", "--steps", 20, "--relaxed")
    assert status == 0
    assert "gossip" in out
    words = ("--hosts", 4, "--strategy", "diloco", "--set", "sync_every=4", "--steps", 20)
    status, _, err = told(*words)
    assert status == 2
    assert "--relaxed" in err
    status, out, _ = told(*words, "--relaxed")
    assert status == 0
    assert "diloco" in out


def test_numbers_go_into_a_file_with_what_was_assumed(told, tmp_path):
    words = ("--hosts", 8, "--rate", "1gbit", "--latency", "1ms", "--speed", "2x", "--steps", 20)
    status, _, _ = told(*words, "--json", tmp_path / "o.json")
    assert status == 0
    document = json.loads((tmp_path / "o.json").read_text())
    assert document["what_if"] == "hosts=8,rate=1gbit,latency=1ms,speed=2x"
    found = [from_plain(Simulation, one) for one in document["simulations"]]
    assert {one.num_workers for one in found} == {8}
    assert {one.label for one in found} == {"all-reduce", "parameter-server", "sharded"}


def test_standard_output_is_kept_free_for_json(told):
    status, out, _ = told("--hosts", 8, "--steps", 20, "--json", "-")
    assert status == 0
    assert json.loads(out)["status"] == "simulated"


def test_failures_and_stragglers_show_in_the_table(told):
    words = ("--hosts", 16, "--rate", "1gbit", "--strategy", "all-reduce", "--steps", 300)

    def numbers(*more):
        status, out, _ = told(*words, *more, "--json", "-")
        assert status == 0
        return json.loads(out)["simulations"][0]

    quiet = numbers()
    failing = numbers("--failures", "2400/d", "--restart", "10s", "--checkpoint-every", 20)
    crawling = numbers("--stragglers", 0.05, "--slowdown", 8)
    assert quiet["steps_lost"] == 0 < failing["steps_lost"]
    assert quiet["total_s"] < failing["total_s"]
    assert quiet["waiting"] < crawling["waiting"]


def test_a_run_that_is_never_done_is_told_so(told):
    words = ("--hosts", 16, "--strategy", "all-reduce", "--steps", 50)
    status, out, _ = told(*words, "--failures", "100000/h")
    assert status == 0
    assert "never done" in out


def test_hosts_with_nothing_to_do_are_told(told):
    _, out, _ = told("--hosts", 500, "--rate", "1gbit", "--steps", 5)
    assert "a batch of 100 rows leaves most hosts with nothing to do" in out
    _, out, _ = told("--hosts", 50, "--rate", "1gbit", "--steps", 5)
    assert "nothing to do" not in out


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        ((), "--hosts"),
        (("--hosts", 1), "at least 2"),
        (("--hosts", 4, "--rate", "fast"), "rate"),
        (("--hosts", 4, "--latency", "soon"), "latency"),
        (("--hosts", 4, "--failures", "often"), "0.1/h"),
        (("--hosts", 4, "--failures", "0.1"), "0.1/h"),
        (("--hosts", 4, "--restart", "5"), "--restart"),
        (("--hosts", 4, "--stragglers", 2), "stragglers"),
        (("--hosts", 4, "--seed", "-1"), "--seed"),
        (("--hosts", 4, "--slowdown", 0.5), "--slowdown"),
        (("--hosts", 4, "--jitter", "nan"), "--jitter"),
        (("--hosts", 4, "--strategy", "single"), "one worker"),
        (("--hosts", 4, "--threads", 2), "--threads"),
        (("--hosts", 4, "--set", "sync_every=4"), "--strategy"),
        (("--hosts", 4, "--strategy", "magic"), "magic"),
        (("--hosts", 4, "--strategy", "all-reduce", "--set", "balance=2:1"), "weighs 2 workers"),
        (("--hosts", 4, "--survey", "nowhere.json"), "nowhere.json"),
        (("--hosts", 4, "--survey", __file__), "test_simulate.py"),
    ],
)
def test_what_cannot_be_is_bad_usage_and_says_what_to_do(told, words, told_of):
    status, _, err = told(*words)
    assert status == 2
    assert told_of in err


def test_a_network_that_was_not_measured_has_to_be_given(told):
    status, _, err = told("--hosts", 4, survey=HERE)
    assert status == 2
    assert "rate=1gbit" in err
    assert told("--hosts", 4, "--rate", "1gbit", "--steps", 5, survey=HERE)[0] == 0


@pytest.mark.forked
@pytest.mark.slow
def test_a_script_is_measured_here_and_what_was_measured_is_kept(cli):
    cli.write(TRAIN.replace("range(2)", "range(40)"))
    words = ("--hosts", 100, "--rate", "1gbit", "--steps", 50)
    first = cli.run("simulate", *words, "--save-survey", "s.json", "train.py")
    assert first.returncode == 0, first.stderr
    survey = from_json(Survey, (cli.folder / "s.json").read_text())
    assert {one.num_workers for one in survey.workers} == {1, 2}
    second = cli.run("simulate", *words, "--survey", "s.json", "train.py")
    assert second.stdout == first.stdout
    assert "measuring" not in second.stderr


def test_recorded_surveys_have_no_trials():
    assert not recorded("digits").trials  # or simulations would be of something else


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        (("--rate", "fast"), "rate"),
        (("--strategy", "single"), "one worker"),
        (("--restart", "5"), "--restart"),
        (("--seed", -1), "--seed"),
        (("--save-survey", "nowhere/s.json"), "nowhere"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_measured(told, words, told_of):
    status, _, err = told("--hosts", 4, *words, survey=None)
    assert status == 2
    assert told_of in err
    assert "measuring" not in err
