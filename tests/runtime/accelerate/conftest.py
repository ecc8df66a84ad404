"""Every case is played twice: as calls made once more, and as operations in the same memory."""

import pytest
import torch
from tests.runtime.accelerate.trained import PLAYERS

from reparto.runtime.accelerate._home import Home


@pytest.fixture(params=PLAYERS)
def player(request):
    return request.param


@pytest.fixture
def home() -> Home:
    """A home on ``meta``, which stands for a GPU here: it is another device, and there always."""
    home = Home(torch.device("meta"))
    home._is_gpu = True
    return home
