"""The tutorials do what they show: their commands are run, their output is compared."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.docs.blocks import ROOT, blocks, commands, files

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))

# What differs from machine to machine, or from run to run.
_VARIABLE = (
    (re.compile(r" on \S+ · (cpu|cuda)"), " on HOST · DEVICE"),
    (re.compile(r"\d+ threads? each"), "N threads each"),
    (re.compile(r"reparto \d\S*"), "reparto VERSION"),
    (re.compile(r"(optimizer\d+[.,]\s*(step )?|loss |number )\d+$"), "WHERE"),
    (re.compile(r"(?<![\d.])0(?![\d.])|\d\.\de[-+]\d\d"), "DISTANCE"),
    (re.compile(r"\d+\.\d{2,}"), "NUMBER"),
    (re.compile(r"\s+"), " "),
)


def settled(line):
    for pattern, name in _VARIABLE:
        line = pattern.sub(name, line)
    return line.strip()


def follows(shown, printed):
    """Whether a line was printed as it is shown; ``…`` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in settled(shown).split("…"))
    return re.fullmatch(pattern, settled(printed)) is not None


def missing(shown, printed):
    """The lines that are shown but were not printed."""
    return [line for line in shown if not any(follows(line, one) for one in printed)]


def run(command, folder):
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True)


def run_by_fork(command, folder):
    """The same, without a shell and quicker: for all but the commands that users try first."""
    program, *words = shlex.split(command)
    if program != "python":
        words = ["-m", program, *words]
    return preloaded.run(words, cwd=folder, env=os.environ)


def check(page, folder, run=run):
    for name, text in files(page).items():
        (folder / name).write_text(text)
    shown = [block for block in blocks(page) if block.kind == "console"]
    assert shown, page
    for block in shown:
        for command in commands(block):
            done = run(command.line, folder)
            assert done.returncode == command.status, done.stdout + done.stderr
            lines = [line for line in command.output if line.strip() not in ("", "…", "+")]
            printed = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            assert missing(lines, printed) == [], f"{command.line}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_commands_of_tutorial_print_what_it_shows(page, tmp_path):
    check(page, tmp_path, run_by_fork)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commands_of_readme_print_what_it_shows(tmp_path):
    pytest.importorskip("sklearn")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    check(ROOT / "README.md", tmp_path)


def test_comparison_of_lines_can_fail():
    assert follows("done after … · 96 steps · final", "done after 3 s · 96 steps · final")
    assert not follows("done after … · 96 steps", "done after 3 s · 95 steps")
    assert follows("x.py: alone (…) against 2", "x.py: alone (3 s) against 2")
    assert follows("  losses   20  2.6e-16  1.0e-07  loss 9", "  losses   20  0  1.0e-07  loss 1")
    assert not follows("equal: the same", "NOT EQUAL: the same")
    assert missing(["epoch 1: loss 0.2596", "epoch 4"], ["epoch 1: loss 0.2597"]) == ["epoch 4"]
