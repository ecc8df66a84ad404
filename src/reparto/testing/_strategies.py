"""StrategyContract: what every Strategy has to do, as a suite to subclass."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from reparto import strategies
from reparto.comm import CountingGroup, Meeting, ThreadGroup
from reparto.spec import Cluster, Host, Message, Profile, StrategyConfig
from reparto.strategies import Config, ParameterSet, Strategy
from reparto.testing._groups import run_members

T = TypeVar("T")


class StrategyContract:
    """What every Strategy has to do.

    Subclass it in your tests and override the fixture ``config``::

        class TestMyStrategy(StrategyContract):
            @pytest.fixture
            def config(self):
                return MyStrategy.Config()

    Tests of exact sums are skipped for a strategy that says that it is not exact.

    Attributes:
        size: Number of workers.
        num_steps: After so many steps of a quadratic problem its solution is found, nearly.
        nearly: How nearly.
    """

    size = 3

    @pytest.fixture
    def config(self) -> Config:
        """The settings under test; override this."""
        raise NotImplementedError

    def run(self, config: Config, work: Callable[[Strategy, int], T]) -> list[T]:
        """Run a function as each worker, with a live strategy and its rank."""
        meeting = Meeting(self.size)
        return run_members(
            self.size,
            lambda rank, size: CountingGroup(ThreadGroup(meeting, rank)),
            lambda group: work(config.build(group), group.rank()),
        )

    def total(self, values: list[float]) -> float:
        """What becomes of the workers' terms."""
        return sum(values[: self.size])

    # Settings.

    def test_settings_travel(self, config: Config) -> None:
        assert pickle.loads(pickle.dumps(config)) == config
        settings = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        if config.kind in strategies.available():
            spec = StrategyConfig(kind=config.kind, settings=settings)
            assert strategies.from_spec(spec) == config

    def test_settings_cannot_be_changed(self, config: Config) -> None:
        for field in dataclasses.fields(config):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(config, field.name, None)

    def test_traffic_is_told_without_starting_anything(self, config: Config) -> None:
        profile = Profile(num_parameters=1000, gradient_bytes=4000)
        traffic = config.traffic(profile, Cluster(hosts=()))
        assert all(isinstance(message, Message) for message in traffic)
        for message in traffic:
            later = message.every if message.every > 1 else 0  # a round may go on travelling
            assert 0 <= message.ready_at <= 1
            assert message.ready_at <= message.needed_at <= 1 + later

    # Gradients.

    def test_gradients_are_summed(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given = parameters(rank + 1.0)
            begin(strategy, given)
            strategy.gradients_needed(given, [])
            return [read(tensor) for tensor in given.tensors]

        self.expect(config, work, [[self.total([rank + 1.0 for rank in range(self.size)])] * 4])

    def test_gradients_are_summed_step_after_step(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given, found = parameters(0.0), []
            begin(strategy, given)
            for step in range(4):
                fill(given, (rank + 1.0) * 10**step)
                order = range(4) if (step + rank) % 2 else reversed(range(4))
                for index in order if step > 1 else ():  # not in the same order everywhere
                    strategy.on_gradient(given, index)
                strategy.gradients_needed(given, [])
                found.append(read(given.tensors[0]))
            return found

        unit = self.total([rank + 1.0 for rank in range(self.size)])
        self.expect(config, work, [[unit, unit * 10, unit * 100, unit * 1000]])

    def test_the_type_shape_and_strides_of_a_gradient_are_kept(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            image = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
            others = [torch.zeros(()), torch.zeros(0), torch.zeros(3).double()]
            shapes = [image, *others, torch.zeros(2, 2).t()]
            given = ParameterSet("odd", [shape.requires_grad_() for shape in shapes])
            for tensor in given.tensors:
                tensor.grad = torch.randn_like(tensor)
            before = [describe(tensor) for tensor in given.tensors]
            begin(strategy, given)
            strategy.gradients_needed(given, [])
            return before == [describe(tensor) for tensor in given.tensors]

        assert all(self.run(config, work))

    def test_a_gradient_that_no_worker_has_stays_none(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given = parameters(1.0)
            given.tensors[1].grad = None
            begin(strategy, given)
            strategy.gradients_needed(given, [])
            return given.tensors[1].grad is None, given.tensors[0].grad is None

        assert self.run(config, work) == [(True, False)] * self.size

    def test_a_gradient_that_some_workers_have_is_everyones(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            found = []
            given = parameters(1.0)
            begin(strategy, given)
            for owner in (0, self.size - 1):
                fill(given, 1.0)
                if rank != owner:
                    given.tensors[1].grad = None
                strategy.gradients_needed(given, [])
                found.append(read(given.tensors[1]))
            return found

        self.expect(config, work, [[1.0, 1.0]])

    def test_sparse_gradients_stay_sparse(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            found = []
            table = torch.nn.Embedding(6, 2, sparse=True)
            given = ParameterSet("sparse", [table.weight, torch.zeros(2, requires_grad=True)])
            for step in range(2):
                for tensor in given.tensors:
                    tensor.grad = None
                if rank or step:  # one worker has none at first
                    table(torch.tensor([rank, 5])).sum().backward()
                if not step:
                    begin(strategy, given)
                strategy.gradients_needed(given, [])
                grad: Any = table.weight.grad
                assert grad.is_sparse
                found.append(grad.to_dense()[:, 0].tolist())
            return found

        if self.size > 1:
            later = [float(row < self.size) for row in range(5)] + [float(self.size)]
            first = [0.0, *later[1:5], self.size - 1.0]
            self.expect(config, work, [[first, later]])

    def test_gradients_that_the_script_keeps_are_not_overwritten(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given, held, copies = parameters(0.0), [], []
            begin(strategy, given)
            for step in range(3):
                for tensor in given.tensors:
                    tensor.grad = None
                fill(given, step + 1.0)
                strategy.gradients_needed(given, [])
                grads = [tensor.grad for tensor in given.tensors if tensor.grad is not None]
                held += grads
                copies += [grad.clone() for grad in grads]
            return all(torch.equal(one, two) for one, two in zip(held, copies, strict=True))

        assert all(self.run(config, work))

    def test_numbers_ride_along(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given, found = parameters(1.0), []
            begin(strategy, given)
            for riders in ([], [rank + 1.0], [1.0, 2.0, 0.5 * rank, -1.0]):
                fill(given, 1.0)
                found.append(list(strategy.gradients_needed(given, riders)))
            return found

        if config.apart:
            pytest.skip("replicas are apart: nothing rides along")
        numbers = [float(rank) for rank in range(self.size)]
        ones = [1.0] * self.size
        last = [self.total(ones), self.total([2.0] * self.size)]
        last += [self.total([0.5 * n for n in numbers]), -self.total(ones)]
        one = [self.total([n + 1 for n in numbers])]
        assert self.run(config, work) == [[[], one, last]] * self.size

    def test_numbers_ride_along_with_nothing(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            empty = ParameterSet("empty", [])
            begin(strategy, empty)
            return list(strategy.gradients_needed(empty, [1.0]))

        if config.apart:
            pytest.skip("replicas are apart: nothing rides along")
        assert self.run(config, work) == [[self.total([1.0] * self.size)]] * self.size

    def test_what_was_started_can_be_discarded(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given = parameters(7.0)
            begin(strategy, given)
            for index in reversed(range(4)):
                strategy.on_gradient(given, index)
            strategy.discard(given)
            fill(given, rank + 1.0)
            strategy.gradients_needed(given, [])
            return [read(tensor) for tensor in given.tensors]

        self.expect(config, work, [[self.total([rank + 1.0 for rank in range(self.size)])] * 4])

    def test_sets_of_parameters_do_not_mix_and_may_grow(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            one, two = parameters(rank + 1.0, "one"), parameters(10.0 * (rank + 1), "two")
            begin(strategy, one)
            begin(strategy, two)
            strategy.gradients_needed(two, [])
            strategy.gradients_needed(one, [])
            first = read(one.tensors[0]), read(two.tensors[0])
            two.tensors.append(torch.zeros(2, requires_grad=True))
            begin(strategy, two)
            fill(two, 1.0)
            strategy.gradients_needed(two, [])
            return [*first, read(two.tensors[-1])]

        unit = self.total([rank + 1.0 for rank in range(self.size)])
        self.expect(config, work, [[unit, unit * 10, self.total([1.0] * self.size)]])

    def test_frozen_tensors_are_left_alone(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given = parameters(1.0)
            given.tensors[0].requires_grad_(False).grad = None
            begin(strategy, given)
            strategy.gradients_needed(given, [])
            return given.tensors[0].grad is None

        assert all(self.run(config, work))

    # Steps.

    def test_the_step_gives_what_the_local_step_gives(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            given = parameters(1.0)
            begin(strategy, given)
            strategy.gradients_needed(given, [])
            result = strategy.step(given, lambda: 42)
            strategy.after_step(given)
            strategy.load_state_dict(strategy.state_dict())
            strategy.finish()
            return result

        assert self.run(config, work) == [42] * self.size

    # Training.

    num_steps = 300
    nearly = 0.1

    def test_workers_come_to_the_same_result(self, config: Config) -> None:
        """Each has another part of a quadratic problem; its solution is the mean of the parts."""

        def work(strategy: Strategy, rank: int) -> Any:
            given = self.trained(strategy, rank, self.num_steps)
            strategy.settle()
            settled = [strategy.whole(tensor).detach().clone() for tensor in given.tensors]
            strategy.resume()
            strategy.finish()
            return settled

        found = self.run(config, work)
        for other in found[1:]:
            assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
        middle = (self.size - 1) / 2
        for tensor in found[0]:
            assert (tensor - middle).abs().max() < self.nearly * max(middle, 1.0)

    def test_the_bytes_of_a_step_are_those_foretold(self, config: Config) -> None:
        def work(strategy: Strategy, rank: int) -> Any:
            group: Any = strategy.group
            self.trained(strategy, rank, 64)
            before = group.bytes_sent
            self.trained(strategy, rank, 64)
            sent = group.bytes_sent - before
            strategy.settle()
            strategy.finish()
            return sent

        shapes = tuple(tuple(tensor.shape) for tensor in parameters(0.0).tensors)
        count = sum(tensor.numel() for tensor in parameters(0.0).tensors)
        profile = Profile(num_parameters=count, gradient_bytes=4 * count, shapes=shapes)
        cluster = Cluster(hosts=tuple(Host(name=str(rank)) for rank in range(self.size)))
        foretold = sum(64 * one.size_bytes / one.every for one in config.traffic(profile, cluster))
        for sent in self.means(self.run(config, work)):
            # Beside the gradients travel a few numbers a step, and a flag a tensor.
            assert foretold * 0.98 <= sent <= foretold * 1.02 + 64 * 64

    def means(self, sent: list[int]) -> list[float]:
        """What is held against the traffic foretold: each worker's bytes, unless overridden."""
        return [float(one) for one in sent]

    def trained(self, strategy: Strategy, rank: int, num_steps: int) -> ParameterSet:
        """Let a worker train as the runtime would."""
        given = self.known.setdefault((id(strategy), rank), parameters(0.0, "trained"))
        optimizer = torch.optim.SGD(given.tensors, lr=0.05)
        given.share = 1 / strategy.group.size()
        given.optimizer_ref = lambda: optimizer
        if not getattr(strategy, "_was_started", False):
            begin(strategy, given)
            strategy._was_started = True  # type: ignore[attr-defined]
        for _ in range(num_steps):
            # A forward pass looks at each parameter, and a backward pass looks again.
            for tensor in [*given.tensors, *reversed(given.tensors)]:
                grad = strategy.whole(tensor).detach() - rank
                tensor.grad = grad if strategy.apart else grad * given.share
            for index in reversed(range(len(given.tensors))):
                strategy.on_gradient(given, index)
            riders = () if strategy.apart else (0.0, 0.0, 0.0, 0.0)
            strategy.gradients_needed(given, riders)
            strategy.step(given, optimizer.step)
            given.loss_ref = partial(self.loss_of, given)
            strategy.after_step(given)
        return given

    def loss_of(self, given: ParameterSet) -> float:
        """What the workers minimise together."""
        tensors = [tensor.detach() for tensor in given.tensors]
        return float(
            sum((one - rank).square().sum() for one in tensors for rank in range(self.size))
        )

    @pytest.fixture(autouse=True)
    def _forget_workers(self) -> None:
        self.known: dict[Any, ParameterSet] = {}

    def expect(self, config: Config, work: Any, each: list[Any]) -> None:
        """Every worker gives this; where a strategy is exact."""
        if not config.exact:
            pytest.skip("not exact")
        assert self.run(config, work) == each * self.size


def parameters(value: float, name: str = "set") -> ParameterSet:
    """Four tensors of several sizes whose gradients have one value."""
    shapes = [(3,), (2, 5), (), (40, 30)]
    made = ParameterSet(name, [torch.zeros(shape, requires_grad=True) for shape in shapes])
    optimizer = torch.optim.SGD(made.tensors)
    made.optimizer_ref = lambda: optimizer
    fill(made, value)
    return made


def begin(strategy: Strategy, given: ParameterSet) -> None:
    """Hand a set of parameters to a strategy, as the runtime does."""
    strategy.adopt(given)
    strategy.start(given)


def fill(given: ParameterSet, value: float) -> None:
    """Put gradients of one value on all tensors."""
    for tensor in given.tensors:
        tensor.grad = torch.full(tensor.shape, value, dtype=tensor.dtype)


def read(tensor: Tensor) -> float:
    """The one value of a gradient."""
    assert tensor.grad is not None
    (value,) = tensor.grad.unique().tolist()
    return float(value)


def describe(tensor: Tensor) -> Any:
    """What must not change about a gradient."""
    assert tensor.grad is not None
    return tensor.grad.shape, tensor.grad.dtype, tensor.grad.stride()
