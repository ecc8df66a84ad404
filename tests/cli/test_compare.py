"""`reparto compare`: real workers, side by side; and what is refused before any is started."""

import json

import pytest
from tests.conftest import ForkedCli

from reparto import api
from reparto.cli import main

pytestmark = [pytest.mark.forked, pytest.mark.xdist_group("compare")]  # one comparison for all

SCRIPT = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(80, 4)  # not seeded: that is for reparto to do
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(int(sys.argv[1])):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    open("epochs.txt", "a").write("one\\n")
    print("epoch", epoch, flush=True)
"""
NUM_STEPS = 20  # of ten samples each: two and a half epochs


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Three strategies over 200 samples of a script that has more; the folder and the rest."""
    cli = ForkedCli(tmp_path_factory.mktemp("work"))
    options = ["--strategies", "single,all-reduce,local-sgd:sync_every=5", "--relaxed"]
    options += ["--workers", "2", "--samples", "195", "--out", "out", "--json", "-"]
    done = cli.run("compare", *options, cli.write(SCRIPT), "8")
    assert done.returncode == 0, done.stderr
    return cli, done, json.loads(done.stdout)


def test_runs_are_told_in_the_order_in_which_they_were_named(compared):
    _, done, document = compared
    runs = document["comparison"]["runs"]
    assert [run["label"] for run in runs] == ["single", "all-reduce", "local-sgd sync_every=5"]
    assert [run["exact"] for run in runs] == [True, True, False]
    assert [run["result"]["num_workers"] for run in runs] == [1, 2, 2]
    table = [line for line in done.stderr.splitlines() if line.endswith(" done")]
    assert [line.split()[0] for line in table] == ["single", "all-reduce", "local-sgd"]


def test_all_have_used_the_same_samples_step_by_step(compared):
    curves = [run["curve"] for run in compared[2]["comparison"]["runs"]]
    expected = [(step, 10 * step) for step in range(1, NUM_STEPS + 1)]
    assert [[(p["step"], p["samples"]) for p in curve] for curve in curves] == [expected] * 3


def test_exact_ones_have_the_losses_of_the_sequential_script_and_the_relaxed_one_has_not(compared):
    single, exact, relaxed = (
        [point["loss"] for point in run["curve"]] for run in compared[2]["comparison"]["runs"]
    )
    assert exact == pytest.approx(single, rel=1e-4)
    assert relaxed[:1] == pytest.approx(single[:1], rel=1e-4)
    assert relaxed != pytest.approx(single, rel=1e-4)


def test_costs_of_the_curve_are_those_of_the_result(compared):
    single, exact, relaxed = compared[2]["comparison"]["runs"]
    assert single["curve"][-1]["wire_bytes"] == single["result"]["wire_bytes"] == 0
    assert 0 < relaxed["curve"][-1]["wire_bytes"] < exact["curve"][-1]["wire_bytes"]
    assert exact["curve"][-1]["wire_bytes"] == pytest.approx(exact["result"]["wire_bytes"])
    last = exact["curve"][-1]
    assert 0 < last["waited_s"] < last["time_s"]
    assert last["waited_s"] <= exact["result"]["waited_s"]


def test_what_scripts_write_is_discarded_and_what_they_print_is_kept(compared):
    cli, _, _ = compared
    assert not (cli.folder / "epochs.txt").exists()
    found = sorted((cli.folder / "out" / "output").iterdir())
    assert [path.name for path in found] == [
        *("01-single.txt", "02-all-reduce.txt", "03-local-sgd-sync_every=5.txt"),
    ]
    assert {path.read_text() for path in found} == {"epoch 0\nepoch 1\n"}


def test_files_are_written_and_named(compared):
    cli, done, document = compared
    for name in ("compare.html", "compare.png", "compare.json"):
        assert f"wrote out/{name}" in done.stderr
        assert (cli.folder / "out" / name).stat().st_size > 1000
    kept = json.loads((cli.folder / "out" / "compare.json").read_text())
    assert kept == document["comparison"]


def test_run_ends_at_the_target(cli):
    options = ["--strategies", "single", "--target", "0.5"]
    done = cli.run("compare", *options, "--json", "result.json", cli.write(SCRIPT), "1000000")
    assert done.returncode == 0, done.stderr
    assert "single reached 0.5 first" in done.stdout
    (run,) = json.loads((cli.folder / "result.json").read_text())["comparison"]["runs"]
    before = [point["trend"] for point in run["curve"] if point["step"] < run["reached"]["step"]]
    assert run["reached"]["trend"] <= 0.5 < min(before)
    assert cli.running() == []


@pytest.fixture
def nothing_starts(monkeypatch):
    monkeypatch.setattr(api, "execute", lambda *_, **__: pytest.fail("a run was started"))


@pytest.mark.parametrize(
    ("strategies", "told"),
    [
        ("single,no-such", "no-such"),
        ("single,all-reduce:no_such=1", "no_such"),
        ("single,all-reduce:bucket_bytes=many", "bucket_bytes"),
        ("single,diloco", "--relaxed"),
        ("single,all-reduce:batch=worker", "--relaxed"),
        ("single,,all-reduce", "--strategies"),
    ],
)
def test_nonsense_is_told_before_anything_is_started(
    tmp_path, monkeypatch, capsys, nothing_starts, strategies, told
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    assert main(["compare", "--strategies", strategies, "train.py"]) == 2
    assert told in capsys.readouterr().err


def test_script_without_strategies_of_ours_is_refused(
    tmp_path, monkeypatch, capsys, nothing_starts
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('no training')\n")
    assert main(["compare", "--strategies", "single", "--json", "-", "train.py"]) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "refused"


@pytest.mark.parametrize("options", [["--target", "nan"], ["--samples", "0"], ["--workers", "x"]])
def test_numbers_that_are_none_are_bad_usage(options):
    with pytest.raises(SystemExit) as leaving:
        main(["compare", *options, "train.py"])
    assert leaving.value.code == 2
