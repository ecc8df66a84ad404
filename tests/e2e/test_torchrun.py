"""Converted source, and scripts that call the library, under torchrun: no engine of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import preloaded

from reparto.convert import convert

SCRIPT = """\
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if not os.path.exists("data"):
    os.makedirs("data")
    torch.save(torch.arange(30.0).view(10, 3).sin(), "data/x.pt")
x = torch.load("data/x.pt")
loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=4, shuffle=True{spawned})
torch.manual_seed(3)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if __name__ == "__main__":
    for epoch in range({epochs}):
        for a, b in loader:
            loss = nn.functional.mse_loss(model(a).squeeze(1), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"loss {{loss.item():.4f}}")
    with open("log.txt", "a") as file:
        file.write("once\\n")
"""
BY_HAND = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import reparto

data = TensorDataset(torch.randn(16, 3), torch.randn(16, 1))  # before the workers meet
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
model, optimizer, loader = reparto.prepare(model, optimizer, loader)
for x, y in loader:
    nn.functional.mse_loss(model(x), y).backward()
"""


def torchrun(script: Path) -> subprocess.CompletedProcess[str]:
    launcher = str(Path(sys.executable).parent / "torchrun")
    return subprocess.run(
        [launcher, "--standalone", "--nproc-per-node", "2", script.name],
        cwd=script.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.fixture(scope="module")
def printed_alone(tmp_path_factory):
    """What the script prints without us; batches are the same whoever loads them."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "train.py").write_text(SCRIPT.format(spawned="", epochs=2))
    done = preloaded.run(["train.py"], cwd=folder, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("loss") == 2
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("spawned", "epochs"),
    [("", 2), (', num_workers=1, multiprocessing_context="spawn"', 1)],
    ids=["plain", "spawned"],
)
def test_converted_source_prints_and_writes_once(
    tmp_path: Path, printed_alone: list[str], spawned: str, epochs: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(spawned=spawned, epochs=epochs))
    script.write_text(convert(script).program.files[0].converted)
    done = torchrun(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == printed_alone[:epochs]
    assert (tmp_path / "log.txt").read_text() == "once\n"


def test_workers_with_different_data_are_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BY_HAND)
    done = torchrun(script)
    assert done.returncode != 0
    assert "have different data" in done.stderr
    assert "reparto.init() before the data is made" in done.stderr
