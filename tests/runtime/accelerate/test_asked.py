"""Whether a script knows of a GPU decides what its words for devices mean."""

import pytest
import torch

from reparto.runtime.accelerate._home import Home
from reparto.spec import Program, SourceFile


@pytest.fixture
def flag():
    before = torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32 = before


def test_a_script_that_names_no_gpu_cannot_have_asked_for_one(flag):
    torch.backends.cudnn.allow_tf32 = True
    home = Home(torch.device("cuda"))
    torch.backends.cudnn.allow_tf32 = False  # as an exact run begins
    home.may_ask = False
    home.asked()  # x.to(y.device)
    assert not home.is_asked_for
    assert not torch.backends.cudnn.allow_tf32


def test_a_script_that_asks_for_one_gets_what_torch_gives(flag):
    torch.backends.cudnn.allow_tf32 = True
    home = Home(torch.device("cuda"))
    torch.backends.cudnn.allow_tf32 = False
    home.asked()
    assert home.is_asked_for
    assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('device = torch.device("cuda")', True),
        ("model.to(x.device)", False),
        ("use_gpu = 1", True),
    ],
)
def test_a_program_names_a_gpu(text, names):
    file = SourceFile(path="/t.py", module="__main__", original=text, converted=text)
    assert Program(script="/t.py", files=(file,)).names_gpu is names
