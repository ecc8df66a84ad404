"""The documents keep up with the code: options, names, commands, paths."""

import argparse
import re
import shlex

import pytest
from tests.docs.blocks import ROOT, blocks, commands, pages

import reparto
from reparto.cli import COMMANDS, _parser

CLI_PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
LIBRARY_PAGE = (ROOT / "docs" / "reference" / "library.md").read_text()
PAGES = pages()


def parser_of(command):
    """The parser of one command, as ``reparto COMMAND`` makes it."""
    subparsers = next(
        action
        for action in _parser([command])._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return subparsers.choices[command]


def section(command):
    found = re.search(rf"^## reparto {command}\n(.*?)(?=^## |\Z)", CLI_PAGE, re.M | re.S)
    assert found, f"docs/reference/cli.md has no section on {command}"
    return found.group(1)


def options_of(command):
    return options_in(parser_of(command))


def options_in(parser):
    """Of a parser, and of the commands that it has."""
    found = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = found.union(*(options_in(one) for one in action.choices.values()))
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_page_of_commands_has_every_option(command):
    listed = set(re.findall(r"`(--?[\w-]+)", section(command)))
    assert options_of(command) - listed == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_page_of_commands_has_no_option_that_does_not_exist(command):
    rows = [line for line in section(command).splitlines() if line.startswith("| `-")]
    listed = {
        option for row in rows for option in re.findall(r"`(--?[\w-]+)", row.split(" | ")[0])
    }
    assert listed - options_of(command) == set()


@pytest.mark.parametrize("name", reparto.__all__)
def test_page_of_the_library_has_every_public_name(name):
    assert re.search(rf"`reparto\.{name}[`(]", LIBRARY_PAGE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_shown_is_understood(page):
    shown = [line for block in blocks(page) for line in reparto_lines(block)]
    for line in shown:
        words = shlex.split(line, comments=True)[1:]
        words = words[: next((i for i, w in enumerate(words) if w in (">", "|")), len(words))]
        if words in (["--help"], ["--version"]):
            continue
        try:
            args = _parser(words).parse_args(words)
        except SystemExit:
            pytest.fail(f"{page.name}: reparto does not understand {line!r}")
        assert hasattr(args, "command"), line


def reparto_lines(block):
    if block.kind == "console":
        lines = [command.line for command in commands(block)]
    else:
        lines = block.text.splitlines() if block.kind == "sh" else []
    return [line for line in lines if line.startswith("reparto ")]


def test_readme_shows_what_make_demo_runs():
    shown = [
        c.line for b in blocks(ROOT / "README.md") if b.kind == "console" for c in commands(b)
    ]
    target = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M).group(1)
    run = [line.strip().replace("$(BIN)/", "") for line in target.splitlines()]
    assert shown == run


def test_readme_says_no_number_about_speed_that_is_in_no_results_file():
    text = (ROOT / "README.md").read_text()
    results = re.search(r"^## Results\n(.*?)^## ", text, re.M | re.S).group(1)
    figures = set(re.findall(r"\d+(?:\.\d+)?", results))
    recorded = "".join(path.read_text() for path in (ROOT / "benchmarks").glob("*/results/*.json"))
    assert {figure for figure in figures if figure not in recorded} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_named_in_a_page_exist(page):
    named = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", page.read_text())
    # `_my_…` and the like are files that the reader is about to write.
    invented = re.compile(r"/_?(my|rounded|polite)\b|_(rounded|polite|my_\w+)\.py$")
    missing = [path for path in named if not invented.search(path) and not (ROOT / path).exists()]
    assert missing == []
