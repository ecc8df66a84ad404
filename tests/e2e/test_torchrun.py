"""Converted source, and scripts that call the library, under torchrun: no engine of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    for epoch in range(2):
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


@pytest.mark.parametrize(
    "spawned", ["", ', num_workers=1, multiprocessing_context="spawn"'], ids=["plain", "spawned"]
)
def test_converted_source_prints_and_writes_once(tmp_path: Path, spawned: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(spawned=spawned))
    alone = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (tmp_path / "log.txt").unlink()
    (tmp_path / "data" / "x.pt").unlink()
    (tmp_path / "data").rmdir()
    script.write_text(convert(script).program.files[0].converted)
    done = torchrun(script)
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    assert (tmp_path / "log.txt").read_text() == "once\n"


def test_workers_with_different_data_are_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BY_HAND)
    done = torchrun(script)
    assert done.returncode != 0
    assert "have different data" in done.stderr
    assert "reparto.init() before the data is made" in done.stderr
