"""Sharded: the contract."""

import pytest

from reparto.strategies import Sharded
from reparto.testing import StrategyContract


@pytest.mark.parametrize("size", [1, 2, 3, 4], ids=lambda size: f"{size} workers")
class TestSharded(StrategyContract):
    @pytest.fixture(
        params=[(0, 2**26), (0, 0), (0, 4800), (100, 0), (2**15, 2**26)],
        ids=["kept", "all sliced", "some kept", "large ones sliced", "none sliced"],
    )
    def config(self, request):
        return Sharded.Config(min_bytes=request.param[0], keep_bytes=request.param[1])

    @pytest.fixture(autouse=True)
    def _of_that_size(self, size):
        self.size = size
