"""The plugin's own tests: reparto's contracts. Run where it is installed; see test_plugin.py."""

import pytest
from votes import Eighths, SignVote

from reparto.testing import CompressorContract, StrategyContract


class TestSignVote(StrategyContract):
    @pytest.fixture
    def config(self):
        return SignVote.Config()


class TestEighths(CompressorContract):
    @pytest.fixture
    def config(self):
        return Eighths.Config()
