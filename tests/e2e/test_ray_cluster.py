"""A real Ray cluster of two nodes trains the demo; nothing of the user's is there before."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.e2e.ray_nodes import RayNodes
from tests.patience import quickest

import reparto

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("ray"),  # one cluster for all
]

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"

# Worker 1 loads the second half of each batch of 8: sample 37 is its own, at step 5.
SCRIPT = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader
from samples import Samples

torch.manual_seed(0)
loader = DataLoader(Samples({arguments}), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range({epochs}):
    total = 0.0
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {{epoch}} {{total:.3f}}", flush=True)
torch.save(model.state_dict(), "model.pt")
"""
SAMPLES = """\
import torch


class Samples(torch.utils.data.Dataset):
    def __init__(self, bad=-1, scale=1.0):
        self.bad, self.scale = bad, scale

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == self.bad:
            raise ValueError("on purpose")
        return torch.ones(4) * index * self.scale / 64, torch.ones(1)
"""
LINE = 13  # of the exception


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    hidden = (tmp_path_factory.getbasetemp(), Path(reparto.__file__).parent)
    with RayNodes(hidden) as nodes:
        yield nodes


@pytest.fixture
def ray(cli, nodes, tmp_path):
    """The command, on the node alpha; its files and its scratch folders are not on beta."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    cli.nodes = nodes
    cli.enter = nodes.enter
    cli.env |= {**nodes.env, "TMPDIR": str(scratch), "RAY_ADDRESS": nodes.address}
    return cli


def run(cli, command, *options, workers=2):
    return cli.run(command, "--engine", "ray", "--workers", workers, *options)


def write(cli, *, arguments="", epochs=2):
    cli.write(SAMPLES, "samples.py")
    return cli.write(SCRIPT.format(arguments=arguments, epochs=epochs))


def start(cli, script):
    process = cli.start("run", "--engine", "ray", "--workers", 2, "--no-probe", script)
    for line in process.stdout:
        if line.startswith("epoch 1"):
            return process
    raise AssertionError(process.stderr.read())


def actors(cli, count):
    """Our processes on beta, once they are so many: Ray ends those of earlier runs by and by."""
    until = time.monotonic() + 60
    while len(found := cli.nodes.processes("beta", having="ray::Post")) != count:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found


def only_apart(nodes):
    if not nodes.apart:
        pytest.skip("both nodes share a disk: no root, or no network namespaces")


def test_demo_is_equal_to_the_sequential_one(ray):
    shutil.copy(DIGITS, ray.folder)
    report = ray.folder / "report.json"
    done = run(ray, "verify", "--steps", 10, "--json", report, "digits.py", "--epochs", 1)
    assert done.returncode == 0, done.stderr
    result = json.loads(report.read_text())["result"]
    assert (result["verdict"], result["num_steps"], result["precision"]) == (
        "equal",
        10,
        "float64",
    )
    assert max(gap["distance"] for gap in result["gradients"]) < 1e-7


def test_demo_trains_on_both_nodes_and_its_output_is_here(ray):
    import torch

    shutil.copy(DIGITS, ray.folder)
    done = run(ray, "run", "--no-probe", "digits.py", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    hosts = "alpha, beta" if ray.nodes.apart else r"127\.0\.0\.1:\d+, 127\.0\.0\.1:\d+"
    assert re.search(rf"plan  all-reduce · 2 workers on {hosts} · cpu", done.stderr)
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["epoch", "1"],
        ["epoch", "2"],
    ]
    assert float(re.findall(r"accuracy ([\d.]+)%", done.stdout)[-1]) > 85
    assert len(torch.load(ray.folder / "digits.pt")) == 18
    ray.seconds_until_gone()


def test_failure_on_the_other_node_shows_the_users_line(ray):
    done = run(ray, "run", "--no-probe", write(ray, arguments="37"))
    assert done.returncode == 1
    host = "beta" if ray.nodes.apart else r"\S+"
    headline = rf"worker 1 of 2 on {host} after step 4, samples.py:{LINE}: ValueError: on purpose"
    assert re.search(headline, done.stderr), done.stderr
    assert f'File "{ray.folder}/samples.py", line {LINE}, in __getitem__' in done.stderr
    assert 'raise ValueError("on purpose")' in done.stderr
    ray.seconds_until_gone()


def test_missing_path_is_told_before_training(ray):
    only_apart(ray.nodes)
    (ray.folder / "scale.txt").write_text("0.5")
    done = run(ray, "run", "--no-probe", write(ray, arguments='-1, open("scale.txt")'))
    assert (done.returncode, done.stdout) == (2, "")
    assert "host beta lacks scale.txt (train.py:8)" in done.stderr
    assert "--ship scale.txt" in done.stderr
    ray.seconds_until_gone()


def test_code_arguments_and_data_travel_and_the_result_is_the_sequential_one(ray):
    import torch

    (ray.folder / "data").mkdir()
    (ray.folder / "data" / "scale.txt").write_text("0.5")
    scale = 'float(sys.argv[1]) * float(open("data/scale.txt").read())'
    script = write(ray, arguments=f"-1, {scale}")
    alone = ray.python(script, "2.0")
    expected = torch.load(ray.folder / "model.pt")
    (ray.folder / "model.pt").unlink()
    done = run(ray, "run", "--no-probe", "--ship", "data", script, "2.0")
    assert (done.returncode, done.stdout) == (0, alone.stdout), done.stderr
    assert ("shipped to beta: 1 file (0.0 MB)" in done.stderr) == ray.nodes.apart
    found = torch.load(ray.folder / "model.pt")
    assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in expected)
    for noise in ("ray::", "raylet", "core_worker", "WARNING", "Warning"):
        assert noise not in done.stderr


def test_what_worker_0_writes_on_another_machine_comes_home(ray, tmp_path):
    only_apart(ray.nodes)
    import torch

    # The command sees its files at a place where the node of worker 0 has nothing.
    seen = tmp_path / "seen"
    seen.mkdir()
    bind = 'mount --bind "$0" "$1" && cd "$1/work" && shift && exec "$@"'
    isolate = ("unshare", "--mount", "--propagation", "private", "sh", "-c", bind)
    ray.enter = (*ray.nodes.enter, *isolate, str(tmp_path), str(seen))
    ray.env["TMPDIR"] = str(seen / "scratch")
    script = write(ray)
    done = run(ray, "run", "--no-probe", script.name)
    assert done.returncode == 0, done.stderr
    assert "brought here from alpha: 1 file" in done.stderr
    assert list(torch.load(ray.folder / "model.pt")) == ["weight", "bias"]
    assert list(seen.iterdir()) == []


def test_search_has_workers_on_both_nodes_and_the_model_comes_home(ray):
    rows = "".join(f"{n % 7},{n % 5},{'ab'[n % 7 > 3]}\n" for n in range(210))
    table = ray.write("x,z,kind\n" + rows, "rows.csv")
    slow = ("--set", "random-forest.num_trees=300..320")
    only = ("--techniques", "random-forest", *slow, "--no-ensemble", "--folds", 2, "--trials", 10)
    done = ray.run("search", table, "--target", "kind", "--engine", "ray", *only, "--out", "found")
    assert done.returncode == 0, done.stderr
    told = json.loads((ray.folder / "found" / "search.json").read_text())
    assert {one["status"] for one in told["evaluations"]} <= {"done", "pruned"}
    assert sum(one["status"] == "done" for one in told["evaluations"]) > 1
    hosts = {line["host"] for line in told["bill"]["workers"] if line["num_candidates"]}
    if ray.nodes.apart:
        assert hosts == {"alpha", "beta"}, told["bill"]
    asked = ray.write("x,z\n6,1\n0,1\n", "asked.csv")
    done = ray.run("predict", "found", asked, "--out", "answer.csv")
    assert done.returncode == 0, done.stderr
    answers = (ray.folder / "answer.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in answers] == ["b", "a"]
    ray.seconds_until_gone()


@pytest.mark.alone
def test_request_to_stop_leaves_nothing_on_any_node(ray):
    def stopped():
        process = start(ray, write(ray, epochs=10**6))
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        taken_s = time.monotonic() - begin
        assert process.returncode == 130
        assert "stopped after" in stderr
        ray.seconds_until_gone()
        actors(ray, 0)
        return taken_s

    assert quickest(stopped, 3) < 3


def test_killed_process_of_a_node_is_told(ray):
    process = start(ray, write(ray, epochs=10**6))
    (actor,) = actors(ray, 1)
    os.kill(actor, signal.SIGKILL)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.search(r"worker 1 of 2 on \S+ .*HostLost: the process that held", stderr), stderr
    ray.seconds_until_gone()


def test_killed_node_is_told(ray, nodes):  # the last one: nothing runs without that node
    process = start(ray, write(ray, epochs=10**6))
    nodes.kill("beta")
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 1
    assert re.search(r"worker 1 of 2 on \S+ .*HostLost: ", stderr), stderr
    ray.seconds_until_gone()
