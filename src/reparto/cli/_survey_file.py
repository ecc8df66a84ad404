"""What was measured, kept in a file: ``--save-survey FILE``, and ``--survey FILE`` later on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reparto.errors import UsageError

if TYPE_CHECKING:
    from reparto.spec import Survey


def read_survey(path: Path) -> Survey:
    """What was measured before.

    Raises:
        UsageError: If there is no such file, or it is no survey.
    """
    from reparto.spec import Survey, from_json

    try:
        return from_json(Survey, path.read_text(encoding="utf-8"))
    except (OSError, ValueError, UsageError) as error:
        why = error.message if isinstance(error, UsageError) else error
        raise UsageError(
            f"--survey {path}: {why}", remedy="give a file that --save-survey has written"
        ) from error


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
