"""A script's runs are the candidates: options are settings, what it prints is the objective."""

import json
import os
import signal
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

from reparto import api
from reparto.errors import RefusedError, UsageError
from reparto.search._script_history import History, Lengths, objective_pattern
from reparto.search._script_options import words_of
from reparto.search._script_run import TrialError
from reparto.search._script_space import read_space
from reparto.search._script_trials import prepare_trials
from reparto.search._script_work import ScriptWork
from reparto.spec import (
    Candidate,
    Output,
    Prediction,
    Rung,
    SearchRequest,
    StepRecord,
    StrategyConfig,
)
from tests.forked import forked_workers

#: What is opened below Python's own functions is written for real, by every worker.
TRAIN = """\
import argparse, os, posix
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=9)
args = parser.parse_args()
torch.manual_seed(0)
x = torch.randn(16, 4) * float(open("scale.txt").read())
y = x.sum(dim=1, keepdim=True)
loader = DataLoader(TensorDataset(x, y), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
rank = os.environ.get("RANK", "0")
seen = posix.open(f"seen-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for epoch in range(args.epochs):
    for xb, yb in loader:
        loss = ((model(xb) - yb) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.6f}")
    os.write(seen, f"{args.lr} {epoch}\\n".encode())
torch.save(model.state_dict(), "model.pt")
"""
ROOT = Path(__file__).parents[2]
LOSS = r"loss (\S+)"


@pytest.fixture(scope="module", autouse=True)
def _cheap_workers():
    with forked_workers():
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The user's folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "scale.txt").write_text("1.0")
    (folder / "train.py").write_text(TRAIN)
    return folder


def asked(script="train.py", workers=1, objective=LOSS, **more):
    space = {"script": {"lr": {"low": 0.001, "high": 1.0}}}
    return SearchRequest(
        **{
            "script": script,
            "objective": objective,
            "script_workers": workers,
            "spaces": space,
            **more,
        }
    )


def opened(request, lengths=()):
    trials = prepare_trials(request, "found")
    for unit, length in lengths:
        trials.lengths.told(unit, length)
    work = ScriptWork(request, "found", trials)
    work.open(1)
    return work


def tried(request, settings, shares=(1.0,), lengths=(), number=0):
    """What came of a candidate at each rung; it is given up after the last of them."""
    work = opened(request, lengths)
    attempt = work.attempt(Candidate(number=number, technique="script", settings=settings), 0)
    try:
        return [attempt.reach(Rung(fold=0, share=share)) for share in shares]
    finally:
        attempt.close()
        work.close()


# ---------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("settings", "own", "expected"),
    [
        ({"lr": 0.01}, (), ("--lr", "0.01")),
        ({"batch-size": 64}, ("data", "--batch-size", "8"), ("data", "--batch-size", "64")),
        ({"lr": 1e-05}, ("--lr=1", "data"), ("--lr", "1e-05", "data")),
        ({"-b": 8}, (), ("-b", "8")),
        ({"optimizer.lr=": 0.5}, ("optimizer.lr=1",), ("optimizer.lr=0.5",)),
        ({"amp": True}, ("data",), ("data", "--amp")),
        ({"amp": False}, ("--amp", "data"), ("data",)),
        ({"clip": None}, (), ()),
        ({"layers": (64, 32)}, ("--layers", "8", "8", "8"), ("--layers", "64", "32")),
        ({"layers=": (64, 32)}, (), ("layers=[64,32]",)),
        ({"shift": -0.5}, (), ("--shift=-0.5",)),
        ({"model": "two words"}, (), ("--model", "two words")),
    ],
)
def test_setting_becomes_the_option_that_its_name_spells(settings, own, expected):
    assert words_of(settings, own).args == expected


def test_setting_with_a_dollar_goes_into_the_environment():
    words = words_of({"$LR": 0.1, "$AMP": True, "epochs": 2})
    assert words.env == {"LR": "0.1", "AMP": "1"}
    assert words.command("train.py") == "LR=0.1 AMP=1 reparto run train.py --epochs 2"


# ------------------------------------------------------------------------------------ space


def test_space_of_a_script_is_read_from_toml_and_from_json(tmp_path):
    space = {"lr": {"low": 1e-4, "high": 1, "log": True}, "-b": [8, 16], "epochs": 5}
    toml, plain = tmp_path / "space.toml", tmp_path / "space.json"
    toml.write_text('lr = {low = 1e-4, high = 1, log = true}\n"-b" = [8, 16]\nepochs = 5\n')
    plain.write_text(json.dumps({"script": space}))
    assert read_space(toml, script=True) == read_space(plain, script=True) == {"script": space}


