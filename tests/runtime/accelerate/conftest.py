"""Every case is played twice: as calls made once more, and as operations in the same memory."""

import pytest
from tests.runtime.accelerate.trained import PLAYERS


@pytest.fixture(params=PLAYERS)
def player(request):
    return request.param
