"""``reparto verify`` from end to end, on small scripts; and that it fails when it should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import preloaded
from tests.forked import forked_workers

from reparto.spec import VerifyResult
from reparto.verify import verify

SOURCE = Path(__file__).parents[2] / "src"

# A little of everything: shuffling, dropout, BatchNorm, a short last batch, a number that is read.
CLASSIFIER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(21, 6)
y = torch.randint(0, 3, (21,))
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
layers = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
model = nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(5):
    total = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(inputs)
    print("epoch", epoch, total)
"""

RESUMING = """
import os, torch
from torch import nn
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = 0
if os.path.exists("last.pt"):
    kept = torch.load("last.pt")
    model.load_state_dict(kept["model"])
    start = kept["epoch"]
rows = [line.split(",") for line in open("../data/table.csv")]
table = torch.tensor([[float(cell) for cell in row] for row in rows])
for epoch in range(start, 4):
    for i in range(0, len(table), 4):
        batch = table[i : i + 4]
        loss = nn.functional.mse_loss(model(batch[:, :3]), batch[:, 3:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "epoch": epoch + 1}, "last.pt")
    with open("../data/log.txt", "a") as log:
        log.write(f"{epoch} {loss.item()}\\n")
"""

SLICED = CLASSIFIER.replace(
    "for inputs, labels in loader:",
    "for i in range(0, 21, 8):\n        inputs, labels = x[i : i + 8], y[i : i + 8]",
)

