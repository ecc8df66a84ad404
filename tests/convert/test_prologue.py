"""Where the import goes, under which name, and what stays as it is."""

from __future__ import annotations

import pytest

from reparto.convert import Converted, Unchanged, convert, diff

PROLOGUE = """\
import reparto

reparto.init()  # joins the other workers; does nothing when there is one

"""
BODY = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x in DataLoader(torch.randn(8, 1), 4):
    model(x).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    "head",
    [
        "",
        '"""A docstring."""\n',
        '#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n"""A docstring."""\n\n',
        '"""A docstring."""\nfrom __future__ import annotations\n',
        "# a comment\n\n",
    ],
)
def test_prologue_stands_before_all_that_python_lets_it(head: str, convert_text) -> None:
    converted = convert_text(head + BODY).program.files[0].converted
    assert converted.startswith(head + PROLOGUE + "import torch\n")


def test_docstring_and_import_on_one_line(convert_text) -> None:
    converted = convert_text('"""Doc."""; ' + BODY).program.files[0].converted
    assert converted.startswith('"""Doc."""; import reparto; reparto.init(); import torch\n')


def test_taken_name_is_avoided(convert_text) -> None:
    converted = convert_text(BODY + "reparto = 3\n").program.files[0].converted
    assert "import reparto as reparto_\n" in converted
    assert "reparto_.prepare(torch.nn.Linear(1, 1))" in converted


def test_converting_the_converted_changes_nothing(convert_text) -> None:
    first = convert_text(BODY)
    again = convert_text(first.program.files[0].converted)
    assert isinstance(again, Unchanged)
    assert again.program.launch == "reparto"
    assert diff(again.program) == ""


def test_line_ends_and_other_alphabets_are_kept(tmp_path) -> None:
    path = tmp_path / "train.py"
    text = BODY.replace("x in", "größe in").replace("model(x)", "model(größe)")
    raw = (text + "name = 'ñandú'; loader = DataLoader([name], 2)\n").replace("\n", "\r\n")
    path.write_bytes(raw.encode())
    result = convert(path)
    assert isinstance(result, Converted)
    converted = result.program.files[0].converted
    assert "\n" not in converted.replace("\r\n", "")
    assert "name = 'ñandú'; loader = reparto.prepare(DataLoader([name], 2))" in converted
    back = converted.replace("reparto.prepare(DataLoader([name], 2))", "DataLoader([name], 2)")
    assert "for größe in reparto.prepare(DataLoader(torch.randn(8, 1), 4)):" in back


def test_diff_names_files_relative_to_the_script(convert_text) -> None:
    text = diff(convert_text(BODY).program)
    assert text.startswith("--- a/train.py\n+++ b/train.py\n")
    assert "+model = reparto.prepare(torch.nn.Linear(1, 1))" in text
