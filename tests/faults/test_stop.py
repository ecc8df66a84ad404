"""``reparto stop``: all workers end after the same step, and what was trained is kept."""

import fcntl
import json
import math
import os
import signal
import subprocess
import sys

import pytest
import torch
from tests.conftest import LIMIT_S

from reparto._runs import listed, running
from reparto.runtime._stopping import Enough
from reparto.spec import Job, Options

pytestmark = pytest.mark.alone

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
step = 0
try:
    for epoch in range(1_000_000):
        for x, y in loader:
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            step += 1
            optimizer.step()
        print("epoch", epoch, flush=True)
except KeyboardInterrupt:
    model.eval()
    with torch.no_grad():
        value = float(((model(data[:][0]) - data[:][1]) ** 2).mean())  # all workers take part
    print("caught at", step, flush=True)
    torch.save(model.state_dict(), "caught.pt")
"""


def started(cli, *options):
    process = cli.start("run", "--workers", 2, "--no-probe", *options, cli.write(SCRIPT))
    for line in process.stdout:
        if line.startswith("epoch 1"):
            return process
    raise AssertionError(process.stderr.read())


def stopped(cli, *options, tries=3):
    """Ask a run to stop until it ends with a step: one of a busy machine may take too long."""
    for _ in range(tries):
        process = started(cli, *options)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, stderr
        if (cli.folder / "reparto-checkpoint").exists():
            break
    return stdout, stderr


STRATEGIES = {
    "exact": (),
    "server": ("--strategy", "parameter-server", "--set", "mode=stale", "--relaxed"),
    "dedicated": ("--workers", 3, "--strategy", "parameter-server", "--set", "dedicated=true"),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_checkpoint_holds_what_the_script_sees_at_its_last_step(cli, strategy):
    stdout, stderr = stopped(cli, *STRATEGIES[strategy])
    (path,) = (cli.folder / "reparto-checkpoint").iterdir()
    state = torch.load(path)
    assert f"caught at {state['step']}" in stdout
    assert str(path.relative_to(cli.folder)) in stderr
    caught = torch.load(cli.folder / "caught.pt")
    (model,) = state["models"]
    assert model["class"] == "Sequential"
    for name, value in caught.items():
        assert torch.equal(model["state_dict"][name], value), name
    (optimizer,) = state["optimizers"]
    assert optimizer["class"] == "Adam"
    assert set(optimizer["state_dict"]["state"]) == set(range(6))


def command(*words):
    done = subprocess.run(
        [sys.executable, "-m", "reparto", "stop", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    return done.returncode, done.stdout, done.stderr


def test_command_finds_lists_and_stops_a_run(cli):
    process = started(cli)
    status, listed, _ = command("--list", "--json", "-")
    mine = [one for one in json.loads(listed) if one["pid"] == process.pid]
    assert status == 0
    assert len(mine) == 1
    assert mine[0]["cwd"] == str(cli.folder)
    status, told, stderr = command(process.pid)
    assert status == 0, stderr
    assert "stopped" in told
    assert process.wait(timeout=60) == 130
    assert not [one for one in running() if one.pid == process.pid]
    process.stdout.close()
    process.stderr.close()


def test_command_names_what_is_under_way_when_there_is_no_such_run(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert command()[0] == 2
    status, _, stderr = command("nowhere.py")
    assert status == 2
    assert "no run" in stderr


def test_run_is_listed_though_somebody_took_its_file_for_left_over(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    flock, looked = fcntl.flock, []

    def late(file, how):
        if how == fcntl.LOCK_EX and not looked:
            looked.append(running())  # it is not locked yet
        flock(file, how)

    monkeypatch.setattr("reparto._runs.fcntl.flock", late)
    with listed(Job(script="train.py")):
        assert [one.pid for one in running()] == [os.getpid()]
    assert looked == [[]] and running() == []


@pytest.mark.forked
def test_script_that_does_not_train_is_interrupted_where_it_is(cli):
    script = cli.write(
        "import time\nprint('epoch 1', flush=True)\ntry:\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    open('seen.txt', 'w').write('yes')\n"
    )
    seen = cli.folder / "seen.txt"
    for _ in range(3):  # it has a moment for that, which a busy machine may not give it
        process = cli.start("run", "--strategy", "single", script)
        assert any(line.startswith("epoch 1") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        if seen.exists() and seen.read_text():
            break
    assert seen.read_text() == "yes"


@pytest.mark.forked
def test_run_ends_by_itself_when_the_loss_is_low_enough(cli):
    report = cli.folder / "result.json"
    words = ["--workers", 2, "--no-probe", "--target", 1.2, "--patience", 500, "--json", report]
    done = cli.run("run", *words, cli.write(SCRIPT))
    assert done.returncode == 0, done.stderr
    result = json.loads(report.read_text())["result"]
    assert result["status"] == "done"
    (path,) = (cli.folder / "reparto-checkpoint").iterdir()
    assert torch.load(path)["step"] == result["num_steps"]
    assert "the loss has" in done.stderr
    assert "caught" not in done.stdout


def test_patience_counts_from_the_lowest_loss():
    enough = Enough(Options(patience=30))
    falling = [enough.at(step, 1 / step) for step in range(1, 200)]
    assert not any(falling)
    flat = [enough.at(step, 1.0) for step in range(200, 260)]
    assert flat.index(True) == 29
    assert "for 30 steps" in enough.why


@pytest.mark.parametrize("finite", [0, 3])
def test_patience_ends_a_run_whose_loss_is_no_number(finite):
    enough = Enough(Options(patience=10))
    found = [enough.at(step, 1.0 if step <= finite else math.nan) for step in range(1, 100)]
    assert found.index(True) + 1 == 10
    assert enough.why == "the loss is nan"


def test_patience_shorter_than_the_trend_waits_for_it():
    enough = Enough(Options(patience=2))
    assert not any(enough.at(step, 1 / step) for step in range(1, 50))
