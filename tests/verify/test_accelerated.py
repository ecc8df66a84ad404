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


def test_each_evaluation_of_a_closure_is_compared(cli):
    """LBFGS asks for gradients several times in a step."""
    script = cli.write(
        "import torch\n"
        "from torch import nn\n"
        "torch.manual_seed(0)\n"
        "model, x = nn.Linear(3, 1), torch.randn(8, 3)\n"
        "optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)\n"
        "def closure():\n"
        "    optimizer.zero_grad()\n"
        "    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()\n"
        "    loss.backward()\n"
        "    return loss\n"
        "for step in range(3):\n"
        "    print(optimizer.step(closure).item())\n"
    )
    report = cli.folder / "report.json"
    done = cli.run("verify", "--accelerate", "--steps", 3, "--json", report, script)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())["result"]
    assert found["verdict"] == "equal"
    assert len(found["gradients"]) > 3


def test_gradients_that_no_optimizer_steps_by_are_not_counted(cli):
    """The sequential side counts an attack on inputs, the accelerated one does not.

    A tensor that is printed reads its own numbers; the script reads the two of the loss, behind
    all steps but the last.
    """
    script = cli.write(
        "import torch\n"
        "from torch import nn\n"
        "torch.manual_seed(0)\n"
        "model = nn.Linear(3, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(20):\n"
        "    x = torch.randn(8, 3, requires_grad=True)\n"
        "    grad, = torch.autograd.grad(model(x).sum(), x)\n"
        "    attacked = (x + 0.1 * grad.sign()).detach()\n"
        "    if step % 2 == 0:\n"
        "        optimizer.zero_grad()\n"
        "        loss = model(attacked).square().mean()\n"
        "        loss.backward()\n"
        "        optimizer.step()\n"
        "        print(attacked, f'{loss:.3f}', loss.item())\n"
    )
    report = cli.folder / "report.json"
    done = cli.run("verify", "--accelerate", "--steps", 4, "--json", report, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal: the accelerated training is the sequential one" in done.stdout
    found = json.loads(report.read_text())["result"]
    assert (len(found["values"]), len(found["gradients"])) == (2, 2)


def test_on_a_cpu_what_may_be_chosen_is_proven(cli):
    del cli.env["REPARTO_CAPTURE"]
    done = cli.run("verify", "--accelerate", "--steps", 8, DIGITS, "--epochs", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal: the accelerated training is the sequential one" in done.stdout


def test_what_an_optimizer_reads_is_its_own_affair(cli):
    """On a CPU, NAdam and others read how many steps they have made."""
    del cli.env["REPARTO_CAPTURE"]
    script = cli.write(
        "import torch\n"
        "from torch import nn\n"
        "torch.manual_seed(0)\n"
        "model, x = nn.Linear(3, 1), torch.randn(8, 3)\n"
        "optimizer = torch.optim.NAdam(model.parameters(), lr=0.1)\n"
        "for step in range(4):\n"
        "    optimizer.zero_grad()\n"
        "    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    print(loss.item())\n"
    )
    report = cli.folder / "report.json"
    done = cli.run("verify", "--accelerate", "--steps", 4, "--json", report, script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(report.read_text())["result"]["values"]) == 3
