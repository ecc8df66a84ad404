"""A traceback as the user would want to read it."""

import textwrap

import pytest
import torch

from reparto.errors import DisagreementError
from reparto.runtime import _failure
from reparto.runtime._failure import describe
from reparto.spec import Program

PROGRAM = Program(script="/proj/train.py")


def raised(text, **names):
    """Run a script of the user's; `ours` in it is a function of reparto's."""
    ours = {"torch": torch, "DisagreementError": DisagreementError}
    source = textwrap.dedent(text)
    body, _, script = source.partition("---\n")
    exec(compile(body, _failure._PACKAGE + "runtime/_made_up.py", "exec"), ours)
    try:
        exec(compile(script, PROGRAM.script, "exec"), {"ours": ours["ours"], **names})
    except BaseException as error:
        return describe(error, rank=1, step=4, program=PROGRAM)
    raise AssertionError("nothing was raised")


def test_frames_of_ours_between_those_of_the_user_are_hidden():
    found = raised(
        """
        def ours(f):
            return f()
        ---
        def theirs():
            raise ValueError("theirs")

        ours(theirs)
        """
    )
    assert "_made_up" not in found.traceback
    assert (found.error, found.file, found.line) == ("ValueError", "/proj/train.py", 2)
    assert (found.rank, found.step) == (1, 4)


@pytest.mark.parametrize(
    "action", ["torch.ones(2) @ torch.ones(3)", 'raise DisagreementError("drifted apart")']
)
def test_error_of_an_operation_is_told_at_the_users_line(action):
    found = raised(f"def ours():\n    {action}\n---\n\nours()\n")
    assert "_made_up" not in found.traceback
    assert (found.file, found.line) == ("/proj/train.py", 2)


def test_defect_of_ours_shows_where_it_is():
    found = raised("def ours():\n    return None.nothing\n---\nours()\n")
    assert "_made_up" in found.traceback


def test_all_frames_are_shown_on_request(monkeypatch):
    monkeypatch.setenv(_failure.FULL_VARIABLE, "full")
    found = raised("def ours():\n    torch.ones(2) @ torch.ones(3)\n---\nours()\n")
    assert "_made_up" in found.traceback


def test_earlier_exceptions_are_told_too():
    found = raised(
        """
        def ours():
            pass
        ---
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise ValueError("later") from error
        """
    )
    assert "ZeroDivisionError" in found.traceback
    assert "direct cause" in found.traceback
