"""Modules of the user's own that do not lie beside the script."""

import sys
from pathlib import Path

import pytest

from reparto.convert import Converted, Refused, convert

TRAINER = """
import torch

def fit(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
SCRIPT = """
{prologue}
import torch
from torch.utils.data import DataLoader, TensorDataset
from common.trainer import fit

loader = DataLoader(TensorDataset(torch.randn(8, 3), torch.randn(8, 1)), batch_size=4)
fit(torch.nn.Linear(3, 1), loader)
"""
PROLOGUES = {
    "literal": "import sys\nsys.path.append('..')",
    "dirname": "import os, sys\n"
    "sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))",
    "join": "import os, sys\nsys.path.append(os.path.join(os.path.dirname(__file__), os.pardir))",
    "parent": "import sys\nfrom pathlib import Path\n"
    "sys.path.append(str(Path(__file__).resolve().parent.parent))",
    "parents": "import sys\nfrom pathlib import Path\n"
    "sys.path.insert(1, str(Path(__file__).resolve().parents[1]))",
    "slash": "import sys, pathlib\nsys.path.append(str(pathlib.Path(__file__).parent / '..'))",
}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    common = tmp_path / "root" / "common"
    common.mkdir(parents=True)
    (common / "__init__.py").write_text("")
    (common / "trainer.py").write_text(TRAINER)
    project = tmp_path / "root" / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project / "train.py"


@pytest.mark.parametrize("name", PROLOGUES)
def test_folders_that_the_script_adds_are_followed(script: Path, name: str) -> None:
    script.write_text(SCRIPT.format(prologue=PROLOGUES[name]))
    result = convert(script)
    assert isinstance(result, Converted), result.program.diagnostics
    found = {file.module: file for file in result.program.files}
    assert set(found) == {"__main__", "common", "common.trainer"}
    assert "reparto.prepare" in found["common.trainer"].converted


@pytest.mark.parametrize(
    "prologue", ["", "import sys\nsys.path.append(input())", "import sys\nsys.path.append(1 / 0)"]
)
def test_what_python_finds_outside_of_installed_packages_is_the_users(
    script: Path, prologue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text(SCRIPT.format(prologue=prologue))
    result = convert(script)
    assert isinstance(result, Refused)
    assert [found.code for found in result.program.diagnostics] == ["C201"]
    monkeypatch.syspath_prepend(script.parents[1])
    result = convert(script)
    assert isinstance(result, Converted), result.program.diagnostics
    assert "common.trainer" in {file.module for file in result.program.files}


def test_installed_packages_are_left_alone(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    installed.parent.mkdir()
    (script.parents[1]).rename(installed)
    moved = installed / "project" / "train.py"
    moved.parent.rename(tmp_path / "project")
    script = tmp_path / "project" / "train.py"
    script.write_text(SCRIPT.format(prologue=f"import sys\nsys.path.append({str(installed)!r})"))
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    result = convert(script)
    assert isinstance(result, Refused)
