"""`reparto fit-batch`: real runs with little memory; what it recommends is measured by itself."""

import json
import re

import pytest

from reparto.cli import main
from reparto.cli._fit_batch import option_name

pytestmark = pytest.mark.xdist_group("fit-batch")

MIB = 1 << 20

# A row takes about a MiB. Says at its end how much memory it had, and when it began.
SCRIPT = """\
import argparse
import re
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=16)
args = parser.parse_args()
torch.manual_seed(0)
x = torch.randn(512, 8)
scale = nn.Parameter(torch.ones(1 << 16))
optimizer = torch.optim.Adam([scale])
BATCHES
    loss = (batch.sum(1, keepdim=True) * scale).tanh().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
open("trained.txt", "w").write("here")
status = open("/proc/self/status").read()
print(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
"""
LOADER = (
    "loader = DataLoader(TensorDataset(x), batch_size=args.batch_size)\nfor (batch,) in loader:"
)
SLICES = "for begin in range(3):\n    batch = x.repeat(8, 1)[: args.batch_size]"


def fitted(cli, *args):
    done = cli.run("fit-batch", "--json", "fit.json", *args)
    assert done.returncode == 0, done.stderr
    (device,) = json.loads((cli.folder / "fit.json").read_text())["fit"]["devices"]
    assert cli.running() == []
    assert not (cli.folder / "trained.txt").exists()  # what scripts write is discarded
    return done, device


def measured(cli, script, rows):
    """The peak of plain Python, with batches of that size; the runtime is not part of it."""
    done = cli.python(script, "--batch-size", rows)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) << 10


@pytest.mark.slow
def test_largest_batch_of_a_loader_is_predicted_tried_and_stays_below_the_limit(cli):
    script = cli.write(SCRIPT.replace("BATCHES", LOADER))
    done, device = fitted(cli, "--memory", "700MiB", script)
    assert device["status"] == "confirmed"
    assert device["rows_now"] == 16
    assert device["limit_bytes"] == 700 * MIB
    tried = [point for point in device["points"] if point["predicted_bytes"]]
    assert tried[0]["peak_bytes"] == pytest.approx(tried[0]["predicted_bytes"], rel=0.05)
    assert 0.9 * 700 * MIB < device["peak_bytes"] <= 700 * MIB
    assert measured(cli, script, device["rows"]) <= 700 * MIB
    assert re.search(rf"cpu · \S+ +16 .* {device['rows']} ", done.stdout)
    assert "rows" in done.stderr and "predicted" in done.stderr


@pytest.mark.slow
def test_option_of_the_script_is_varied_down_from_a_batch_that_does_not_fit(cli):
    script = cli.write(SCRIPT.replace("BATCHES", SLICES))
    options = ("--memory", "700MiB", "--vary", "batch-size")
    _, device = fitted(cli, *options, script, "-b", "3", "--batch-size=400")
    assert device["points"][0]["rows"] == 400
    assert not device["points"][0]["fits"]
    assert device["rows_now"] == 400 and device["peak_now_bytes"] == 0
    assert 0.85 * 700 * MIB < device["peak_bytes"] <= 700 * MIB
    assert measured(cli, script, device["rows"]) <= 700 * MIB


def test_script_without_a_loader_is_told_to_name_its_option(cli):
    done = cli.run("fit-batch", cli.write(SCRIPT.replace("BATCHES", SLICES)))
    assert done.returncode == 2
    assert "without a DataLoader" in done.stderr
    assert "--vary batch-size" in done.stderr


def test_script_that_fails_is_told_of_with_its_own_error(cli):
    script = cli.write("raise ValueError('no data today')\n")
    done = cli.run("fit-batch", "--json", "-", script)
    assert done.returncode == 1
    assert "ValueError: no data today" in done.stderr
    assert json.loads(done.stdout)["status"] == "failed"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--memory", "much", "train.py"], "--memory: 'much'"),
        (["--memory", "0", "train.py"], "--memory: nothing"),
        (["missing.py"], "missing.py"),
        (["--engine", "peers", "missing.py"], "--engine local"),
    ],
)
def test_bad_usage_is_told_before_anything_is_started(args, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit-batch", *args]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "option"),
    [("batch-size", "--batch-size"), ("--batch", "--batch"), ("-b", "-b"), ("rows=", "rows=")],
)
def test_name_of_an_option_may_be_given_without_its_dashes(given, option):
    assert option_name(given) == option
    assert option_name("") == ""


@pytest.mark.gpu
@pytest.mark.slow
def test_largest_batch_of_a_gpu_is_predicted_and_tried(cli):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    on_gpu = SCRIPT.replace("torch.ones(1 << 16)", 'torch.ones(1 << 16, device="cuda")')
    script = cli.write(on_gpu.replace("BATCHES", f'{LOADER}\n    batch = batch.to("cuda")'))
    _, device = fitted(cli, "--memory", "2GiB", script)
    assert device["device"] != "cpu"
    assert device["status"] == "confirmed"
    tried = [point for point in device["points"] if point["predicted_bytes"]]
    assert tried[0]["peak_bytes"] == pytest.approx(tried[0]["predicted_bytes"], rel=0.05)
    assert 0.8 * 2048 * MIB < device["peak_bytes"] <= 2048 * MIB
