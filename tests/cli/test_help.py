"""Every command explains itself, with an example."""

import pytest

from reparto._version import __version__
from reparto.cli import COMMANDS, main

LAB = [f"lab {name}" for name in ("up", "run", "check", "sweep", "down", "list")]


@pytest.mark.parametrize("command", [*COMMANDS, *LAB])
def test_help_of_each_command_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([*command.split(), "--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    assert f"example:\n  reparto {command}" in text
    assert "--json FILE" in text or command == "lab"


@pytest.mark.parametrize(
    ("command", "offers_peers"), [("run", True), ("verify", False), ("compare", False)]
)
def test_help_offers_peers_where_they_can_be_used(command, offers_peers, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert ("peers" in capsys.readouterr().out) is offers_peers


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"reparto {__version__}\n"


def test_no_command_is_bad_usage(capsys):
    assert main([]) == 2
    assert "usage" in capsys.readouterr().out


def test_unknown_command_is_bad_usage():
    with pytest.raises(SystemExit) as leaving:
        main(["fly"])
    assert leaving.value.code == 2
