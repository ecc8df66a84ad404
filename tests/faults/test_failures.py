"""Failure is told well: the first one, with its traceback, in the user's lines; and no hang."""

import json
import re
import time

import pytest
from tests.patience import quickest

# Each worker loads its own half of every batch of 8, so sample 37 is worker 1's, at step 5, and
# sample 33 is worker 0's.
SCRIPT = """\
import os
import signal
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, index):
        if index == {bad}:
            sys.stderr.write("last words\\n")
            {action}
        return torch.ones(4) * index, torch.ones(1)


torch.manual_seed(0)
loader = DataLoader(Samples(), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for x, y in loader:
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
RAISE = 'raise ValueError("on purpose")'
LINE = 16  # of the action
BAD_SAMPLE = {0: 33, 1: 37}


def write(cli, action=RAISE, rank=1):
    return cli.write(SCRIPT.format(bad=BAD_SAMPLE[rank], action=action))


def run_two(cli, script, *options):
    return cli.run("run", "--workers", 2, "--no-probe", *options, script)


@pytest.mark.parametrize("rank", [0, 1])
def test_exception_shows_its_traceback_its_rank_and_the_users_line(cli, rank):
    done = run_two(cli, write(cli, rank=rank))
    assert done.returncode == 1
    headline = rf"worker {rank} of 2 on \S+ after step 4, train.py:{LINE}: ValueError: on purpose"
    assert re.search(headline, done.stderr), done.stderr
    assert f'File "{cli.folder}/train.py", line {LINE}, in __getitem__' in done.stderr
    assert RAISE in done.stderr
    assert "runtime/worker.py" not in done.stderr
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert cli.running() == []


@pytest.mark.forked
@pytest.mark.alone
def test_failure_is_shown_within_five_seconds_and_all_workers_are_gone(cli):
    def shown():
        run_two(cli, write(cli), "--json", "r.json")
        ended_s = time.time()
        assert cli.running() == []
        failure = json.loads((cli.folder / "r.json").read_text())["result"]["failure"]
        assert (failure["rank"], failure["error"], failure["step"]) == (1, "ValueError", 4)
        assert (failure["file"], failure["line"]) == (str(cli.folder / "train.py"), LINE)
        return ended_s - failure["time_s"]

    assert quickest(shown, 5) < 5


@pytest.mark.parametrize("strategy", ["all-reduce", "parameter-server"])
def test_worker_killed_by_a_signal_is_told_as_such(cli, strategy):
    killed = write(cli, "os.kill(os.getpid(), signal.SIGKILL)")
    done = run_two(cli, killed, "--strategy", strategy)  # a server must not wait for it for ever
    assert done.returncode == 1
    assert re.search(r"worker 1 of 2 on \S+ was killed by SIGKILL", done.stderr), done.stderr
    assert "by peer" not in done.stderr
    assert cli.running() == []


@pytest.mark.forked
def test_output_of_other_workers_is_kept_after_a_failure_and_its_path_told(cli):
    done = run_two(cli, write(cli))
    found = re.search(r"kept in (\S+)", done.stderr)
    assert found, done.stderr
    with open(f"{found[1]}/rank-1.log") as log:
        assert "last words" in log.read()


@pytest.mark.forked
@pytest.mark.alone
def test_children_of_loaders_are_gone_after_a_failure(cli):
    script = write(cli)
    script.write_text(script.read_text().replace("batch_size=8", "batch_size=8, num_workers=2"))

    def failed():
        done = run_two(cli, script)
        assert done.returncode == 1
        assert "ValueError: on purpose" in done.stderr
        return cli.seconds_until_gone()

    assert quickest(failed, 1) < 1


@pytest.mark.forked
def test_exit_status_of_the_script_is_told_and_the_run_fails(cli, train):
    report = cli.folder / "result.json"
    with train.open("a") as file:
        file.write('print("giving up", file=sys.stderr)\nsys.exit(7)\n')
    done = run_two(cli, train, "--json", report)
    assert done.returncode == 1
    assert "giving up" in done.stderr
    assert "exit status 7" in done.stderr
    assert json.loads(report.read_text())["result"]["exit_code"] == 7


@pytest.mark.forked
def test_bad_arguments_of_the_script_show_its_own_usage(cli, train):
    parse = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    train.write_text(parse + train.read_text())
    done = cli.run("run", "--workers", 2, "--no-probe", train, "--nonsense")
    assert done.returncode == 1
    assert "unrecognized arguments: --nonsense" in done.stderr
    assert "exit status 2" in done.stderr
