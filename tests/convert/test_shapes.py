"""Shapes are found by their files, and the scripts of the test suite all pass through them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reparto.convert import Converted, Unchanged, convert, shapes
from reparto.convert.gather._source import parse

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("*.py"))


def test_shape_is_added_by_its_file_alone(tmp_path: Path, monkeypatch, convert_text) -> None:
    folder = tmp_path / "shapes"
    folder.mkdir()
    (folder / "pickles.py").write_text(
        "from reparto.convert.shapes import Decision\n"
        "ORDER = 1\n"
        "def find(facts):\n"
        "    return Decision(launch='plain', reason=f'{len(facts.sources)} pickled')\n"
    )
    monkeypatch.setattr(shapes, "__path__", [*shapes.__path__, str(folder)])
    result = convert_text("x = 1\n")
    sys.modules.pop("reparto.convert.shapes.pickles", None)
    assert isinstance(result, Unchanged), result.program.diagnostics
    assert result.reason == "1 pickled"


def test_shapes_are_asked_in_their_order() -> None:
    order = [shape.ORDER for shape in shapes.every_shape()]
    assert order == sorted(order) and len(order) > 10


def test_list_of_shapes_names_each_file() -> None:
    folder = Path(shapes.__file__).parent
    names = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")]
    assert all(name in (shapes.__doc__ or "") for name in names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_is_converted_into_valid_source(script: Path) -> None:
    result = convert(script)
    if not isinstance(result, Converted):
        assert "C205" not in {found.code for found in result.program.diagnostics}
        return
    for file in result.program.files:
        parse(file.converted, Path(file.path))
    original = result.program.files[0].original.splitlines()
    lines = set(result.program.files[0].converted.splitlines())
    comments = [line for line in original if line.lstrip().startswith("#")]
    assert all(line in lines for line in comments)
