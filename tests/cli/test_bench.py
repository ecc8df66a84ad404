"""The command `reparto bench`."""

import json

import pytest

from reparto.cli import _parser, main

NET = """\
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)
    def forward(self, x):
        return self.layer(x)
"""


def request(*words):
    from reparto.cli import _bench

    args = _parser(["bench"]).parse_args(["bench", *words])
    return _bench._request(_bench._all_options(args))


def test_whole_grid_is_the_default():
    assert request().targets == ("grid", "cnn")


def test_options_may_stand_behind_a_target_that_has_none_of_its_own():
    found = request("--dtype", "bf16", "grid", "--models", "50", "--batch", "2,8", "--train")
    assert (found.models, found.batches, found.modes) == (("50",), (2, 8), ("train",))
    assert (found.dtypes, found.targets) == (("bf16",), ("grid",))


@pytest.mark.parametrize(
    ("told", "loops", "forms"),
    [
        ("captured", ("captured",), ()),
        ("eager,onnx", (), ("eager", "onnx")),
        ("eager,plain", ("plain",), ("eager",)),
    ],
)
def test_forms_of_training_and_of_inference_are_chosen_by_name(told, loops, forms):
    everything, found = request(), request("--forms", told)
    assert found.loops == (loops or everything.loops)
    assert found.forms == (forms or everything.forms)
    assert "onnx" not in forms or not found.cpu_only  # who names it gets it, or is told why not


def test_what_stands_behind_a_script_is_its_own():
    found = request("--devices", "cpu", "train.py", "--batch", "32")
    assert found.args == ("--batch", "32")
    assert found.batches[0] == 2


def test_deadline_and_shape_are_read():
    found = request("--deadline", "50ms", "--input", "3,32,32", "--infer", "net.py:Net")
    assert (found.deadline_s, found.input_shape, found.modes) == (0.05, (3, 32, 32), ("infer",))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dtype", "f64"], "f64 is none of"),
        (["grid", "cnn"], "second thing to be timed"),
    ],
)
def test_words_that_make_no_sense_are_told(words, said, capsys):
    with pytest.raises(SystemExit):
        request(*words)
    assert said in capsys.readouterr().err


def test_a_target_that_is_none_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "nonsense"]) == 2
    assert "nothing that can be timed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_timed_advised_and_traced_and_a_second_call_measures_nothing(cli):
    cli.write(NET, "net.py")
    words = ("bench", "net.py:Net", "--input", "6", "--batch", "8", "--calls", "1,4")
    words += ("--forms", "eager", "--advise", "--price", "cpu=0.4/h", "--json", "found.json")
    done = cli.run(*words, "--deadline", "1s", "--trace", "traces", "--devices", "cpu")
    assert done.returncode == 0, done.stderr
    found = json.loads((cli.folder / "found.json").read_text())
    rows = found["measurements"]
    assert [(row["mode"], row["work"]["batch_rows"]) for row in rows[:3]] == [
        *[("train", 8), ("infer", 1), ("infer", 4)]
    ]
    assert all(row["step_s"] > 0 for row in rows)
    assert any(word.startswith("Within 1 s cpu") for word in found["advice"]["words"])
    assert list((cli.folder / "traces").rglob("*.pt.trace.json"))
    assert "random data" in " ".join(rows[0]["notes"])
    assert (cli.folder / "reparto-bench" / "bench.csv").exists()
    again = cli.run(*words, "--deadline", "1s")
    assert again.returncode == 0
    assert "4 cells were measured before" in again.stderr


def test_a_script_is_timed_alone_and_shared_out_on_the_same_work(cli, train):
    words = ("--devices", "cpu", "--strategies", "all-reduce", "--steps", "12")
    done = cli.run("bench", *words, "--json", "-", "train.py")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["measurements"]
    assert [(row["strategy"], row["num_workers"]) for row in rows] == [
        ("single", 1),
        ("all-reduce", 2),
    ]
    assert all(row["work"]["target_steps"] == 12 for row in rows)
    assert all("not-like-for-like" not in row["flags"] for row in rows)
    assert rows[0]["loss_last"] == pytest.approx(rows[1]["loss_last"], rel=1e-4)
