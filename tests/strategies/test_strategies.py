"""The built-in strategies keep the contract."""

import pytest

from reparto.errors import UsageError
from reparto.spec import StrategyConfig
from reparto.strategies import AllReduce, Single, available, from_spec
from reparto.testing import StrategyContract


class TestAllReduce(StrategyContract):
    @pytest.fixture(params=[25 * 2**20, 100, 1], ids=["one bucket", "some", "many"])
    def config(self, request):
        return AllReduce.Config(bucket_bytes=request.param)


class TestAllReduceOfOne(StrategyContract):
    size = 1

    @pytest.fixture
    def config(self):
        return AllReduce.Config()


class TestSingle(StrategyContract):
    size = 1

    @pytest.fixture
    def config(self):
        return Single.Config()


def test_strategies_are_found_by_name():
    assert set(available()) >= {"single", "all-reduce"}
    assert from_spec(StrategyConfig(kind="all-reduce", settings={"bucket_bytes": 7})) == (
        AllReduce.Config(bucket_bytes=7)
    )


@pytest.mark.parametrize("spec", [("no-such", {}), ("all-reduce", {"no_such": 1})])
def test_unknown_names_are_refused(spec):
    with pytest.raises(UsageError):
        from_spec(StrategyConfig(kind=spec[0], settings=spec[1]))
