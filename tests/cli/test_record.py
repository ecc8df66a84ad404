"""`reparto run --record`: what real workers tell of their host, and what is left of it."""

import json
import sys

import pytest
from tests.conftest import ForkedCli

from reparto import api
from reparto.cli import main
from reparto.spec import Job, Options, Recording, Step, Usage, from_json

pytestmark = pytest.mark.xdist_group("record")  # one recording for all

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(60):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
NUM_STEPS, GRADIENT_BYTES = 60 * 8, 4 * (64 * 256 + 256 + 256 + 1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of two workers that talk over sockets; the folder, what was printed, its JSON."""
    cli = ForkedCli(tmp_path_factory.mktemp("work"))
    cli.env["REPARTO_SHARED_MEMORY"] = "0"
    options = ["--workers", 2, "--no-probe", "--record", "usage", "--json", "-"]
    done = cli.run("run", *options, cli.write(SCRIPT))
    assert done.returncode == 0, done.stderr
    return cli.folder / "usage", done, json.loads(done.stdout)


def test_files_are_written_and_named(recorded):
    folder, done, _ = recorded
    for name in ("usage.html", "usage.png", "usage.json"):
        assert f"wrote usage/{name}" in done.stderr
    assert (folder / "usage.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "<svg" in (folder / "usage.html").read_text()


def test_host_has_worked_and_talked_while_time_went_on(recorded):
    folder, _, _ = recorded
    found = from_json(Recording, (folder / "usage.json").read_text())
    (samples,) = found.hosts.values()
    times = [one.time_s for one in samples]
    assert times[0] > 0 and times == sorted(set(times))
    assert max(one.cpu_cores for one in samples) > 0
    assert all(0 < one.memory_bytes < one.memory_limit_bytes for one in samples)
    assert samples[-1].loopback_bytes > NUM_STEPS * GRADIENT_BYTES


def test_one_line_a_host_is_printed_and_the_same_is_in_the_json(recorded):
    _, done, document = recorded
    (usage,) = document["usage"]
    (line,) = [line for line in done.stderr.splitlines() if line.split()[:1] == [usage["host"]]]
    assert f"{usage['mean_cpu_cores']:.2f} of {usage['cpu_limit_cores']:g}" in line
    assert document["plan"]["placement"] == [usage["host"]] * 2
    assert usage["over_loopback"] and "sent over lo" in done.stderr


class Events(api.Watcher):
    def __init__(self):
        self.seen = []

    def event(self, event):
        self.seen.append(event)


@pytest.mark.parametrize(("every_s", "some"), [(0.0, False), (0.05, True)])
def test_usage_is_told_only_if_it_is_recorded(tmp_path, monkeypatch, every_s, some):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    events = Events()
    options = Options(steps=20, usage_every_s=every_s)
    job = Job(script="train.py", workers=1, probe=False, options=options)
    assert api.run(job, events).status == "done"
    assert any(isinstance(event, Step) for event in events.seen)
    assert any(isinstance(event, Usage) for event in events.seen) is some


@pytest.fixture
def nothing_starts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setattr(api, "run", lambda *_, **__: pytest.fail("a run was started"))
    return tmp_path


def test_missing_matplotlib_is_told_before_the_run_starts(nothing_starts, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["run", "--record", "usage", "train.py"]) == 1
    assert "reparto[compare]" in capsys.readouterr().err
    assert not (nothing_starts / "usage").exists()


def test_dry_run_makes_no_folder(nothing_starts):
    assert main(["run", "--workers", "2", "--dry-run", "--record", "usage", "train.py"]) == 0
    assert not (nothing_starts / "usage").exists()


def test_result_is_told_though_the_recording_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    run = api.run

    def run_and_lose_the_folder(*args, **more):
        result = run(*args, **more)
        (tmp_path / "usage").rmdir()
        return result

    monkeypatch.setattr(api, "run", run_and_lose_the_folder)
    options = ["--workers", "1", "--no-probe", "--steps", "20", "--record", "usage"]
    assert main(["run", *options, "--json", "result.json", "train.py"]) == 0
    assert "the recording was not written" in capsys.readouterr().err
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["status"] == "done" and len(document["usage"]) == 1


def test_folder_of_a_refused_run_is_taken_away(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--record", "usage", "no-such.py"]) == 2
    assert not (tmp_path / "usage").exists()
