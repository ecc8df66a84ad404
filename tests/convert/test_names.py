"""Names are followed through aliases, modules, classes and functions."""

from __future__ import annotations

import pytest

from reparto.convert import Converted

LOOP = """
for x, y in loader:
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    opt.step()
"""


ALIASES = [
    ("import torch", "torch.utils.data.DataLoader", "torch.optim.SGD", "torch.nn.Linear"),
    (
        "import torch.utils.data as td, torch",
        "td.DataLoader",
        "torch.optim.SGD",
        "torch.nn.Linear",
    ),
    (
        "from torch.utils.data import DataLoader as DL\nfrom torch import nn, optim",
        "DL",
        "optim.SGD",
        "nn.Linear",
    ),
    (
        "from torch.utils import data\nfrom torch.optim import Adam\nimport torch.nn as nn",
        "data.DataLoader",
        "Adam",
        "nn.Linear",
    ),
    (
        "from torch.utils.data import *\nfrom torch.optim import *\nfrom torch.nn import *",
        "DataLoader",
        "SGD",
        "Linear",
    ),
]


@pytest.mark.parametrize(("imports", "loader", "optimizer", "model"), ALIASES)
def test_aliases_are_followed(imports, loader, optimizer, model, convert_text) -> None:
    script = (
        f"{imports}\nloader = {loader}(data_set, 4)\nmodel = {model}(1, 1)\n"
        f"opt = {optimizer}(model.parameters())\n{LOOP}"
    )
    result = convert_text(script)
    assert isinstance(result, Converted)
    converted = result.program.files[0].converted
    assert f"loader = reparto.prepare({loader}(data_set, 4))" in converted
    assert f"model = reparto.prepare({model}(1, 1))" in converted
    assert f"opt = reparto.prepare({optimizer}(model.parameters()))" in converted
    assert "model(x)" in converted


def test_own_modules_are_followed_and_rewritten(convert_text) -> None:
    result = convert_text(
        """
        from parts.nets import Net
        from parts import loop as training
        import parts.data
        import numpy
        model = Net()
        training.fit(model, parts.data.loaders())
        """,
        {
            "parts/__init__.py": "",
            "parts/nets.py": """
        from .base import Base
        class Net(Base):
            pass
        """,
            "parts/base.py": """
        from torch import nn
        class Base(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(1, 1)
        """,
            "parts/data.py": """
        from torch.utils.data import DataLoader
        def loaders():
            return DataLoader([1], 4)
        """,
            "parts/loop.py": """
        import torch
        def one_epoch(model, loader, opt):
            for x in loader:
                model(x).sum().backward()
                opt.step()
        def fit(model, loader):
            opt = torch.optim.SGD(model.parameters(), 0.1)
            for epoch in range(3):
                one_epoch(model, loader, opt)
        """,
        },
    )
    assert isinstance(result, Converted)
    files = {file.module: file for file in result.program.files}
    assert result.program.files[0].module == "__main__"
    assert set(files) == {
        *("__main__", "parts", "parts.nets", "parts.base", "parts.data", "parts.loop")
    }
    assert "model = reparto.prepare(Net())" in files["__main__"].converted
    assert "return reparto.prepare(DataLoader([1], 4))" in files["parts.data"].converted
    assert "opt = reparto.prepare(torch.optim.SGD" in files["parts.loop"].converted
    assert "reparto.init()" not in files["parts.loop"].converted
    assert not files["parts.nets"].changed and not files["parts.base"].changed
    roles = [found.detail for found in result.program.findings if found.kind == "loop"]
    assert any("training" in role for role in roles) and any("epoch" in role for role in roles)


def test_trainer_class_is_understood(convert_text) -> None:
    result = convert_text(
        """
        import torch
        from torch.utils.data import DataLoader
        class Trainer:
            def __init__(self, data):
                self.model = torch.nn.Linear(1, 1)
                self.opt = torch.optim.SGD(self.model.parameters(), 0.1)
                self.train_loader = DataLoader(data, batch_size=4)
            def step(self, batch):
                loss = self.model(batch).sum()
                loss.backward()
                self.opt.step()
                return loss.item()
            def run(self):
                total = 0.0
                for batch in self.train_loader:
                    total += self.step(batch)
                return total
        if __name__ == "__main__":
            Trainer(torch.randn(8, 1)).run()
        """
    )
    assert isinstance(result, Converted)
    converted = result.program.files[0].converted
    assert "self.model = reparto.prepare(torch.nn.Linear(1, 1))" in converted
    assert "self.opt = reparto.prepare(torch.optim.SGD(self.model.parameters(), 0.1))" in converted
    assert "self.train_loader = reparto.prepare(DataLoader(data, batch_size=4))" in converted
    assert "loss = self.model(batch).sum()" in converted


def test_unknown_factory_is_a_model_by_its_use(convert_text) -> None:
    result = convert_text(
        """
        import torch
        import somelib
        from torch.utils.data import DataLoader
        net = somelib.make_net(3)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        for x in DataLoader([1], 4):
            net(x).sum().backward()
            opt.step()
        """
    )
    assert "net = reparto.prepare(somelib.make_net(3))" in result.program.files[0].converted


def test_what_a_module_does_only_as_a_script_is_left_alone(convert_text) -> None:
    result = convert_text(
        """
        import torch
        from torch.utils.data import DataLoader
        from net import Net
        model = Net()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        for x in DataLoader([1], 4):
            model(x).sum().backward()
            opt.step()
        """,
        {
            "net.py": """
        import torch
        class Net(torch.nn.Module):
            pass
        if __name__ == "__main__":
            net = Net()
            net.train()
        """
        },
    )
    assert isinstance(result, Converted)
    assert not result.program.files[1].changed
