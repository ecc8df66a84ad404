"""What is refused, what is left unchanged, and where the diagnostics point."""

from __future__ import annotations

import pytest

from reparto.convert import Converted, Refused, Unchanged, convert
from reparto.errors import UsageError

TRAIN = """
model = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), 0.1)
for x, y in loader:
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    opt.step()
"""

# name: (script, code, line, column)
REFUSED = {
    "a syntax error": ("import torch\nfor x in :\n    pass\n", "C200", 2, 10),
    "no training loop": ("import torch\nprint(torch.ones(3))\n", "C201", 1, 1),
    "reinforcement learning": (
        """\
import gym, torch
env = gym.make("CartPole-v1")
model = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(model.parameters())
for episode in range(10):
    state, done = env.reset(), False
    while not done:
        action = model(state).argmax()
        state, reward, done, _ = env.step(action)
    loss = -reward * model(state).sum()
    loss.backward()
    opt.step()
""",
        "C202",
        9,
        34,
    ),
    "hill climbing": (
        """\
import copy, torch
model = torch.nn.Linear(4, 2)
best = float("inf")
for i in range(100):
    candidate = copy.deepcopy(model)
    for p in candidate.parameters():
        p.data.add_(0.1 * torch.randn_like(p))
    loss = candidate(torch.ones(1, 4)).sum().item()
    if loss < best:
        best, model = loss, candidate
""",
        "C203",
        4,
        1,
    ),
    "one name at a time": (
        """\
import torch
class RNN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.Linear(8, 4)
    def forward(self, x, h):
        return self.cell(torch.cat((x, h), 1)), h
    def init_hidden(self):
        return torch.zeros(1, 4)
rnn = RNN()
opt = torch.optim.SGD(rnn.parameters(), 0.1)
for step in range(10):
    name = torch.randn(5, 1, 4)
    hidden = rnn.init_hidden()
    for i in range(name.size(0)):
        out, hidden = rnn(name[i], hidden)
    out.sum().backward()
    opt.step()
""",
        "C204",
        16,
        23,
    ),
    "one number at a time": (
        """\
import torch
w = torch.tensor([1.0], requires_grad=True)
for x, y in zip([1.0, 2.0], [2.0, 4.0]):
    loss = (x * w - y) ** 2
    loss.backward()
    w.data = w.data - 0.01 * w.grad.data
""",
        "C204",
        3,
        1,
    ),
}

UNCHANGED = {
    "torch.distributed": (
        "import torch.distributed as dist\ndist.init_process_group('gloo')",
        "torchrun",
        "C301",
    ),
    "DistributedDataParallel": (
        "from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(None)",
        "torchrun",
        "C301",
    ),
    "FSDP": (
        "from torch.distributed.fsdp import fully_shard\nfully_shard(None)",
        "torchrun",
        "C301",
    ),
    "Accelerate": ("from accelerate import Accelerator\na = Accelerator()", "torchrun", "C301"),
    "Lightning": (
        "import lightning as L\nclass M(L.LightningModule):\n    pass",
        "torchrun",
        "C301",
    ),
    "old Lightning": (
        "import pytorch_lightning as pl\nt = pl.Trainer()",
        "torchrun",
        "C301",
    ),
    "a Hugging Face Trainer": (
        "from transformers import Trainer\nt = Trainer()",
        "torchrun",
        "C301",
    ),
    "DeepSpeed": ("import deepspeed\ndeepspeed.initialize()", "torchrun", "C301"),
    "Horovod": ("import horovod.torch as hvd\nhvd.init()", "torchrun", "C301"),
    "ignite.distributed": (
        "import ignite.distributed as idist\nidist.auto_model(None)",
        "torchrun",
        "C301",
    ),
    "processes that train": (
        "import torch.multiprocessing as mp\ndef work(loss):\n    loss.backward()\n"
        "p = mp.Process(target=work)",
        "plain",
        "C302",
    ),
    "spawned workers": (
        "import torch.multiprocessing as mp\nimport torch.distributed as dist\n"
        "def work(rank, loss):\n    dist.init_process_group('gloo')\n    loss.backward()\n"
        "mp.spawn(work)",
        "plain",
        "C302",
    ),
    "reparto itself": ("import reparto\nreparto.init()", "reparto", "C303"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_script_is_refused_with_place_and_reason(name: str, convert_text) -> None:
    script, code, line, column = REFUSED[name]
    result = convert_text(script)
    assert isinstance(result, Refused)
    (error,) = [found for found in result.program.diagnostics if found.severity == "error"]
    assert error.code == code
    assert (error.place.line, error.place.column) == (line, column)
    assert error.place.file.endswith("train.py")
    assert error.reason and error.remedy
    assert not any(file.changed for file in result.program.files)


def test_no_training_loop_names_the_way_out(convert_text) -> None:
    (error,) = convert_text("x = 1\n").program.diagnostics
    assert "--strategy single" in error.remedy


@pytest.mark.parametrize("name", UNCHANGED)
def test_script_that_distributes_itself_is_left_unchanged(name: str, convert_text) -> None:
    head, launch, code = UNCHANGED[name]
    result = convert_text(f"import torch\n{head}\n{TRAIN}")
    assert isinstance(result, Unchanged)
    assert result.program.launch == launch
    assert [found.code for found in result.program.diagnostics] == [code]
    assert result.reason
    assert not any(file.changed for file in result.program.files)


def test_pool_that_only_prepares_data_is_no_reason(convert_text) -> None:
    head = "import multiprocessing as mp\nwith mp.Pool(2) as pool:\n    pool.map(int, '12')"
    assert isinstance(convert_text(f"import torch\n{head}\n{TRAIN}"), Converted)


def test_data_parallel_is_converted_and_noted(convert_text) -> None:
    script = f"import torch\n{TRAIN}".replace(
        "torch.nn.Linear(4, 2)", "torch.nn.DataParallel(torch.nn.Linear(4, 2))"
    )
    result = convert_text(script)
    assert isinstance(result, Converted)
    assert "C101" in {found.code for found in result.program.diagnostics}
    converted = result.program.files[0].converted
    assert "model = reparto.prepare(torch.nn.DataParallel(torch.nn.Linear(4, 2)))" in converted


def test_loader_of_single_samples_is_warned_about(convert_text) -> None:
    head = "import torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader([1])"
    codes = {found.code for found in convert_text(f"{head}\n{TRAIN}").program.diagnostics}
    assert codes == {"C401"}


def test_syntax_error_in_a_followed_module_is_told_there(convert_text) -> None:
    result = convert_text("import helper\n", {"helper.py": "def f(:\n    pass\n"})
    assert isinstance(result, Refused)
    (error,) = result.program.diagnostics
    assert error.place.file.endswith("helper.py") and error.place.line == 1


def test_missing_script_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.py"):
        convert(tmp_path / "nowhere.py")


@pytest.mark.parametrize(
    "raw", [b"\x00", b"\xff\xfe", b"", b"# -*- coding: latin-1 -*-\n# \xe9\n"]
)
def test_odd_bytes_never_raise(raw: bytes, tmp_path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(raw)
    assert isinstance(convert(path), Refused)


def test_defect_of_ours_is_told_as_such(convert_text, monkeypatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("reparto.convert._convert.gather", broken)
    (error,) = convert_text("x = 1\n").program.diagnostics
    assert error.code == "C205" and "ZeroDivisionError" in error.reason
