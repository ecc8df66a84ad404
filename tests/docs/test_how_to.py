"""The code that the how-to pages show does what they say."""

import json
import subprocess
import sys

import pytest

from reparto import api, convert, engines
from reparto.convert import shapes
from reparto.spec import Job
from tests.docs.blocks import ROOT, blocks, files
from tests.docs.test_tutorials import check, run_by_fork

HOW_TO = ROOT / "docs" / "how-to"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on the path; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (tmp_path / f"{name.rsplit('.', 1)[-1]}.py").exists():
            del sys.modules[name]


def write(folder, page):
    shown = files(HOW_TO / page)
    assert shown, page
    for name, text in shown.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("page", ["add-a-strategy.md", "add-a-rule.md"])
def test_example_passes_the_test_that_the_page_shows(folder, page):
    write(folder, page)
    done = subprocess.run(  # what they register would stay with us
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_example_engine_starts_workers_politely(folder, monkeypatch):
    write(folder, "add-an-engine.md")
    monkeypatch.setitem(engines._ENGINES, "polite", "polite:PoliteEngine")
    script = folder / "train.py"
    script.write_text((ROOT / "tests" / "scripts" / "linear_toplevel.py").read_text())
    launch = api.dry_run(Job(script=str(script), engine="polite", workers=2))
    assert launch.engine == "polite"
    assert [worker.command[:3] for worker in launch.workers] == [("nice", "-n", "10")] * 2


def test_example_shape_shares_out_the_batches_of_its_library(folder, monkeypatch):
    write(folder, "add-a-script-shape.md")
    monkeypatch.setattr(shapes, "__path__", [*shapes.__path__, str(folder)])
    script = folder / "of-a-user" / "train.py"
    script.parent.mkdir()
    script.write_text(
        "import torch, toolbox\n"
        "model = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in toolbox.batches('train.bin', 64):\n"
        "    loss = (model(x) - y).square().mean()\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    result = convert.convert(script)
    converted = result.program.files[0].converted
    assert "for x, y in reparto.shard(toolbox.batches('train.bin', 64)):" in converted
    assert "model(x)" in converted


def test_diagnostic_shown_in_debug_a_refused_script_is_a_real_one(tmp_path):
    page = HOW_TO / "debug-a-refused-script.md"
    shown = next(block.text for block in blocks(page) if "C202" in block.text)
    script = tmp_path / "train.py"
    refused = ROOT / "tests" / "scripts" / "special" / "reinforce_gridworld.py"
    script.write_text(refused.read_text())
    done = subprocess.run(
        [sys.executable, "-m", "reparto", "convert", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert [line for line in shown.splitlines() if line not in done.stderr.splitlines()] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commands_of_search_print_what_the_page_shows(tmp_path):
    check(HOW_TO / "search.md", tmp_path)
    assert (tmp_path / "prices.csv").read_text().count("\n") == 21


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commands_of_search_a_script_find_and_leave_what_the_page_says(tmp_path):
    check(HOW_TO / "search-a-script.md", tmp_path, run_by_fork)
    best = json.loads((tmp_path / "found" / "search.json").read_text())["best"]
    kept = {one.name for one in (tmp_path / "found" / "trials" / str(best)).iterdir()}
    assert kept == {"command.txt", "output.txt", "objective.csv", "files", "trial.json"}
    assert not (tmp_path / "model.pt").exists()
    grid = [json.loads(one.read_text()) for one in tmp_path.glob("grid/trials/*/trial.json")]
    assert sorted(one["settings"]["lr"] for one in grid) == [0.01, 0.1]
    shared = json.loads((tmp_path / "shared" / "trials" / "0" / "trial.json").read_text())
    assert shared["result"]["num_workers"] == 2
