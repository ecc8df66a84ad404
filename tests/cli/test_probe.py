"""The start-up probe: what it asks, and how its answer is read."""

import json
import signal
import time

import pytest

from reparto._probe import probe_command, read_finding
from reparto.spec import Job, Options

pytestmark = pytest.mark.alone

ENDLESS = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loss_of = nn.MSELoss()
while True:
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        time.sleep(0.05)  # a step that leaves the processor to the probe
"""


@pytest.mark.forked
@pytest.mark.slow
def test_run_that_is_not_equal_is_stopped_with_what_was_found(cli):
    cli.env["REPARTO_SABOTAGE"] = "sum-for-mean"  # only verify reads it
    done = cli.run("run", "--workers", 2, cli.write(ENDLESS))
    assert done.returncode == 1, done.stderr
    assert "start-up probe found the shared-out gradient unequal" in done.stderr
    assert cli.running() == []


@pytest.mark.forked
@pytest.mark.slow
def test_it_dies_with_the_run_and_leaves_no_scratch(cli, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    cli.env["TMPDIR"] = str(scratch)
    process = cli.start("run", "--workers", 2, cli.write(ENDLESS))
    while not list(scratch.glob("reparto-probe-*/*")):  # it has begun
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert cli.seconds_until_gone() < 3
    assert list(scratch.glob("reparto-*")) == []


def test_it_asks_verify_for_one_step_with_the_scripts_own_arguments(tmp_path):
    job = Job(
        script="train.py",
        args=("--workers", "9"),
        strategy="parameter-server",
        settings={"servers": 2},
        options=Options(seed=5),
    )
    command = probe_command(job, 3, tmp_path / "r.json")
    assert command[command.index("verify") :] == [
        *("verify", "--workers", "3", "--steps", "1", "--json", str(tmp_path / "r.json")),
        *("--seed", "5", "--strategy", "parameter-server", "--set", "servers=2"),
        *("--", "train.py", "--workers", "9"),
    ]


@pytest.mark.parametrize(
    ("status", "report", "verdict", "words"),
    [
        (0, {"result": {"verdict": "equal"}}, "equal", "is equal"),
        (
            1,
            {"result": {"verdict": "unequal", "divergence": {"place": "step 1", "what": "2x"}}},
            "unequal",
            "step 1: 2x",
        ),
        (1, None, "unknown", "status 1"),
        (1, {"status": "failed"}, "unknown", "status 1"),
        (None, None, "unknown", "longer than"),
    ],
)
def test_its_answer_is_read(tmp_path, status, report, verdict, words):
    path = tmp_path / "r.json"
    if report is not None:
        path.write_text(json.dumps(report))
    found = read_finding(status, path)
    assert found.verdict == verdict
    assert words in found.text
