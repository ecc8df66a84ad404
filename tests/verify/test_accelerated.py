"""``reparto verify --accelerate``: an accelerated run against the script alone."""

import json
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"


@pytest.fixture(autouse=True)
def _played(cli):
    cli.env["REPARTO_CAPTURE"] = "repeat"


def test_an_accelerated_training_is_proven(cli):
    report = cli.folder / "report.json"
    done = cli.run("verify", "--accelerate", "--steps", 8, "--json", report, DIGITS, "--epochs", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal: the accelerated training is the sequential one" in done.stdout
    found = json.loads(report.read_text())["result"]
    assert found["verdict"] == "equal"
    assert (found["num_workers"], found["num_steps"]) == (1, 8)
    assert len(found["gradients"]) == 8
    assert any("of 8 steps were captured graphs" in note for note in found["notes"])


def test_what_is_never_stepped_is_not_proven(cli):
    script = cli.write(
        "import torch\n"
        "w = torch.zeros(3, requires_grad=True)\n"
        "for step in range(3):\n"
        "    w.sum().backward()\n"
        "    w.data -= 0.1 * w.grad\n"
        "    w.grad = None\n"
    )
    done = cli.run("verify", "--accelerate", "--steps", 2, script)
    assert done.returncode == 1
    assert "NOT PROVEN" in done.stdout
    assert "no optimizer of torch's" in done.stdout


def test_on_a_cpu_what_may_be_chosen_is_proven(cli):
    del cli.env["REPARTO_CAPTURE"]
    done = cli.run("verify", "--accelerate", "--steps", 8, DIGITS, "--epochs", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal: the accelerated training is the sequential one" in done.stdout
