"""`reparto lab`: what its commands print, make and leave, and what they refuse."""

import dataclasses
import json
import os

import pytest
from tests.conftest import TRAIN, ForkedCli
from tests.lab.kernel import clean, need_kernel, new_lab, traces

from reparto.cli import main
from reparto.lab import down, find, this_machine

#: One after the other: who builds a lab sweeps those that were abandoned, also another test's.
pytestmark = pytest.mark.xdist_group("labs")


@pytest.fixture
def name():
    """Of a lab that nobody else has; an emulated one is taken down after a test that failed."""
    name = new_lab(1).name
    yield name
    down(name)


def told(capsys, *words):
    """Run a command in this process: its exit status, and what it wrote to standard output."""
    capsys.readouterr()
    try:
        status = main(["lab", *map(str, words)])
    except SystemExit as leaving:  # argparse
        status = leaving.code
    return status, capsys.readouterr().out


@pytest.mark.parametrize("command", ["up", "run", "check", "sweep", "down", "list"])
def test_each_command_explains_itself_with_an_example(command, capsys):
    status, text = told(capsys, command, "--help")
    assert status == 0
    assert f"example:\n  reparto lab {command}" in text
    assert "--json FILE" in text


def test_lab_alone_shows_its_commands(capsys):
    status, text = told(capsys)
    assert status == 2
    assert all(command in text for command in ("up", "run", "check", "sweep", "down", "list"))


def test_a_dry_up_prints_the_commands_and_makes_nothing(name, capsys):
    words = ("up", "--nodes", 2, "--rate", "20mbit", "--cpu", 0.5, "--name", name, "--dry-run")
    status, text = told(capsys, *words)
    assert status == 0
    assert find(name) is None
    if this_machine().lacks:
        assert text == "nothing to be made\n"
    else:
        assert f"ip netns add reparto-{name}.node-2" in text.splitlines()
        assert "tbf rate 20000000bit" in text
        assert traces(dataclasses.replace(new_lab(2), name=name)) == []
    _, text = told(capsys, *words, "--json", "-")
    assert json.loads(text)["lab"]["name"] == name


def test_a_lab_is_listed_from_up_to_down(name, capsys):
    words = ("up", "--emulate", "--nodes", 2, "--rate", "20mbit", "--name", name)
    assert told(capsys, *words) == (
        0,
        f"lab {name} · 2 hosts · 20mbit up, 20mbit down · emulated\n",
    )
    assert f"lab {name} · 2 hosts" in told(capsys, "list")[1]
    assert told(capsys, *words)[0] == 2  # it is up already
    assert name in told(capsys, "list")[1]
    assert told(capsys, "down", name, "--dry-run")[0] == 0
    assert find(name) is not None
    assert told(capsys, "down", name) == (0, f"{name} is down\n")
    assert name not in told(capsys, "list")[1]


def test_json_of_each_command_is_alone_on_standard_output(name, capsys):
    words = ("--emulate", "--nodes", 2, "--rate", "80mbit", "--name", name, "--json", "-")
    status, text = told(capsys, "up", *words)
    assert (status, json.loads(text)["kind"]) == (0, "emulated")
    found = json.loads(told(capsys, "list", "--json", "-")[1])
    assert name in [one["lab"]["name"] for one in found["labs"]]
    found = json.loads(told(capsys, "check", *words)[1])
    assert [line["host"] for line in found["lines"]] == ["node-1"] * 2 + ["node-2"] * 2
    assert isinstance(found["good"], bool)
    assert json.loads(told(capsys, "down", name, "--json", "-")[1]) == {"down": [name]}