def test_space_of_techniques_has_a_table_for_each(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text("[random-forest]\nnumTrees = [10, 100]\n[knn.neighbours]\nlow = 1\nhigh = 9\n")
    assert read_space(path) == {
        "random-forest": {"numTrees": [10, 100]},
        "knn": {"neighbours": {"low": 1, "high": 9}},
    }


@pytest.mark.parametrize(
    ("text", "script", "told"),
    [
        ("lr = {low = 1}", True, "space.toml: lr is {'low': 1}: that is no range"),
        ("lr = {low = 0, high = 1, log = true}", True, "space.toml: lr is from 0 to 1"),
        ("lr = []", True, "space.toml: lr has no values"),
        ("lr = [2024-01-01]", True, "space.toml: lr cannot be 2024-01-01"),
        ("'a b' = 1", True, "'a b' is no name of an option"),
        ("lr = \nb = 1", True, "space.toml is no TOML: .*line 1"),
        ("", True, "there is nothing to choose from"),
        ("lr = 1\n[script]\nlr = 1", True, "lr stands beside the table"),
        ("lr = {low = 0, high = 1}", False, "space.toml: lr belongs to no technique"),
        ("[knn]\nk = {high = 1}", False, "space.toml: knn.k is {'high': 1}: that is no range"),
    ],
)
def test_space_that_cannot_be_is_refused_at_its_name(tmp_path, text, script, told):
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=told):
        read_space(path, script=script)


