"""The page lists exactly the codes that the converter can give."""

from __future__ import annotations

import re
from pathlib import Path

from reparto.convert.shapes._codes import CODES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "diagnostics.md"


def test_page_and_codes_agree() -> None:
    listed = re.findall(r"^### (C\d{3})\b", PAGE.read_text(), re.MULTILINE)
    assert listed == sorted(CODES)


def test_each_code_has_an_example() -> None:
    sections = re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert all("```" in section for section in sections)


def test_severity_follows_the_hundreds() -> None:
    severity = {"1": "note", "2": "error", "3": "note", "4": "warning"}
    assert all(code.severity == severity[name[1]] for name, code in CODES.items())