def test_down_of_a_name_that_is_not_up_is_bad_usage(name, capsys):
    assert main(["lab", "down", name]) == 2
    assert f"there is no lab {name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["up"], "no hosts"),
        (["up", "--nodes", "0"], "--nodes"),
        (["up", "--nodes", "2", "--rate", "fast"], "node-1: up: 'fast'"),
        (["up", "--nodes", "2", "--cpu", "half"], "--cpu"),
        (["up", "--nodes", "2", "--cpu", "0"], "cpu = 0"),
        (["up", "--nodes", "2", "--loss", "2"], "loss = 2"),
        (["up", "--nodes", "2", "--delay", "5"], "delay: '5'"),
        (["up", "--nodes", "2", "--name", "../up"], "'../up' is no name"),
        (["up", "away.toml"], "away.toml"),
        (["check", "--nodes", "2", "--up", "1"], "up: '1' is below"),
        (["run", "--nodes", "2"], "there is no script"),
        (["run", "--nodes", "2", "away.py"], "away.py"),
        (["run", "away.toml", "train.py"], "away.toml"),
        (["sweep", "--nodes", "1,x", "train.py"], "--nodes"),
        (["sweep", "--rates", "10mbit,", "train.py"], "--rates: ''"),
        (["sweep", "--at-most", "longm", "train.py"], "--at-most: 'longm'"),
        (["sweep", "--nodes", "1", __file__], "nothing to compare"),
        (["sweep", "--strategies", "magic", __file__], "magic"),
        (["list", "--wide"], "--wide"),
    ],
)
def test_bad_usage_names_its_place_and_makes_nothing(words, place, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["lab", *words])
    except SystemExit as leaving:  # argparse
        status = leaving.code
    assert status == 2
    assert place in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert find("lab") is None and find(f"run-{os.getpid()}") is None


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory):
    """What two workers without a lab print: the losses."""
    cli = ForkedCli(tmp_path_factory.mktemp("work"))
    settings = ("--workers", 2, "--no-probe", "--strategy", "all-reduce")
    done = cli.run("run", *settings, cli.write(TRAIN))
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.forked
def test_emulated_run_trains_the_same_as_two_workers_do_on_one_machine(cli, train, on_one_machine):
    settings = ("--emulate", "--nodes", 2, "--rate", "50mbit", "--strategy", "all-reduce")
    done = cli.run("lab", "run", *settings, "--json", "-", train)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["plan"]["num_workers"] == 2
    assert document["result"]["num_steps"] == 16
    assert "emulated" in done.stderr
    assert set(on_one_machine.splitlines()) <= set(done.stderr.splitlines())


@pytest.mark.root
def test_run_on_a_lab_of_the_kernel_trains_the_same(cli, train, on_one_machine):
    need_kernel()
    lab = new_lab(2)
    cli.write('rate = "50mbit"\n[[hosts]]\nname = "old"\n[[hosts]]\nname = "new"\n', "lab.toml")
    settings = ("--name", lab.name, "--strategy", "all-reduce", "--json", "out.json")
    try:
        done = cli.run("lab", "run", *settings, "lab.toml", train)
        assert done.returncode == 0, done.stderr
        document = json.loads((cli.folder / "out.json").read_text())
        assert document["plan"]["placement"] == ["old", "new"]
        assert done.stdout == on_one_machine
        assert "network namespaces" in done.stderr
        assert traces(lab) == []
    finally:
        clean(lab)


@pytest.mark.forked
def test_words_after_the_script_are_its_own(cli):
    script = cli.write("import sys, torch\nprint(sys.argv[1:])\n")
    settings = ("lab", "run", "--emulate", "--nodes", 1, "--strategy", "single")
    done = cli.run(*settings, "--", script, "--rate", "x", "--", "y")
    assert done.stdout == "['--rate', 'x', '--', 'y']\n", done.stderr


def test_a_dry_run_tells_the_plan_and_makes_nothing(cli, train):
    done = cli.run(
        "lab", "run", "--nodes", 2, "--rate", "50mbit", "--dry-run", "--json", "-", train
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "planned"
    if not this_machine().lacks:
        assert "tbf rate 50000000bit" in done.stderr
