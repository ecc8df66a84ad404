"""Ctrl-C, SIGTERM and the death of the parent: all workers gone within three seconds."""

import signal
import time

import pytest
from tests.patience import quickest

pytestmark = pytest.mark.alone

ENDLESS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True{extra})
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1_000_000):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, flush=True)
"""


def start(cli, *options, extra=""):
    """Start an endless run; return it once it trains."""
    script = cli.write(ENDLESS.format(extra=extra))
    process = cli.start("run", "--workers", 2, "--no-probe", *options, script)
    for line in process.stdout:
        if line.startswith("epoch 1"):
            return process
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_request_to_stop_leaves_nothing_within_three_seconds(cli, number):
    def stopped():
        process = start(cli)
        begin = time.monotonic()
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        assert cli.running() == []
        taken_s = time.monotonic() - begin
        assert process.returncode == 130
        assert "stopped after" in stderr
        assert "Traceback" not in stderr
        return taken_s

    assert quickest(stopped, 3) < 3


@pytest.mark.forked
def test_stop_takes_the_children_of_loaders_along(cli):
    def stopped():
        process = start(cli, extra=", num_workers=2, persistent_workers=True")
        assert len(cli.running()) >= 5  # the command, two workers, a child of each
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        return cli.seconds_until_gone()

    assert quickest(stopped, 1) < 1


def test_workers_die_with_a_parent_that_is_killed(cli):
    def killed():
        process = start(cli, extra=", num_workers=2, persistent_workers=True")
        process.kill()
        process.wait()
        return cli.seconds_until_gone()

    assert quickest(killed, 3) < 3


@pytest.mark.forked
def test_result_says_stopped(cli):
    import json

    report = cli.folder / "result.json"
    process = start(cli, "--json", report)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    result = json.loads(report.read_text())["result"]
    assert result["status"] == "stopped"
    assert result["num_steps"] > 0


@pytest.mark.forked
def test_script_that_ignores_the_request_is_killed(cli):
    script = cli.write(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + ENDLESS.format(extra="")
    )

    def killed():
        process = cli.start("run", "--workers", 2, "--no-probe", script)
        assert any(line.startswith("epoch 1") for line in process.stdout), process.stderr.read()
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert cli.running() == []
        return time.monotonic() - begin

    assert quickest(killed, 3) < 3


@pytest.mark.forked
def test_script_may_save_what_it_has(cli):
    body = ENDLESS.format(extra="").replace("for epoch in", "try:\n  for epoch in")
    indented = body.replace("    for x, y", "      for x, y").replace("        ", "          ")
    text = indented.replace('    print("epoch"', '      print("epoch"') + (
        "except KeyboardInterrupt:\n"
        "    import time\n"
        "    with open('kept.txt', 'w') as file:\n"
        "        time.sleep(1.3)\n"
        "        file.write('whole')\n"
    )
    process = cli.start("run", "--workers", 2, "--no-probe", cli.write(text))
    assert any(line.startswith("epoch 1") for line in process.stdout), process.stderr.read()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert (cli.folder / "kept.txt").read_text() == "whole"
