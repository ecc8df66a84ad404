"""Options of reparto behind a script are reparto's where the script cannot mean them."""

import argparse

import pytest

from reparto.cli import main
from reparto.cli._arguments import add_json, add_script, count
from reparto.cli._behind import brought_forward


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--workers", type=count)
    parser.add_argument("--relaxed", action="store_true")
    parser.add_argument("--batch-size")
    add_json(parser)
    add_script(parser)
    return parser


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("parser.add_argument('--epochs'); args.batch_size\n")
    return str(path)


def moved(parser, *arguments):
    return brought_forward(parser, arguments)[0]


def test_an_option_that_the_script_does_not_mention_is_taken(parser, script):
    found, note = brought_forward(parser, [script, "--hosts", "9", "--epochs", "3", "--relaxed"])
    assert found == ["--hosts", "9", "--relaxed", script, "--epochs", "3"]
    assert "--hosts 9 --relaxed stands behind train.py" in note
    args = parser.parse_args(found)
    assert (args.hosts, args.relaxed, args.script_args) == ("9", True, ["--epochs", "3"])


def test_an_option_with_an_equals_sign_is_taken_whole(parser, script):
    found = moved(parser, "--hosts", "9", script, "--workers=2", "--epochs=3")
    assert found == ["--hosts", "9", "--workers=2", script, "--epochs=3"]


def test_an_option_that_the_script_mentions_is_left_to_it(parser, script):
    arguments = ["--hosts", "9", script, "--batch-size", "8"]
    assert brought_forward(parser, arguments) == (arguments, "")


def test_a_file_beside_the_script_may_have_the_option(parser, script, tmp_path):
    (tmp_path / "options.py").write_text("@click.option('--workers')\n")
    arguments = ["--hosts", "9", script, "--workers", "8"]
    assert moved(parser, *arguments) == arguments


@pytest.mark.parametrize("how", ["import sys; sys.argv[1:]", "import fire", "HfArgumentParser(x)"])
def test_a_script_that_takes_options_of_any_name_keeps_all(parser, script, tmp_path, how):
    (tmp_path / "train.py").write_text(how)
    arguments = ["--hosts", "9", script, "--workers", "8"]
    assert moved(parser, *arguments) == arguments


def test_all_behind_two_dashes_is_the_scripts(parser, script):
    first = ["--hosts", "9", script, "--", "--workers", "8"]
    assert moved(parser, *first) == first
    later = ["--hosts", "9", script, "--epochs", "1", "--", "--workers", "8"]
    assert moved(parser, *later) == later


def test_help_behind_the_script_is_the_scripts(parser, script):
    arguments = ["--hosts", "9", script, "--help"]
    assert moved(parser, *arguments) == arguments


def test_an_option_without_its_value_is_left_where_it_is(parser, script):
    arguments = ["--hosts", "9", script, "--workers"]
    assert moved(parser, *arguments) == arguments


def test_a_script_that_is_not_there_keeps_its_arguments(parser):
    arguments = ["--hosts", "9", "nowhere.py", "--workers", "8"]
    assert moved(parser, *arguments) == arguments


def test_the_command_takes_them(script, capsys):
    assert main(["convert", script, "--diff"]) == 3  # there is no training loop in it
    assert "--diff stands behind train.py" in capsys.readouterr().err
