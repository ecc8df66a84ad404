"""`reparto strategies`, and strategies on the command line of `run`."""

import json

import pytest

from reparto.cli import main
from reparto.strategies import available, compressors

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(120, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    print(f"error {nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).item():.3f}")
"""


def test_all_are_listed(capsys):
    assert main(["strategies"]) == 0
    words = capsys.readouterr().out.split()
    assert {*available(), *compressors.available()} <= set(words)


@pytest.mark.parametrize("kind", [*available(), *compressors.available()])
def test_each_is_shown_with_its_settings(kind, capsys):
    assert main(["strategies", "show", kind, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == kind
    assert found["summary"]
    assert all(knob["meaning"] and knob["default"] for knob in found["knobs"])
    assert main(["strategies", "show", kind]) == 0
    shown = capsys.readouterr().out
    assert all(f"{knob['name']}={knob['default']}" in shown for knob in found["knobs"])


@pytest.mark.parametrize(
    "words", [["show"], ["show", "no-such"], ["list", "diloco"]], ids=" ".join
)
def test_unknown_names_are_told(words, capsys):
    assert main(["strategies", *words]) == 2
    assert "→" in capsys.readouterr().err


@pytest.mark.forked
def test_what_would_change_is_said_before_anything_runs(cli):
    done = cli.run("run", "--workers", "2", "--strategy", "diloco", cli.write(SCRIPT))
    assert done.returncode == 2
    assert "16 steps of their own" in done.stderr
    assert "--relaxed" in done.stderr
    assert done.stdout == ""


@pytest.mark.forked
@pytest.mark.parametrize(
    "words",
    [
        ["local-sgd", "sync_every=4"],
        ["diloco", "sync_every=6", "fragments=2", "overlap=2", "rate=0.6"],
        ["gossip", "graph=ring", "compressor.kind=quantize"],
        ["parameter-server", "mode=stale", "servers=2", "bound=1", "compressor.kind=cast"],
        ["all-reduce", "compressor.kind=powersgd", "batch=worker", "rate=1.5"],
    ],
    ids=lambda words: words[0],
)
def test_workers_train_by_it(cli, words):
    settings = [part for setting in words[1:] for part in ("--set", setting)]
    done = cli.run(
        "run", "--workers", "2", "--strategy", words[0], *settings, "--relaxed", cli.write(SCRIPT)
    )
    assert done.returncode == 0, done.stderr
    word, value = done.stdout.split()
    assert word == "error"
    assert float(value) < 0.5
    assert words[0] in done.stderr
