"""Failure is told well: the first one, with its traceback, in the user's lines; and no hang."""

import json
import re
import time

STEPS = """\
import os
import signal
import sys
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(800, 4), torch.randn(800, 1)), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rank = int(os.environ.get("RANK", 0))
step = 0
for x, y in loader:
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step == 5 and rank == {rank}:
        open({stamp!r}, "a").close()
        {action}
"""
LINE = 23  # of the action


def steps(cli, action, rank=1):
    stamp = str(cli.folder / "stamp")
    return cli.write(STEPS.format(rank=rank, action=action, stamp=stamp))


def run_two(cli, script, *options):
    return cli.run("run", "--workers", 2, "--no-probe", *options, script)


def test_exception_on_another_worker_shows_its_traceback_rank_and_line(cli):
    done = run_two(cli, steps(cli, 'raise ValueError("on purpose")'))
    ended = time.time()
    assert done.returncode == 1
    assert re.search(
        rf"worker 1 of 2 on \S+ .*train.py:{LINE}: ValueError: on purpose", done.stderr
    )
    assert f'File "{cli.folder}/train.py", line {LINE}' in done.stderr
    assert 'raise ValueError("on purpose")' in done.stderr
    assert "runtime/worker.py" not in done.stderr
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert cli.running() == []
    assert ended - raised_at(cli) < 5


def raised_at(cli):
    # Worker 1 writes into its own overlay, so only worker 0's stamp is seen; without one, the
    # whole run is the bound.
    stamp = cli.folder / "stamp"
    return stamp.stat().st_mtime if stamp.exists() else time.time()


def test_exception_on_main_worker_ends_the_run_within_five_seconds(cli):
    done = run_two(cli, steps(cli, 'raise ValueError("on purpose")', rank=0))
    ended = time.time()
    assert done.returncode == 1
    assert f"train.py:{LINE}: ValueError" in done.stderr
    assert ended - raised_at(cli) < 5
    assert cli.running() == []


def test_failure_is_in_the_json_with_its_place(cli):
    report = cli.folder / "result.json"
    script = steps(cli, 'raise KeyError("gone")')
    run_two(cli, script, "--json", report)
    failure = json.loads(report.read_text())["result"]["failure"]
    assert (failure["rank"], failure["error"]) == (1, "KeyError")
    assert (failure["file"], failure["line"]) == (str(script), LINE)
    assert failure["step"] >= 4


def test_worker_killed_by_a_signal_is_told_as_such(cli):
    done = run_two(cli, steps(cli, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert done.returncode == 1
    assert "worker 1 of 2" in done.stderr
    assert "killed by SIGKILL" in done.stderr
    assert "by peer" not in done.stderr
    assert cli.running() == []


def test_exit_status_of_the_script_is_told_and_the_run_fails(cli):
    report = cli.folder / "result.json"
    script = cli.write(
        "import sys\nimport torch\n"
        + STEPS.partition("import time\n")[2].partition("    step += 1")[0]
        + '    print("giving up", file=sys.stderr)\n    sys.exit(7)\n'
    )
    done = run_two(cli, script, "--json", report)
    assert done.returncode == 1
    assert "giving up" in done.stderr
    assert "exit status 7" in done.stderr
    assert json.loads(report.read_text())["result"]["exit_code"] == 7


def test_output_of_other_workers_is_kept_after_a_failure_and_its_path_told(cli):
    done = run_two(cli, steps(cli, 'sys.stderr.write("last words\\n"); raise ValueError("x")'))
    found = re.search(r"kept in (\S+)", done.stderr)
    assert found, done.stderr
    with open(f"{found[1]}/rank-1.log") as log:
        assert "last words" in log.read()


def test_children_of_loaders_are_gone_after_a_failure(cli):
    script = steps(cli, 'raise ValueError("on purpose")')
    script.write_text(script.read_text().replace("batch_size=8", "batch_size=8, num_workers=2"))
    done = run_two(cli, script)
    assert done.returncode == 1
    assert "ValueError: on purpose" in done.stderr
    assert cli.seconds_until_gone() < 1
