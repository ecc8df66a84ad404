"""Torch's compiler comes when it is needed, and not before."""

import pytest

SCRIPT = """\
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(8, 4), torch.randn(8, 1)
for step in range(6):
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 2:
{asked}
optimizer.load_state_dict(optimizer.state_dict())
print("compiler", "torch._dynamo.eval_frame" in sys.modules, f"{{loss.item():.6f}}")
"""
ASKED = {
    "nothing": ("pass", False),
    "an attribute": ("torch._dynamo.reset()", True),
    "a name": ("from torch._dynamo import config; assert config.cache_size_limit > 0", True),
    "a part": ("import torch._dynamo.utils as u; assert u.counters is not None", True),
    "whether it is there": ("import torch._dynamo as d; assert d.__file__", False),
}


def lines(done):
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("compiler")]


@pytest.mark.parametrize(("workers", "what"), [(1, what) for what in ASKED] + [(2, "a part")])
def test_it_comes_when_it_is_asked_for(cli, workers, what):
    asked, comes = ASKED[what]
    script = cli.write(SCRIPT.format(asked=f"        {asked}"))
    (line,) = lines(cli.run("run", "--workers", workers, "--no-probe", script))
    assert line.split()[1] == str(comes)


def test_one_worker_compiles_as_plain_python_does(cli):
    asked = """\
        step_of = torch.compile(lambda a: (model(a) ** 2).mean(), backend="eager")
        print("compiler", f"{step_of(x).item():.6f}")
        torch.compile(optimizer.step, backend="eager")()"""
    script = cli.write(SCRIPT.format(asked=asked))
    assert lines(cli.run("run", "--workers", 1, script)) == lines(cli.python(script))