# The true gradient of this bias is zero: Adam moves it by whatever rounding leaves.
VANISHING_BIAS = """
import torch
from torch import nn
x, y = torch.randn(16, 3, 6, 6), torch.randn(16, 4)
layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)
model = nn.Sequential(*layers)
nn.init.zeros_(model[0].bias)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for i in range(0, 16, 8):
        loss = nn.functional.mse_loss(model(x[i : i + 8]), y[i : i + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

# No two runs are the same to the bit, as with the sums of some kernels of GPUs.
UNSTEADY = CLASSIFIER.replace(
    "x = torch.randn(21, 6)",
    "import os\nx = torch.randn(21, 6) + os.getpid() * 1e-12",
)

# Looks at the size of an element, which no promotion can hide.
FLOAT32_ONLY = CLASSIFIER.replace(
    "x = torch.randn(21, 6)",
    "x = torch.randn(21, 6)\n"
    "if x.element_size() != 4:\n"
    "    raise TypeError('four bytes are needed')",
)


def run(
    script: Path, *options: str, sabotage: str = "", by_fork: bool = True
) -> tuple[int, str, dict[str, object]]:
    report = script.parent / "report.json"
    words = ["-m", "reparto", "verify", "--json", str(report), *options, str(script)]
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "REPARTO_SABOTAGE": sabotage}
    if by_fork:
        done = preloaded.run(words, cwd=script.parent, env=env)
    else:
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=script.parent, env=env, capture_output=True, text=True, timeout=200
        )
    found: dict[str, object] = json.loads(report.read_text()) if report.exists() else {}
    report.unlink(missing_ok=True)
    result = found.get("result", found)
    assert isinstance(result, dict)
    return done.returncode, done.stdout + done.stderr, result


def prove(
    monkeypatch: pytest.MonkeyPatch, script: Path, *, sabotage: str = "", **settings: Any
) -> VerifyResult:
    """Without the command, and with workers that start quickly."""
    monkeypatch.chdir(script.parent)
    monkeypatch.setenv("REPARTO_SABOTAGE", sabotage)
    with forked_workers():
        return verify(script.name, **settings)


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    script = tmp_path / "train.py"
    script.write_text(CLASSIFIER)
    return script


def test_two_workers_are_equal(classifier: Path) -> None:
    status, text, result = run(classifier, "--steps", "8", by_fork=False)
    assert status == 0, text
    assert result["verdict"] == "equal"
    assert result["num_steps"] == 8
    assert result["precision"] == "float64"
    assert len(result["losses"]) == 8  # type: ignore[arg-type]
    assert "equal: the shared-out training is the sequential one" in text
    assert "epoch 0" not in text


def test_three_workers_share_out_unequal_slices(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = prove(monkeypatch, classifier, workers=3, steps=6)
    assert result.verdict == "equal", result.divergence


def test_batches_cut_by_hand_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(SLICED)
    result = prove(monkeypatch, script, steps=6)
    assert result.verdict == "equal", result.divergence


def test_one_worker_agrees_to_the_last_bit(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        result = prove(monkeypatch, classifier, workers=1, steps=6)
        if result.verdict == "equal" and result.tolerance == 0:
            break
        assert any("does not repeat itself" in note for note in result.notes), result.divergence
    assert result.verdict == "equal", result.divergence
    assert result.tolerance == 0


def test_script_that_does_not_repeat_itself_is_held_against_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(UNSTEADY)
    result = prove(monkeypatch, script, workers=1, steps=4)
    assert result.verdict == "equal", result.divergence
    assert any("does not repeat itself to the bit" in note for note in result.notes)


def test_sabotage_is_told(classifier: Path) -> None:
    status, text, result = run(classifier, "--steps", "4", sabotage="sum-for-mean")
    assert status == 1, text
    assert result["verdict"] == "unequal"
    assert "NOT EQUAL" in text
    assert "2 × with 2 workers: a sum over workers where a mean was meant?" in text
    assert result["divergence"]


@pytest.mark.parametrize("text", [CLASSIFIER, SLICED], ids=["loader", "sliced"])
@pytest.mark.parametrize(
    "sabotage",
    ["sum-for-mean", "doubled-sample", "dropped-sample", "missing-reduction", "stale-batchnorm"],
)
def test_sabotage_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sabotage: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    result = prove(monkeypatch, script, steps=2, sabotage=sabotage)
    assert result.verdict == "unequal"
    assert result.divergence


def test_each_side_resumes_from_its_own_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (tmp_path / "data").mkdir()
    folder.mkdir()
    table = "".join(f"{i},{i % 3},{i % 5},{i % 7}\n" for i in range(10))
    (tmp_path / "data" / "table.csv").write_text(table)
    (folder / "train.py").write_text(RESUMING)
    status, text, result = run(folder / "train.py")
    assert status == 0, text
    assert result["num_steps"] == 12
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["table.csv"]


def test_rounding_that_adam_magnifies_is_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(VANISHING_BIAS)
    result = prove(monkeypatch, script)
    assert result.verdict == "equal", result.divergence
    assert any("rounding alone moves optimizer0.1" in note for note in result.notes)


def test_script_that_needs_float32_is_compared_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(FLOAT32_ONLY)
    result = prove(monkeypatch, script, steps=4)
    assert result.verdict == "equal", result.divergence
    assert result.precision == "float32"
    assert result.tolerance == 1e-5
    assert any("four bytes are needed" in note for note in result.notes)


def test_script_that_fails_shows_its_output(classifier: Path) -> None:
    classifier.write_text(CLASSIFIER + "raise ValueError('at the end')\n")
    status, text, result = run(classifier)
    assert status == 1
    assert "epoch 4" in text
    assert "ValueError: at the end" in text
    assert f'"{classifier}"' in text
    assert result["status"] == "failed"


@pytest.mark.parametrize("text", ["print('no training')\n", "for x in:\n"])
def test_script_that_is_refused_says_where(tmp_path: Path, text: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    status, text, result = run(script)
    assert status == 3
    assert f"{script}:1:" in text
    assert result["status"] == "refused"


def test_script_that_distributes_itself_has_nothing_to_compare(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch.distributed as dist\n\ndist.init_process_group('gloo')\n")
    status, text, result = run(script)
    assert status == 0
    assert result["verdict"] == "unchanged"
    assert "nothing to compare" in text


def test_missing_script_is_bad_usage(tmp_path: Path) -> None:
    status, text, _ = run(tmp_path / "nowhere.py")
    assert status == 2
    assert "nowhere.py" in text


def test_keep_keeps_records_and_outputs(classifier: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    status, text, _ = run(classifier, "--steps", "2", "--keep", str(kept))
    assert status == 0, text
    assert (kept / "sequential" / "record" / "record").exists()
    assert (kept / "shared" / "output.txt").exists()
    status, text, _ = run(classifier, "--keep", str(kept))
    assert status == 2
    assert "not an empty folder" in text
