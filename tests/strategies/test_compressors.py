"""The built-in compressors keep the contract."""

import pytest
import torch

from reparto.comm import Meeting, ThreadGroup
from reparto.errors import UsageError
from reparto.spec import Cluster, Host, Profile, StrategyConfig
from reparto.strategies import AllReduce, from_spec
from reparto.strategies.compressors import (
    Cast,
    PowerSGD,
    Quantize,
    RandomK,
    TopK,
    Uncompressed,
    available,
)
from reparto.strategies.compressors._topk import warmed
from reparto.testing import CompressorContract, run_members


class TestUncompressed(CompressorContract):
    num_calls, nearly = 3, 1e-6

    @pytest.fixture
    def config(self):
        return Uncompressed.Config()


class TestCast(CompressorContract):
    num_calls, nearly = 20, 1e-3

    @pytest.fixture(params=["f16", "bf16"])
    def config(self, request):
        return Cast.Config(dtype=request.param)


class TestQuantize(CompressorContract):
    @pytest.fixture(params=[8, 4])
    def config(self, request):
        return Quantize.Config(bits=request.param, block=64)


class TestOneBit(CompressorContract):
    num_calls = 3000

    @pytest.fixture
    def config(self):
        return Quantize.Config(bits=1, block=64)


class TestTopK(CompressorContract):
    num_calls, nearly = 2000, 0.1

    @pytest.fixture
    def config(self):
        return TopK.Config(fraction=0.02)


class TestRandomK(CompressorContract):
    num_calls, nearly = 2000, 0.1

    @pytest.fixture
    def config(self):
        return RandomK.Config(fraction=0.05)

    def test_what_is_no_number_is_seen_once(self, config):
        pytest.skip("it is seen when its place comes")


class TestPowerSGD(CompressorContract):
    @pytest.fixture
    def config(self):
        return PowerSGD.Config(rank=2)


class TestPowerSGDOfFive(TestPowerSGD):
    size = 5


class TestQuantizeOfOne(CompressorContract):
    size = 1

    @pytest.fixture
    def config(self):
        return Quantize.Config(bits=4)

    def test_fewer_bytes_are_sent(self, config):
        assert config.ratio((1000, 1000), self.size) == 1.0  # nothing is sent at all


def test_powersgd_takes_parameters_of_half_precision():
    def work(group):
        flat = torch.randn(64 * 32, generator=torch.Generator().manual_seed(0)).bfloat16()
        total = PowerSGD.Config(rank=2).build(group).sum_over(flat, ((64, 32),), "weights")
        return total.dtype, bool(total.isfinite().all())

    meeting = Meeting(2)
    found = run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work)
    assert found == [(torch.bfloat16, True)] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("config", [config() for config in available().values()])
def test_parameters_of_other_types_are_added_up(config, dtype):
    """An odd number of elements is sent, so that nothing is aligned by chance."""

    def work(group):
        flat = torch.zeros(64 * 13, dtype=dtype)
        flat[::2] = group.rank() + 1
        return config.build(group).sum_over(flat, ((64, 13),), "weights")

    meeting = Meeting(2)
    one, two = run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work)
    assert torch.equal(one, two)
    assert one.dtype == dtype
    assert 0 < one.max() < 3.1


def test_they_are_found_by_name():
    assert set(available()) == {"none", "cast", "quantize", "topk", "randomk", "powersgd"}
    made = from_spec(
        StrategyConfig(
            kind="all-reduce", settings={"compressor.kind": "topk", "compressor.fraction": 0.1}
        )
    )
    assert made == AllReduce.Config(compressor=TopK.Config(fraction=0.1))
    assert not made.exact
    assert "lossily" in made.changes
    assert AllReduce.Config().exact


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"compressor.bits": 4}, "by its kind"),
        ({"compressor": "gzip"}, "unknown compressor"),
        ({"compressor.kind": "quantize", "compressor.bits": 3}, "8, 4 or 1"),
        ({"compressor.kind": "quantize", "compressor.block": 12}, "packed"),
        ({"compressor.kind": "topk", "compressor.fraction": 0}, "fraction"),
        ({"compressor.kind": "topk", "compressor.momentum": 1.5}, "momentum"),
        ({"compressor.kind": "topk", "compressor.no": 1}, "no setting"),
        ({"compressor.kind": "powersgd", "compressor.rank": 0}, "rank"),
        ({"compressor": "cast", "compressor.dtype": "f16"}, "whole and in parts"),
        ({"bucket_bytes": "many"}, "integer"),
    ],
)
def test_bad_settings_are_refused(settings, told):
    with pytest.raises(UsageError, match=told):
        from_spec(StrategyConfig(kind="all-reduce", settings=settings))


def test_few_bits_keep_the_mean():
    class Alone:
        def size(self):
            return 1

        def rank(self):
            return 0

    compressor = Quantize(Alone(), Quantize.Config(bits=4, error_feedback=False))
    tensor = torch.linspace(-1, 1, 256)
    mean = (
        sum(compressor.decode(compressor.encode(tensor, ""), tensor) for _ in range(4000)) / 4000
    )
    assert (mean - tensor).abs().max() < 0.01


def test_warm_up_sends_less_and_less():
    shares = [warmed(0.01, 4, step) for step in range(6)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] < 0.25
    assert shares[-2:] == [0.01, 0.01]


def test_momentum_is_gathered_by_what_waits():
    """An element that is never sent grows as SGD with momentum would let it."""

    class Alone:
        def size(self):
            return 1

        def rank(self):
            return 0

    compressor = TopK(Alone(), TopK.Config(fraction=0.5, momentum=0.5))
    for _ in range(3):
        compressor.encode(torch.tensor([10.0, 0.1]), "a")
    # 0.1, then 0.1 + 0.15, then 0.1 + 0.15 + 0.175
    assert compressor._owed["a"].tolist() == pytest.approx([0.0, 0.425])


def test_traffic_of_compressed_sums_is_foretold():
    profile = Profile(num_parameters=1_000_000, gradient_bytes=4_000_000)
    cluster = Cluster(hosts=tuple(Host(name=str(n)) for n in range(4)))
    config = AllReduce.Config(compressor=Quantize.Config(bits=4))
    total = sum(message.size_bytes for message in config.traffic(profile, cluster))
    assert total == pytest.approx(4_000_000 / 8 * 1.25, rel=0.04)