def test_missing_space_is_told(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_space(tmp_path / "space.toml")


# ------------------------------------------------------------------------------- objective


@pytest.mark.parametrize(
    ("text", "told"), [("loss (", "no regular expression"), ("loss", "0 groups"), ("(a)(b)", "2")]
)
def test_objective_that_is_no_pattern_with_a_group_is_refused(text, told):
    with pytest.raises(UsageError, match=told):
        objective_pattern(text)


def heard(pattern, *parts):
    history = History(objective_pattern(pattern))
    for part in parts:
        history.printed(Output(rank=0, stream="stdout", data=part))
    history.ended()
    return history


def test_objective_is_found_in_lines_that_come_in_pieces():
    history = heard("acc ([0-9.]+)", b"acc 0.", b"5\nacc 0.6\racc 0.7", b"5\n", b"done\nacc 0.8")
    assert [point.value for point in history.points] == [0.5, 0.6, 0.75, 0.8]


@pytest.mark.parametrize(
    ("printed", "told"),
    [(b"loss nan\nloss 1.0\n", "its objective is nan"), (b"loss low\n", "'low' where the obj")],
)
def test_objective_that_is_no_number_is_a_failure(printed, told):
    assert told in heard(LOSS, printed).failure


def test_training_loss_is_smoothed_and_counted_in_samples():
    history = History(None)
    for step in range(1, 41):
        history.stepped(StepRecord(step=step, time_s=0.0, samples=8, loss=1.0 + step % 2))
    assert history.at == 320
    assert history.points[-1].value == pytest.approx(1.5, abs=0.05)


def test_part_of_a_run_is_unknown_until_one_has_ended_and_where_nothing_is_saved():
    lengths = Lengths()
    assert lengths.part("matches", 1 / 3) is None
    lengths.told("matches", 9)
    lengths.told("matches", 3)
    assert lengths.part("matches", 1 / 3) == 3
    assert lengths.part("samples", 1 / 3) is None
    lengths.told("samples", 900)
    assert lengths.part("samples", 1 / 9) == 100
    once = Lengths()
    once.told("matches", 1)
    assert once.part("matches", 1 / 9) is None


# ------------------------------------------------------------------------------------- runs


def test_run_finds_its_data_and_leaves_all_that_it_writes_in_its_folder(here):
    [reached] = tried(asked(), {"lr": 0.1}, number=4)
    folder = here / "found" / "trials" / "4"
    assert reached.score.score == reached.score.scores["objective"] < 0.5
    printed = (folder / "output.txt").read_text().splitlines()
    assert printed[-1] == f"epoch 8 loss {reached.score.score:.6f}"
    assert reached.size_bytes == (folder / "files" / "model.pt").stat().st_size
    assert not (here / "model.pt").exists()
    rows = (folder / "objective.csv").read_text().splitlines()
    assert rows[0] == "matches,objective,seconds"
    assert len(rows) == 10
    about = json.loads((folder / "trial.json").read_text())
    assert (about["status"], about["settings"]) == ("done", {"lr": 0.1})
    command = (folder / "command.txt").read_text().split()
    assert command[:3] + command[-3:] == "reparto run --workers train.py --lr 0.1".split()
    assert any("found/trials/4" in note for note in reached.notes)


def test_file_of_the_user_is_not_overwritten(here):
    (here / "model.pt").write_text("mine")
    tried(asked(), {"lr": 0.1})
    assert (here / "model.pt").read_text() == "mine"
    assert (here / "found/trials/0/files/model.pt").stat().st_size > 100


def test_rungs_of_a_run_whose_length_nobody_knew_are_told_at_its_end_and_settled(here):
    reached = tried(asked(), {"lr": 0.1}, shares=(1 / 9, 1 / 3, 1.0))
    rows = (here / "found/trials/0/objective.csv").read_text().splitlines()[1:]
    values = [float(row.split(",")[1]) for row in rows]
    assert [one.score.score for one in reached] == [values[0], values[2], values[8]]
    assert all(one.is_settled for one in reached)


@pytest.mark.parametrize("workers", [1, 2])
def test_run_that_is_given_up_ends_on_all_workers_after_the_same_step(here, workers):
    settings = {"lr": 0.03125, "epochs": 100_000}
    [reached] = tried(asked(workers=workers), settings, (1 / 9,), [("matches", 90)])
    assert not reached.is_settled
    seen = [(here / f"seen-{rank}").read_text().splitlines() for rank in range(workers)]
    assert [len(lines) for lines in seen] == [len(seen[0])] * workers
    assert all(lines == seen[0] for lines in seen)  # the same settings, and as many epochs
    assert all(line.startswith("0.03125 ") for line in seen[0])
    assert 10 <= len(seen[0]) < 10_000
    about = json.loads((here / "found/trials/0/trial.json").read_text())
    assert about["status"] == "pruned"
    assert about["result"]["num_workers"] == workers


def test_rung_that_tells_nothing_new_is_settled(here):
    settings = {"lr": 0.1, "epochs": 100_000}
    first, second = tried(asked(), settings, (1 / 9, 1 / 3), [("matches", 3)])
    assert (first.is_settled, second.is_settled) == (False, True)


def test_two_workers_reach_what_one_does_by_their_training_loss(here):
    one, two = (
        tried(asked(workers=workers, objective=""), {"lr": 0.1})[0].score for workers in (1, 2)
    )
    assert one.scores == {"loss": one.score}
    assert two.score == pytest.approx(one.score, rel=1e-4)


def test_run_is_stopped_from_another_thread(here):
    work = opened(asked())
    candidate = Candidate(number=0, technique="script", settings={"epochs": 10**9})
    attempt = work.attempt(candidate, 0)
    threading.Timer(0.3, work.stop).start()
    with pytest.raises(TrialError, match="it was stopped"):
        attempt.reach(Rung(fold=0))
    began = time.monotonic()
    attempt.close()
    assert time.monotonic() - began < 5
    assert json.loads((here / "found/trials/0/trial.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize(
    ("text", "message", "shown"),
    [
        ("print('begin')\ndef f():\n    1 / 0\nf()\n", "ZeroDivisionError", "line 3, in f"),
        ("print('begin')\n", r"nothing .* matches the objective 'loss \(\\S\+\)'", "│ begin"),
        ("print('loss nan')\n", "its objective is nan", "│ loss nan"),
        ("import sys\nprint('loss 1')\nsys.exit(3)\n", "left with exit status 3", "│ loss 1"),
        (
            "import argparse\nargparse.ArgumentParser().parse_args()\n",
            "exit status 2",
            "unrecognized arguments: --lr 0.1",
        ),
    ],
)
def test_run_without_a_score_fails_with_the_scripts_own_words(here, text, message, shown):
    (here / "bad.py").write_text(text)
    with pytest.raises(TrialError, match=message) as caught:
        tried(asked("bad.py"), {"lr": 0.1})
    assert shown in "".join(traceback.format_exception(caught.value))
    assert "\n" not in caught.value.message
    about = json.loads((here / "found/trials/0/trial.json").read_text())
    assert (about["status"], about["objective"]) == ("failed", None)


def test_variable_of_the_environment_reaches_the_script(here):
    (here / "env.py").write_text("import os\nprint('loss', os.environ['LR'])\n")
    [reached] = tried(asked("env.py"), {"$LR": 0.25})
    assert reached.score.score == 0.25


# --------------------------------------------------------------------------------- requests


def test_script_that_cannot_be_shared_out_is_refused_with_the_place(here):
    refused = ROOT / "tests" / "scripts" / "special" / "reinforce_gridworld.py"
    (here / "rl.py").write_text(refused.read_text())
    prepare_trials(asked("rl.py"), "found")  # alone it may do what it wants
    with pytest.raises(RefusedError, match=r"rl\.py:\d+"):
        prepare_trials(asked("rl.py", workers=2), "found")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"engine": "spark"}, "not started on spark"),
        ({"engine": "ray", "max_workers": 2}, "one after the other"),
        ({"spaces": {"script": {"a b": [1]}}}, "'a b' is no name of an option"),
        ({"objective": "loss"}, "0 groups"),
    ],
)
def test_request_that_cannot_be_is_refused_before_anything_runs(here, more, told):
    with pytest.raises(UsageError, match=told):
        prepare_trials(asked(**more), "found")


