"""CompressorContract: what every Compressor has to do, as a suite to subclass."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from reparto.comm import CountingGroup, Meeting, ThreadGroup
from reparto.strategies.compressors import Compressor, Config, Uncompressed
from reparto.testing._groups import run_members

T = TypeVar("T")
SHAPES = ((40, 30), (30,), (8, 3, 3, 3), ())


class CompressorContract:
    """What every Compressor has to do.

    Subclass it in your tests and override the fixture ``config``::

        class TestMyCompressor(CompressorContract):
            @pytest.fixture
            def config(self):
                return MyCompressor.Config()

    Attributes:
        size: Number of workers.
        num_calls: After so many sums of the same terms, their mean is the true sum, nearly.
        nearly: How nearly: the distance over the true sum's length.
    """

    size = 3
    num_calls = 300
    nearly = 0.05

    @pytest.fixture
    def config(self) -> Config:
        """The settings under test; override this."""
        raise NotImplementedError

    def run(self, config: Config, work: Callable[[Compressor, int], T]) -> list[T]:
        """Run a function as each worker, with a live compressor and its rank."""
        meeting = Meeting(self.size)
        return run_members(
            self.size,
            lambda rank, size: CountingGroup(ThreadGroup(meeting, rank)),
            lambda group: work(config.build(group), group.rank()),
        )

    def true_sum(self) -> Tensor:
        """What the terms of all workers add up to."""
        return torch.stack([term(rank) for rank in range(self.size)]).sum(0)

    def test_settings_travel_and_cannot_be_changed(self, config: Config) -> None:
        assert pickle.loads(pickle.dumps(config)) == config
        for field in dataclasses.fields(config):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(config, field.name, None)

    def test_all_workers_find_the_same_sum(self, config: Config) -> None:
        def work(compressor: Compressor, rank: int) -> Any:
            return [compressor.sum_over(term(rank), SHAPES, "a") for _ in range(3)]

        found = self.run(config, work)
        for other in found[1:]:
            assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))

    def test_what_is_lost_is_made_up_for(self, config: Config) -> None:
        def work(compressor: Compressor, rank: int) -> Any:
            mine, total = term(rank), torch.zeros_like(term(0))
            for _ in range(self.num_calls):
                before = mine.clone()
                total += compressor.sum_over(mine, SHAPES, "a")
                assert torch.equal(mine, before), "the term was changed"
            return total / self.num_calls

        true = self.true_sum()
        for mean in self.run(config, work):
            assert (mean - true).norm() <= self.nearly * true.norm()

    def test_the_bytes_are_those_foretold(self, config: Config) -> None:
        def work(compressor: Compressor, rank: int) -> Any:
            group: Any = compressor.group
            for _ in range(5):
                compressor.sum_over(term(rank), SHAPES, "a")
            return group.bytes_sent

        foretold = 5 * sum(size for _, size in config.parts(SHAPES, self.size))
        for sent in self.run(config, work):
            assert sent == pytest.approx(foretold, rel=0.02)

    def test_fewer_bytes_are_sent(self, config: Config) -> None:
        if not isinstance(config, Uncompressed.Config):
            assert config.ratio((1000, 1000), self.size) > 1.3

    def test_sums_of_different_things_do_not_mix(self, config: Config) -> None:
        def work(compressor: Compressor, rank: int) -> Any:
            for _ in range(3):
                compressor.sum_over(term(rank), SHAPES, "a")
            return compressor.sum_over(torch.zeros(50), [(50,)], "b")

        assert all(not found.any() for found in self.run(config, work))

    def test_what_is_no_number_is_seen_once(self, config: Config) -> None:
        def work(compressor: Compressor, rank: int) -> Any:
            spoilt = term(rank)
            spoilt[7] = torch.nan if rank else torch.inf
            first = compressor.sum_over(spoilt, SHAPES, "a")
            later = [compressor.sum_over(term(rank), SHAPES, "a") for _ in range(4)]
            return bool(first.isfinite().all()), [bool(one.isfinite().all()) for one in later]

        for seen, later in self.run(config, work):
            assert not seen, "it was hidden"
            assert later[-1], "it stays"

    def test_what_is_owed_can_be_dropped(self, config: Config) -> None:
        def work(compressor: Compressor, rank: int) -> Any:
            compressor.sum_over(term(rank), SHAPES, "a")
            compressor.forget()
            return compressor.sum_over(torch.zeros_like(term(rank)), SHAPES, "a")

        assert all(not found.any() for found in self.run(config, work))


def term(rank: int) -> Tensor:
    """A worker's term: a few large elements, many small ones, a different one for each worker."""
    draws = torch.Generator().manual_seed(rank)
    size = sum(prod(shape) for shape in SHAPES)
    return torch.empty(size).normal_(generator=draws) ** 3
