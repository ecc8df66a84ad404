"""What was measured, kept in a file: ``--save-survey FILE``, and ``--survey FILE`` later on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reparto.cli._arguments import own_args
from reparto.errors import UsageError

if TYPE_CHECKING:
    from reparto.spec import Survey


def given_survey(args: argparse.Namespace, measuring: Sequence[str]) -> Survey:
    """What ``--survey`` names, of the script that is named beside it.

    Args:
        args: Of the command.
        measuring: Options that say how to measure, and mean nothing where nothing is measured.

    Raises:
        UsageError: If there is no such file, it is no survey or one of another script, or if an
            option contradicts it.
    """
    given = [name for name in measuring if getattr(args, name)]
    if args.engine != "local":
        given.append("engine")
    if given:
        raise UsageError(
            f"--survey starts nothing, and --{given[0].replace('_', '-')} is about measuring",
            remedy="leave out one",
        )
    survey = read_survey(Path(args.survey))
    if Path(survey.script).name != Path(args.script).name:
        raise UsageError(
            f"--survey {args.survey}: it was measured of {survey.script}, not of {args.script}",
            remedy="name that script, or measure this one",
        )
    if own_args(args) not in ((), survey.args):
        was = " ".join(survey.args) or "without arguments"
        raise UsageError(
            f"--survey {args.survey}: the script was measured with other arguments: {was}",
            remedy="leave them out, or measure again",
        )
    return survey


def read_survey(path: Path) -> Survey:
    """What was measured before.

    Raises:
        UsageError: If there is no such file, it is no survey, or cannot have been measured.
    """
    from reparto.plan import flaw_of
    from reparto.spec import Survey, from_json

    remedy = "give a file that --save-survey has written"
    try:
        survey = from_json(Survey, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--survey {path}: {error.strerror}", remedy=remedy) from error
    except (ValueError, UsageError) as error:
        why = error.message if isinstance(error, UsageError) else f"it is no survey ({error})"
        raise UsageError(f"--survey {path}: {why}", remedy=remedy) from error
    if flaw := flaw_of(survey):
        raise UsageError(f"--survey {path}: this cannot have been measured: {flaw}", remedy=remedy)
    return survey


def check_folder(path: str | None) -> None:
    """Refuse a file that cannot be written, before a minute has gone by.

    Raises:
        UsageError: If its folder is missing.
    """
    if path and not Path(path).parent.is_dir():
        raise UsageError(
            f"--save-survey {path}: there is no folder {Path(path).parent}",
            remedy="make it, or give another file",
        )


def write_survey(path: Path, survey: Survey) -> None:
    """Keep what was measured.

    Raises:
        UsageError: If the file cannot be written.
    """
    from reparto.spec import to_json

    try:
        path.write_text(to_json(survey, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--save-survey {path}: {error.strerror}") from error