def test_runs_at_the_same_time_share_the_cores(here):
    cores = len(os.sched_getaffinity(0))
    alone = prepare_trials(asked(max_workers=1), "found")
    assert alone.plan.threads_per_worker == cores
    assert prepare_trials(asked(), "found").plan.threads_per_worker == 1
    assert prepare_trials(asked(workers=2), "found").at_once == max(1, cores // 2)


def test_planner_is_asked_once_and_measures_what_is_in_the_middle(here, monkeypatch):
    measured = []

    def forecast(job, wish, **_):
        measured.append(job)
        best = Prediction(
            strategy=StrategyConfig(kind="all-reduce"),
            label="all-reduce",
            num_workers=2,
            samples_a_step=8,
            compute_s=0.1,
            step_s=0.1,
        )
        return SimpleNamespace(best=best, why="2 workers are twice as fast")

    monkeypatch.setattr(api, "forecast", forecast)
    trials = prepare_trials(asked(workers=0), "found")
    assert (trials.plan.num_workers, trials.plan.strategy.kind) == (2, "all-reduce")
    assert trials.notes == ("each run: 2 workers are twice as fast",)
    assert [job.args for job in measured] == [("--lr", "0.5005")]
    candidate = Candidate(number=0, technique="script", settings={"lr": 0.1})
    assert "run --workers 2 --threads 1 train.py --lr 0.1" in trials.command_of(candidate)


def test_missing_script_is_told(here):
    with pytest.raises(UsageError, match="No such file"):
        prepare_trials(asked("no.py"), "found")


# -------------------------------------------------------------------------- whole searches


@pytest.mark.forked
def test_search_finds_the_best_run_and_a_failed_one_has_no_score(cli):
    cli.write(TRAIN)
    cli.write("1.0", "scale.txt")
    done = cli.run(
        *("search", "--script", "train.py", "--set", "lr=0.03,0.1,1e9", "--search", "grid"),
        *("--objective", LOSS, "--out", "found", "--", "--epochs", "3"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((cli.folder / "found" / "search.json").read_text())
    status = {one["candidate"]["settings"]["lr"]: one for one in result["evaluations"]}
    assert [status[lr]["status"] for lr in (0.03, 0.1, 1e9)] == ["done", "done", "failed"]
    assert status[0.1]["score"] < status[0.03]["score"]
    assert status[1e9]["score"] is None
    assert "its objective is" in status[1e9]["failure"]
    assert "│ epoch" in status[1e9]["traceback"]
    command = next(line for line in result["notes"] if "reparto run" in line).partition(": ")[2]
    assert command in done.stdout
    again = cli.run(*command.split()[1:])
    assert again.stdout.splitlines()[2] == f"epoch 2 loss {status[0.1]['score']:.6f}"


@pytest.mark.forked
def test_interrupted_search_leaves_no_worker_and_tells_the_best_so_far(cli):
    cli.write(TRAIN.replace("range(args.epochs)", "range(10**9 if args.lr < 0.05 else 3)"))
    cli.write("1.0", "scale.txt")
    process = cli.start(
        *("search", "--script", "train.py", "--set", "lr=0.1,0.01", "--search", "grid"),
        *("--objective", LOSS, "--out", "found", "--workers", "1"),
    )
    until = time.monotonic() + 60
    while not (cli.folder / "seen-0").exists() or "0.01 " not in (cli.folder / "seen-0").read_text(
        errors="replace"
    ):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert cli.running() == []
    result = json.loads((cli.folder / "found" / "search.json").read_text())
    found = {one["candidate"]["settings"]["lr"]: one["status"] for one in result["evaluations"]}
    assert found == {0.1: "done", 0.01: "stopped"}
    assert result["best"] == 0
    assert "stopped" in out
