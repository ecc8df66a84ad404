"""Fixtures that convert source given as text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from reparto.convert import Result, convert

Convert = Callable[..., Result]


@pytest.fixture
def convert_text(tmp_path: Path) -> Convert:
    """Convert a script given as text; further files by their paths beside it."""

    def run(script: str, files: dict[str, str] | None = None) -> Result:
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(script))
        return convert(path)

    return run
