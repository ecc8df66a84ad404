"""Strategies whose replicas differ between rounds: the contract, and what is their own."""

import copy
import itertools
import threading
import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import reparto
from reparto.comm import Meeting, ThreadGroup
from reparto.errors import RefusedError, UsageError
from reparto.spec import StrategyConfig
from reparto.strategies import (
    AllReduce,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    ParameterSet,
    PostLocalSGD,
    Switch,
    from_spec,
)
from reparto.strategies._desk import Desk, Kept, Share
from reparto.strategies._gossip import neighbours
from reparto.strategies.compressors import (
    Cast,
    PowerSGD,
    Quantize,
    RandomK,
    TopK,
    Uncompressed,
)
from reparto.testing import StrategyContract, run_members, run_workers


class TestLocalSGD(StrategyContract):
    @pytest.fixture(
        params=[
            {},
            {"sync_every": 1},
            {"sync_every": 4, "compressor": Quantize.Config(bits=4, block=64)},
        ],
        ids=["default", "each step", "4 bits"],
    )
    def config(self, request):
        return LocalSGD.Config(**request.param)


class TestLocalSGDOfTheLargest(StrategyContract):
    nearly = 0.5  # at the solution drifts cancel, but each is owed on its own

    @pytest.fixture
    def config(self):
        return LocalSGD.Config(sync_every=4, compressor=TopK.Config(fraction=0.5))


class TestPostLocalSGD(StrategyContract):
    @pytest.fixture(params=[0, 10])
    def config(self, request):
        return PostLocalSGD.Config(begin_after=request.param, sync_every=8)


class TestDiLoCo(StrategyContract):
    @pytest.fixture(
        params=[
            {"sync_every": 16},
            {"sync_every": 16, "fragments": 4},
            {"sync_every": 16, "fragments": 4, "overlap": 2},
            {"sync_every": 16, "fragments": 2, "overlap": 1, "moments": "level"},
            {"sync_every": 16, "begin_after": 5, "compressor": Quantize.Config(bits=4, block=64)},
        ],
        ids=["whole", "streamed", "overlapped", "level", "warm"],
    )
    def config(self, request):
        return DiLoCo.Config(**request.param)

    num_steps = 1000


class TestGossip(StrategyContract):
    size = 5

    @pytest.fixture(params=["ring", "exponential", "random"])
    def config(self, request):
        return Gossip.Config(graph=request.param)

    def means(self, sent):
        return [sum(sent) / len(sent)]  # of an odd number, one worker a round talks to nobody


class TestCompressedGossip(StrategyContract):
    @pytest.fixture
    def config(self):
        return Gossip.Config(graph="ring", compressor=Quantize.Config(bits=8, block=64))


class TestAsyncServer(StrategyContract):
    num_steps = 400
    nearly = 0.3  # steps of workers with other targets follow each other

    @pytest.fixture(
        params=[
            {"mode": "async"},
            {"mode": "async", "servers": 2},
            {"mode": "stale", "bound": 0},
            {"mode": "stale", "bound": 2, "compressor": Quantize.Config(block=64)},
            {
                "mode": "stale",
                "servers": 3,
                "compressor": TopK.Config(fraction=0.5, warmup_steps=9),
            },
        ],
        ids=["async", "two servers", "in step", "8 bits", "topk"],
    )
    def config(self, request):
        # With damping, whoever is less stale pulls harder, and here all pull in other directions.
        return ParameterServer.Config(**request.param, damping=0.0)

    # A server wants parameters of one type, with an optimizer. Bytes: servers send more.
    test_the_type_shape_and_strides_of_a_gradient_are_kept = None
    test_a_gradient_that_no_worker_has_stays_none = None
    test_sparse_gradients_stay_sparse = None
    test_numbers_ride_along_with_nothing = None
    test_the_step_gives_what_the_local_step_gives = None
    test_the_bytes_of_a_step_are_those_foretold = None

    def test_everybody_is_heard(self, config):
        def work(strategy, rank):
            self.trained(strategy, rank, 20)
            strategy.settle()
            clocks = [list(kept.clocks) for kept in strategy.desk.kept.values()]
            strategy.finish()
            return clocks

        for clocks in self.run(config, work):
            assert all(each == [20] * self.size for each in clocks)

    def test_the_state_comes_to_every_worker(self, config):
        def work(strategy, rank):
            given = ParameterSet("momentum", [torch.zeros(3).requires_grad_() for _ in range(4)])
            optimizer = torch.optim.SGD(given.tensors, lr=0.1, momentum=0.9)
            given.optimizer_ref = lambda: optimizer
            for tensor in given.tensors:
                tensor.grad = torch.ones_like(tensor)
            strategy.start(given)
            strategy.gradients_needed(given, ())
            strategy.step(given, optimizer.step)
            strategy.settle()
            strategy.gather_state(given)
            strategy.finish()
            return [len(optimizer.state[tensor]) for tensor in given.tensors]

        assert self.run(config, work) == [[1] * 4] * self.size

    def test_a_closure_is_refused(self, config):
        def work(strategy, rank):
            given = self.trained(strategy, rank, 1)
            given.has_closure = True
            with pytest.raises(RefusedError, match="closure"):
                strategy.step(given, lambda: None)
            strategy.settle()
            strategy.finish()
            return True

        assert all(self.run(config, work))


def test_nobody_is_further_ahead_than_the_bound():
    """One worker is slow, and begins when the others have gone ahead; they wait for it."""
    seen, is_ahead = [], threading.Event()

    def work(group):
        strategy = ParameterServer.Config(mode="stale", bound=2).build(group)
        tensor = torch.zeros(3).requires_grad_()
        optimizer = torch.optim.SGD([tensor], lr=0.1)
        given = ParameterSet("set", [tensor])
        given.optimizer_ref = lambda: optimizer
        tensor.grad = torch.ones(3)
        strategy.start(given)
        for _ in range(12):
            if group.rank() == 2:
                assert is_ahead.wait(60)
                time.sleep(0.02)
            strategy.step(given, optimizer.step)
            if group.rank() == 0:
                (kept,) = strategy.desk.kept.values()
                seen.append(max(kept.clocks) - min(kept.clocks))
                if seen[-1] >= 2:
                    is_ahead.set()
        strategy.settle()
        strategy.finish()
        return tensor.detach().clone()

    meeting = Meeting(3, timeout_s=60)
    found = run_members(3, lambda rank, size: ThreadGroup(meeting, rank), work)
    assert max(seen) in (2, 3)  # a gradient of the one ahead may have come already
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_mean_of_rounds_that_leave_out_the_slowest_is_the_same_everywhere():
    """Training goes on from the parameters of the server, and not from the mean."""

    def work(group):
        strategy = ParameterServer.Config(backup=1, batch="worker", average=4).build(group)
        tensor = torch.zeros(3).requires_grad_()
        optimizer = torch.optim.SGD([tensor], lr=0.1)
        given = ParameterSet("set", [tensor])
        given.optimizer_ref, given.share = lambda: optimizer, 1 / 3
        tensor.grad = torch.ones(3)
        strategy.start(given)
        found = []
        for _ in range(2):
            for _ in range(6):
                strategy.step(given, optimizer.step)
                strategy.after_step(given)
            strategy.settle()
            strategy.settle()
            shown = tensor.detach().clone()
            strategy.resume()
            found.append((shown, tensor.detach().clone()))
        strategy.finish()
        return found

    meeting = Meeting(3, timeout_s=60)
    first, *others = run_members(3, lambda rank, size: ThreadGroup(meeting, rank), work)
    for number, (shown, trained) in enumerate(first):
        assert all(torch.equal(shown, other[number][0]) for other in others)
        assert all(torch.equal(trained, other[number][1]) for other in others)
        assert (trained < shown).all() and (shown < 0).all()  # a mean lags behind
    assert (first[1][1] < first[0][1]).all()


def desk_of(config, size, lr=0.1, kind=torch.optim.SGD):
    """A server's desk that keeps two zeros, and a push of a gradient of ones."""
    desk, tensor = Desk(config, size), torch.zeros(2).requires_grad_()
    compressor = Uncompressed(None)
    share = Share(0, 0, [0], ParameterSet("set", [tensor]))
    desk.keep(share, kind([tensor], lr=lr), compressor)
    there = torch.ones(1, dtype=torch.uint8)  # it has a gradient

    def push(rank, version, value):
        payload = torch.cat([compressor.encode(torch.full((2,), value), ""), there])
        desk.push(0, rank, version, 1 / size, payload, compressor)
        desk.ask(0, rank, True)

    return desk, push


def test_stale_gradients_make_smaller_steps():
    def moved(damping):
        config = ParameterServer.Config(
            mode="async", damping=damping, batch="worker", lookahead=0.0, warmup=0
        )
        desk, push = desk_of(config, 2, kind=torch.optim.Adagrad)  # has no momentum
        states = [desk.kept[0].state()[1][0].item()]
        for _ in range(6):
            push(1, 0, 1.0)  # pulled before the first of them
            states.append(desk.kept[0].state()[1][0].item())
        return [before - after for before, after in itertools.pairwise(states)]

    free, damped = moved(0.0), moved(1.0)
    shrunk = [two / one for one, two in zip(free, damped, strict=True)]
    assert shrunk == pytest.approx([1, 1, 2 / 3, 2 / 4, 2 / 5, 2 / 6])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_workers_compute_where_momentum_will_have_led(kind):
    config = ParameterServer.Config(mode="async", batch="worker", lookahead=1.0, warmup=0)
    desk, push = desk_of(config, 4, kind=kind)
    replies = []
    desk.reply = lambda target, version, flat: replies.append(flat[0].item())
    for rank in range(4):
        push(rank, rank, 1.0)
    here = desk.pull(0, 0, False)[1][0].item()
    assert here < 0
    assert replies[-1] < here * 1.5  # further on, the way that all are going
    momentum = 1 - 0.1 / (4 * 2.0)
    (group,) = desk.kept[0].optimizer.param_groups
    found = group["betas"][0] if "betas" in group else group["momentum"]
    assert found == pytest.approx(momentum)
    (own,) = desk.kept[0].followed.param_groups
    assert own.get("momentum", 0) == 0  # the script's optimizer is as it was


def test_a_round_ends_without_the_slowest_and_its_gradient_is_left_out():
    desk, push = desk_of(ParameterServer.Config(backup=1), 4)
    replies = []
    desk.reply = lambda target, version, flat: replies.append((target, version, flat[0].item()))
    push(0, 0, 1.0)
    push(3, 0, 2.0)
    assert replies == []
    push(1, 0, 3.0)  # the third of four: the mean of 1, 2 and 3 is stepped by
    assert [one[:2] for one in replies] == [(0, 1), (3, 1), (1, 1)]
    assert replies[0][2] == pytest.approx(-0.2)
    push(2, 0, 100.0)  # too late; it gets what the others have
    assert replies[-1][:2] == (2, 1)
    assert replies[-1][2] == pytest.approx(-0.2)
    assert desk.kept[0].num_late == 1


def test_who_is_behind_does_not_wait_for_those_who_may_wait_for_it():
    """Two of three are a step ahead and about to decide by a number: all sum their terms first."""
    desk, push = desk_of(ParameterServer.Config(backup=1), 3)
    replies = []
    desk.reply = lambda target, version, flat: replies.append((target, version))
    for version in range(2):
        push(0, version, 1.0)
        push(1, version, 1.0)
    push(2, 0, 1.0)  # late
    replies.clear()
    push(2, 2, 1.0)
    assert replies == [(2, 2)]  # it goes on, and its gradient is kept for the round that comes
    assert desk.kept[0].version == 2
    push(0, 2, 1.0)
    assert replies == [(2, 2), (0, 3)]


def test_a_round_ends_without_those_who_have_left():
    desk, push = desk_of(ParameterServer.Config(backup=1), 4)
    replies = []
    desk.reply = lambda target, version, flat: replies.append(target)
    push(2, 0, 1.0)
    desk.rest(0)
    assert replies == []  # one of the others is still waited for
    desk.rest(1)
    assert replies == [2]
    for rank in (0, 1):
        desk.pull(0, rank, False)  # they are back
    push(2, 1, 1.0)
    assert replies == [2]


class TestSwitch(StrategyContract):
    """Exact as long as the loss falls; these tests but for the training end before it fires."""

    nearly = 0.5  # whose gradient came last is seen

    @pytest.fixture(params=[0.0, 0.5])
    def config(self, request):
        return Switch.Config(window=20, threshold=request.param, batch="worker")

    def expect(self, config, work, each):
        assert self.run(config, work) == each * self.size

    def test_numbers_ride_along(self, config):
        pytest.skip("they do until it fires")

    test_numbers_ride_along_with_nothing = test_numbers_ride_along

    def test_the_bytes_of_a_step_are_those_foretold(self, config):
        super().test_the_bytes_of_a_step_are_those_foretold(Switch.Config(threshold=-1.0))

    def test_it_fires_when_the_loss_has_flattened_and_says_when(self):
        def work(strategy, rank):
            told = []
            strategy.tell = told.append
            self.trained(strategy, rank, 200)
            strategy.settle()
            strategy.finish()
            return strategy.fired_at, strategy.apart, told

        (first, *others) = self.run(Switch.Config(window=10, threshold=0.2, batch="worker"), work)
        fired_at, apart, told = first
        assert apart
        assert 20 <= fired_at < 200
        assert told == [f"switch: the loss has flattened; asynchronous after step {fired_at}"]
        assert [one[:2] for one in others] == [first[:2]] * 2

    def test_it_stays_exact_while_the_loss_falls(self):
        def work(strategy, rank):
            told = []
            strategy.tell = told.append
            self.trained(strategy, rank, 30)  # the loss falls by a tenth a step
            strategy.finish()
            return strategy.fired_at, told[0]

        for fired_at, told in self.run(Switch.Config(window=5, threshold=1e-3), work):
            assert fired_at is None
            assert "never flattened in 30 steps" in told


class TestCompressedAllReduce(StrategyContract):
    @pytest.fixture(
        params=[
            Cast.Config(),
            Quantize.Config(),
            Quantize.Config(bits=1),
            TopK.Config(fraction=0.2),
            RandomK.Config(fraction=0.2),
            PowerSGD.Config(),
        ],
        ids=["cast", "8 bits", "1 bit", "topk", "randomk", "powersgd"],
    )
    def config(self, request):
        return AllReduce.Config(compressor=request.param)


def train(epochs=4, batch_norm=True):
    """An ordinary script, as a function."""
    torch.manual_seed(0)
    x = torch.randn(500, 10)
    y = (x @ torch.randn(10, 3)).argmax(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    norm = nn.BatchNorm1d(32) if batch_norm else nn.Identity()
    model = nn.Sequential(nn.Linear(10, 32), norm, nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer, loader = reparto.prepare(model, optimizer, loader)
    losses, scores, num_steps = [], [], 0
    for _ in range(epochs):
        model.train()
        total = 0.0
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
            num_steps += 1
        losses.append(total / 500)
        model.eval()
        with torch.no_grad():
            correct = 0
            for inputs, labels in loader:
                correct += (model(inputs).argmax(1) == labels).sum().item()
        scores.append(correct)
    state = {name: one.clone() for name, one in model.state_dict().items()}
    return {
        "losses": losses, "scores": scores, "state": state, "num_steps": num_steps,
        "is_low": losses[-1] < 0.6,
    }  # fmt: skip


@pytest.mark.parametrize("sync_every", [2, 3])
def test_an_evaluation_leaves_averaged_moments_as_they_are(sync_every):
    def work():
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(torch.randn(6, 4)).sum().item()
        return [float(one["exp_avg_sq"].abs().sum()) for one in optimizer.state.values()]

    settings = {"sync_every": sync_every, "moments": "average", "compressor": "quantize"}
    found = run_workers(2, work, strategy=StrategyConfig(kind="local-sgd", settings=settings))
    assert min(min(one) for one in found) > 0


def test_long_rounds_need_no_other_setting_unless_they_are_adapted():
    assert LocalSGD.Config(sync_every=512).sync_every == 512
    with pytest.raises(UsageError, match="rounds of 512 to 256"):
        LocalSGD.Config(sync_every=512, adapt=True)


@pytest.mark.parametrize("compressor", [RandomK.Config(), PowerSGD.Config()])
def test_gossip_refuses_what_only_adds_up_over_all(compressor):
    with pytest.raises(UsageError, match="adds up over all workers"):
        Gossip.Config(graph="ring", compressor=compressor)


KINDS = [
    ("local-sgd", {"sync_every": 4}),
    ("local-sgd", {"sync_every": 4, "moments": "average", "adapt": True}),
    ("local-sgd", {"sync_every": 4, "moments": "reset"}),
    ("post-local-sgd", {"sync_every": 4, "begin_after": 7}),
    ("diloco", {"sync_every": 8}),
    ("diloco", {"sync_every": 4, "moments": "level", "outer_momentum": 0.5}),
    ("diloco", {"sync_every": 8, "fragments": 2, "compressor": "quantize", "begin_after": 3}),
    ("gossip", {}),
    ("gossip", {"graph": "random"}),
    ("gossip", {"graph": "ring", "compressor": "quantize"}),
]


@pytest.mark.parametrize(("kind", "settings"), KINDS, ids=lambda one: str(one)[:40])
def test_an_ordinary_script_learns_and_is_evaluated_alike(kind, settings):
    found = run_workers(3, train, strategy=StrategyConfig(kind=kind, settings=settings))
    first = found[0]
    assert first["scores"][-1] > 430
    for other in found[1:]:
        assert other["scores"] == first["scores"]
        assert other["is_low"] == first["is_low"]
        for name, tensor in first["state"].items():
            if tensor.is_floating_point():
                assert torch.equal(tensor, other["state"][name]), name


def test_one_local_step_of_sgd_is_all_reduce():
    """Averaging after each step of plain SGD is a step with the mean gradient."""

    def script():
        torch.manual_seed(0)
        x, y = torch.randn(90, 4), torch.randn(90, 1)
        loader = DataLoader(TensorDataset(x, y), batch_size=20)  # slices of 7, 7 and 6 rows
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = reparto.prepare(model, optimizer, loader)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        model.eval()
        return model.weight.detach().clone()

    exact = run_workers(3, script)[0]
    settings = {"sync_every": 1}
    local = run_workers(3, script, strategy=StrategyConfig(kind="local-sgd", settings=settings))[0]
    torch.testing.assert_close(local, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["all-reduce", "local-sgd"])
def test_a_batch_a_worker_makes_fewer_steps(kind):
    settings = {"batch": "worker", "rate": 1.5, "rate_warmup": 2}
    found = run_workers(4, train, strategy=StrategyConfig(kind=kind, settings=settings))
    # 16 batches of 32 (the last has 20) become 4 steps of 4 batches.
    assert [one["num_steps"] for one in found] == [16] * 4
    assert found[0]["scores"] == found[3]["scores"]


def test_a_batch_a_worker_is_a_larger_batch():
    """All-reduce over three workers with a batch each is the script with a batch three times."""

    def script(batch_size):
        torch.manual_seed(0)
        x, y = torch.randn(96, 4), torch.randn(96, 1)
        loader = DataLoader(TensorDataset(x, y), batch_size=batch_size)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = reparto.prepare(model, optimizer, loader)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return model.weight.detach().clone()

    large = run_workers(3, lambda: script(24))[0]
    settings = {"batch": "worker", "rate": 1.0}
    strategy = StrategyConfig(kind="all-reduce", settings=settings)
    merged = run_workers(3, lambda: script(8), strategy=strategy)[0]
    torch.testing.assert_close(merged, large)


@pytest.mark.parametrize("kind", ["all-reduce", "diloco", "local-sgd", "parameter-server"])
def test_evaluations_see_a_mean_and_training_goes_on_as_it_was(kind):
    def script():
        torch.manual_seed(0)
        x, y = torch.randn(96, 4), torch.randn(96, 1)
        loader = DataLoader(TensorDataset(x, y), batch_size=4)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        model, optimizer, loader = reparto.prepare(model, optimizer, loader)
        trained, shown = [], []
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            trained.append(model.weight.detach().clone())
            shown.append(model.state_dict()["weight"].clone())
        return torch.stack(trained).flatten(1), torch.stack(shown).flatten(1)

    def run(average):
        settings = {"batch": "worker", "average": average}
        if kind == "diloco":
            settings |= {"sync_every": 1, "show": "round"}
        if kind == "local-sgd":
            settings |= {"sync_every": 1}
        found = run_workers(2, script, strategy=StrategyConfig(kind=kind, settings=settings))
        assert torch.equal(found[0][1], found[1][1])
        return found[0]

    trained, shown = run(0)
    assert torch.equal(trained, shown)
    same, mean = run(4)
    assert torch.equal(same, trained)
    expected = trained[0]
    for number, now in enumerate(trained[1:], 2):
        expected = expected + (now - expected) * max(1 / 4, 1 / number)
    torch.testing.assert_close(mean[-1], expected)


def test_batches_that_are_loaded_whole_go_to_one_worker_each():
    """Of 5 batches over 3 workers, the second step has 2, and one worker has none."""

    def script():
        data = [torch.full((2,), float(index)) for index in range(10)]
        loader = DataLoader(data, batch_size=2, collate_fn=lambda rows: torch.stack(rows) * 1)
        _, loader = reparto.prepare(nn.Linear(1, 1), loader)
        return [(len(batch), batch.sum().item()) for batch in loader]

    strategy = StrategyConfig(kind="all-reduce", settings={"batch": "worker"})
    for found in run_workers(3, script, strategy=strategy):
        assert found == [(6, 2.0 * sum(range(6))), (4, 2.0 * sum(range(6, 10)))]


def test_rates_are_the_scripts_own_between_steps():
    def script():
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = reparto.prepare(model, optimizer)
        before = model.weight.detach().clone()
        model(torch.ones(4, 2)).mean().backward()
        optimizer.step()
        return optimizer.param_groups[0]["lr"], (before - model.weight.detach()).mean().item()

    strategy = StrategyConfig(kind="all-reduce", settings={"rate": 3.0, "rate_warmup": 0})
    for rate, moved in run_workers(2, script, strategy=strategy):
        assert rate == 0.1
        assert moved == pytest.approx(0.3)


def test_rates_follow_the_batches_of_a_step_unless_they_are_set():
    assert AllReduce.Config().rate_at(0, 16) == 1.0
    larger = AllReduce.Config(batch="worker")
    assert larger.rate_at(100, 16) == 16.0
    assert 1.0 < larger.rate_at(0, 16) < larger.rate_at(10, 16) < 16.0
    assert AllReduce.Config(batch="worker", rate=2.0).rate_at(100, 16) == 2.0
    assert ParameterServer.Config(batch="worker", mode="async").rate_at(100, 16) == 1.0
    assert ParameterServer.Config(batch="worker").rate_at(100, 16) == 16.0
    # Outer momentum of 0.75 makes four times the way.
    assert DiLoCo.Config(batch="worker", outer_momentum=0.75).rate_at(100, 16) == 4.0
    assert DiLoCo.Config(outer_momentum=0.75).rate_at(0, 16) == 0.25  # nothing to warm up for
    assert AllReduce.Config(rate=0.5).rate_at(0, 16) == 0.5
    assert larger.rate_at(62, 16) < 16.0 == larger.rate_at(64, 16)  # four steps a worker
    assert larger.rate_at(14, 4) < 4.0 == larger.rate_at(16, 4)
    assert AllReduce.Config(batch="worker", rate_warmup=0).rate_at(0, 16) == 16.0
    assert DiLoCo.Config(rate=1.0, begin_after=100).rate_at(0, 4) == 1.0
    with pytest.raises(UsageError, match="rate_warmup=-1"):
        AllReduce.Config(rate_warmup=-1)


def test_momentum_stands_outside_the_more_the_shorter_rounds_are():
    found = {every: DiLoCo.Config(sync_every=every) for every in (1, 2, 7, 8, 64)}
    assert [one.outer for one in found.values()] == [0.9, 0.8, 0.8, 0.7, 0.7]
    assert [one.inner for one in found.values()] == [0.0, 0.5, 0.5, 0.5, 0.5]
    assert DiLoCo.Config(inner_momentum="keep").inner is None


@pytest.mark.parametrize(("bits", "is_told"), [(1, True), (8, False)])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_rough_gradients_for_adam_are_warned_of(kind, bits, is_told):
    def work(group):
        strategy = AllReduce.Config(compressor=Quantize.Config(bits=bits)).build(group)
        told = []
        strategy.tell = told.append
        tensor = torch.zeros(4, requires_grad=True)
        optimizer = kind([tensor], lr=0.1)
        strategy.start(set_of([tensor], optimizer))
        strategy.start(set_of([tensor], optimizer))
        return len(told)

    meeting = Meeting(2, timeout_s=60)
    found = run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work)
    assert found == [int(is_told and kind is torch.optim.Adam)] * 2


def test_somebody_must_be_waited_for():
    config = ParameterServer.Config(backup=2)
    config.check(3)
    with pytest.raises(UsageError, match="backup=2 with 2 workers"):
        config.check(2)


def drifted(config, num_steps, look):
    """Two workers of 32 numbers that drift their own ways; what ``look`` sees of each."""

    def work(group):
        strategy = config.build(group)
        tensor = torch.zeros(32).requires_grad_()
        given = ParameterSet("set", [tensor])
        given.share = 1 / 2
        strategy.start(given)
        draws = torch.Generator().manual_seed(group.rank())  # threads share torch's own
        for _ in range(num_steps):
            with torch.no_grad():
                tensor += torch.randn(32, generator=draws)
            strategy.after_step(given)
        return look(strategy, tensor)

    meeting = Meeting(2, timeout_s=60)
    return run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work)


def settled(strategy, tensor):
    before = strategy.group.sum(tensor.detach().clone()) / 2
    own = tensor.detach().clone()
    strategy.settle()
    shown = tensor.detach().clone()
    strategy.resume()
    return before, shown, own, tensor.detach().clone()


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_the_mean_of_all_replicas_is_shown(num_steps):
    """Also where compression has left something in the workers."""
    config = LocalSGD.Config(sync_every=2, compressor=Quantize.Config(bits=1, block=8))
    one, two = drifted(config, num_steps, settled)
    torch.testing.assert_close(one[1], one[0])
    assert torch.equal(one[1], two[1])


@pytest.mark.parametrize("num_steps", [1, 2])
def test_a_round_is_shown_where_that_is_asked_for(num_steps):
    compressor = Quantize.Config(bits=1, block=8)
    config = LocalSGD.Config(sync_every=2, show="round", compressor=compressor)
    one, two = drifted(config, num_steps, settled)
    assert torch.equal(one[1], two[1])
    assert one[1].abs().unique().numel() <= 4  # one scale a block: it came as signs
    assert not torch.equal(one[3], two[3])  # and they go on from what is left in each


def test_what_the_script_does_to_parameters_is_seen_and_stays():
    def clamped(strategy, tensor):
        with torch.no_grad():
            tensor.clamp_(-0.1, 0.1)
        strategy.settle()
        seen = tensor.detach().abs().max()
        with torch.no_grad():
            tensor.zero_()
        strategy.resume()
        return float(seen), float(tensor.detach().abs().max())

    found = drifted(LocalSGD.Config(sync_every=1), 1, clamped)
    assert found == [(pytest.approx(0.1), 0.0)] * 2


@pytest.mark.parametrize("kind", [LocalSGD, DiLoCo])
def test_momentum_of_top_k_does_not_grow_what_is_left(kind):
    compressor = TopK.Config(fraction=0.1, momentum=0.9)
    config = kind.Config(sync_every=1, compressor=compressor, average=0)
    (seen, _) = drifted(config, 30, lambda strategy, tensor: float(tensor.detach().abs().max()))
    assert seen < 200


@pytest.mark.parametrize("name", ["sgd", "adam", "two groups"])
def test_state_that_is_checkpointed_is_that_of_the_scripts_own_momentum(name):
    """A constant gradient: the buffers that a server tells are those of training alone."""
    weights = [torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)]
    if name == "adam":
        optimizer = torch.optim.Adam(weights)
    elif name == "sgd":
        optimizer = torch.optim.SGD(weights, 1e-3, momentum=0.9)
    else:
        groups = [{"params": weights[:1]}, {"params": weights[1:], "momentum": 0.5}]
        optimizer = torch.optim.SGD(groups, 1e-3, momentum=0.9)
    alone = copy.deepcopy(optimizer)
    share = Share(0, 0, [0, 1], set_of(weights, optimizer))
    kept = Kept(share, optimizer, 4, torch.zeros(6))
    for _ in range(2000):
        kept.step(torch.ones(6), [1, 1], 1.0, memory=1 - 1 / 8)
        for group in alone.param_groups:
            for one in group["params"]:
                one.grad = torch.ones(3)
        alone.step()
    theirs = [alone.state[one] for group in alone.param_groups for one in group["params"]]
    for tensor, expected in zip(kept.tensors, theirs, strict=True):
        found = kept.state_of(tensor)
        for key in ("momentum_buffer", "exp_avg"):
            if expected.get(key) is not None:
                torch.testing.assert_close(found[key], expected[key], rtol=1e-2, atol=0)


def set_of(tensors, optimizer):
    found = ParameterSet("set", tensors)
    found.optimizer_ref = lambda: optimizer
    return found


@pytest.mark.parametrize("bits", [1, 8])
@pytest.mark.parametrize("kind", ["diloco", "local-sgd"])
def test_what_compression_leaves_out_stays_in_the_worker(kind, bits):
    """So that nothing is lost: anchor and leftovers add up to what all workers have."""
    compressor = Quantize.Config(bits=bits, block=8)
    config = (
        DiLoCo.Config(sync_every=1, outer_momentum=0.0, compressor=compressor)
        if kind == "diloco"
        else LocalSGD.Config(sync_every=1, show="round", compressor=compressor)
    )

    def look(strategy, tensor):
        parts = (
            strategy.replicas["set"].parts if kind == "local-sgd" else strategy.fragments["set"]
        )
        owed = strategy.compressor._owed  # by the sums of chunks
        sums = owed[f"{parts[0].key}/sum of {strategy.group.rank()}"]
        own = tensor.detach().clone()
        strategy.settle()  # shows what is alike
        shown = tensor.detach().clone()
        strategy.resume()
        assert torch.equal(tensor, own)
        draws = torch.Generator().manual_seed(strategy.group.rank())
        moved = torch.randn(32, generator=draws)  # as `drifted` did
        return moved, own, parts[0].anchor.clone(), sums, shown

    found = drifted(config, 1, look)
    anchor = found[0][2]
    assert torch.equal(anchor, found[1][2])
    assert torch.equal(found[0][4], found[1][4])
    left = sum(here - anchor for _, here, *_ in found) / 2
    sums = torch.cat([one[3] for one in found])
    torch.testing.assert_close(anchor + left + sums, (found[0][0] + found[1][0]) / 2)


def test_updates_by_hand_are_refused():
    def script():
        weight = torch.zeros(4, 1, requires_grad=True)
        for _ in range(2):
            x = reparto.shard(torch.ones(6, 4))
            (x @ weight - 1).square().mean().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
                weight.grad = None

    with pytest.raises(RefusedError, match="without an optimizer"):
        run_workers(2, script, strategy=StrategyConfig(kind="local-sgd"))


def test_a_masked_loss_is_each_workers_own_mean():
    """Where replicas are apart, a mean over unmasked labels divides by the worker's own count."""

    def script():
        torch.manual_seed(0)
        x, y = torch.randn(8, 4), torch.tensor([0, 1, -100, -100, -100, 1, 0, -100])
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = reparto.prepare(model, optimizer)
        for _ in range(2):  # the first step parts the replicas, the second is looked at
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(reparto.shard(x)), reparto.shard(y))
            loss.backward()
            weight, grad = model.weight.detach().clone(), model.weight.grad.clone()
            bias = model.bias.detach().clone()
            optimizer.step()
        mine = slice(0, 4) if reparto.rank() == 0 else slice(4, 8)
        rows, labels = x[mine], y[mine]
        kept = labels >= 0
        chances = torch.softmax(rows @ weight.t() + bias, 1)[kept]
        errors = chances - nn.functional.one_hot(labels[kept], 2)
        own = errors.t() @ rows[kept] / kept.sum()
        alone = -chances[range(len(chances)), labels[kept]].log().mean()
        return grad, own, loss.item() * 1, float(alone)

    strategy = StrategyConfig(kind="local-sgd", settings={"sync_every": 4})
    for grad, own, loss, alone in run_workers(2, script, strategy=strategy):
        torch.testing.assert_close(grad, own)
        assert f"{loss:.5f}" == f"{alone:.5f}"


@pytest.mark.parametrize("graph", ["ring", "exponential", "random"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 16])
def test_whoever_i_name_names_me(graph, size):
    config = Gossip.Config(graph=graph)
    for number in range(6):
        named = {rank: neighbours(config, rank, size, number) for rank in range(size)}
        for rank, peers in named.items():
            assert rank not in peers
            assert all(rank in named[peer] for peer in peers)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("local-sgd", {"sync_every": 0}),
        ("local-sgd", {"moments": "lose"}),
        ("post-local-sgd", {"begin_after": -1}),
        ("diloco", {"fragments": 100}),
        ("diloco", {"overlap": 64}),
        ("diloco", {"keep": 2}),
        ("gossip", {"graph": "star"}),
        ("gossip", {"graph": "random", "compressor": "topk"}),
        ("gossip", {"sync_every": 0}),
        ("gossip", {"average": 4}),
        ("sharded", {"average": 4}),
        ("switch", {"average": 4}),
        ("diloco", {"average": 4}),
        ("parameter-server", {"average": 4, "mode": "async"}),
        ("parameter-server", {"average": 4, "dedicated": True}),
        ("all-reduce", {"average": -4}),
        ("all-reduce", {"rate": -1.0}),
        ("all-reduce", {"rate": 0}),
        ("all-reduce", {"bucket_bytes": 0}),
        ("parameter-server", {"servers": 0}),
        ("parameter-server", {"compressor": "quantize"}),
        ("parameter-server", {"mode": "async", "compressor": "randomk"}),
    ],
)
def test_bad_settings_are_refused(kind, settings):
    with pytest.raises(UsageError):
        from_spec(StrategyConfig(kind=kind, settings=settings))


@pytest.mark.parametrize("kind", ["local-sgd", "post-local-sgd", "diloco", "gossip"])
def test_they_say_what_they_change(kind):
    config = from_spec(StrategyConfig(kind=kind))
    assert config.changes
    assert not config.exact


MEAN = "evaluations see a mean"


@pytest.mark.parametrize(
    ("kind", "settings", "shows"),
    [
        ("all-reduce", {}, True),
        ("local-sgd", {}, True),
        ("diloco", {"show": "round"}, True),
        ("parameter-server", {}, True),
        ("parameter-server", {"backup": 1}, True),
        ("diloco", {}, False),
        ("gossip", {}, False),
        ("sharded", {}, False),
        ("switch", {}, False),
        ("parameter-server", {"mode": "async"}, False),
        ("parameter-server", {"dedicated": True}, False),
    ],
)
def test_they_say_what_settings_change_and_no_more(kind, settings, shows):
    told = from_spec(StrategyConfig(kind=kind, settings={"batch": "worker", **settings})).changes
    assert "a step is made of one batch a worker" in told
    assert (MEAN in told) is shows


@pytest.mark.parametrize("kind", ["all-reduce", "local-sgd", "post-local-sgd", "diloco"])
def test_they_say_that_they_compress(kind):
    config = from_spec(StrategyConfig(kind=kind, settings={"compressor": "topk"}))
    assert "lossily (the largest 1 % of the elements, the rest owed)" in config.changes


def test_gossip_says_first_which_compressors_it_never_takes():
    with pytest.raises(UsageError, match="adds up over all workers"):
        Gossip.Config(compressor=PowerSGD.Config())


def adversaries():
    """As GANs do it: one model is frozen while the other learns."""
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    loader = DataLoader(TensorDataset(x), batch_size=6)
    one, two = nn.Linear(4, 4), nn.Linear(4, 1)
    first = torch.optim.SGD(one.parameters(), lr=0.05)
    second = torch.optim.SGD(two.parameters(), lr=0.05)
    one, two, first, second, loader = reparto.prepare(one, two, first, second, loader)
    for (inputs,) in loader:
        for flag, optimizer in ((True, second), (False, first)):
            two.requires_grad_(flag)
            optimizer.zero_grad()
            sign = 1 if flag else -1
            (sign * (two(one(inputs)) - inputs.sum(1, keepdim=True))).square().mean().backward()
            optimizer.step()
    return {**one.state_dict(), **{f"two.{k}": v for k, v in two.state_dict().items()}}


def test_frozen_and_thawed_layers_do_not_end_a_round():
    strategy = StrategyConfig(kind="local-sgd", settings={"sync_every": 4})
    found = run_workers(3, adversaries, strategy=strategy)
    exact = run_workers(3, adversaries)[0]
    for name, tensor in exact.items():
        assert torch.equal(found[0][name], found[1][name]), name
        assert torch.equal(found[0][name], found[2][name]), name
        torch.testing.assert_close(found[0][name], tensor, atol=0.2, rtol=0.2)


def few_steps(then=None):
    def script():
        torch.manual_seed(0)
        x = torch.randn(40, 4)
        loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
        model = nn.Linear(4, 1)
        begin = {name: one.clone() for name, one in model.state_dict().items()}
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = reparto.prepare(model, optimizer, loader)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        if then == "load":
            model.load_state_dict(begin)
        model.eval()
        return begin["weight"], model.weight.detach().clone()

    return script


@pytest.mark.parametrize("kind", ["local-sgd", "diloco", "gossip"])
def test_steps_of_a_round_that_never_ended_count(kind):
    for begin, weight in run_workers(2, few_steps(), strategy=StrategyConfig(kind=kind)):
        assert (weight - begin).abs().max() > 0.1


@pytest.mark.parametrize("kind", ["local-sgd", "diloco", "gossip"])
def test_parameters_that_the_script_loads_are_taken(kind):
    for begin, weight in run_workers(2, few_steps("load"), strategy=StrategyConfig(kind=kind)):
        assert torch.equal(weight, begin)


def test_servers_leave_parameters_without_a_gradient_alone():
    def work(group):
        strategy = ParameterServer.Config(mode="stale", warmup=0).build(group)
        frozen, trained = torch.ones(3), torch.ones(3).requires_grad_()
        optimizer = torch.optim.AdamW([frozen, trained], lr=0.1, weight_decay=0.5)
        given = ParameterSet("set", [frozen, trained])
        given.optimizer_ref = lambda: optimizer
        trained.grad = torch.ones(3)
        strategy.start(given)
        for _ in range(3):
            strategy.step(given, optimizer.step)
        strategy.settle()
        strategy.finish()
        return frozen.tolist(), trained.tolist()

    meeting = Meeting(2, timeout_s=60)
    for frozen, trained in run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work):
        assert frozen == [1.0] * 3
        assert trained[0] < 0.9


def test_gradients_after_a_step_at_servers_are_the_sums():
    def script():
        torch.manual_seed(0)
        x = torch.randn(12, 4)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model, optimizer = reparto.prepare(model, optimizer)
        model(reparto.shard(x)).square().mean().backward()
        optimizer.step()
        return [one.grad.clone() for one in model.parameters()]

    exact = run_workers(3, script)[0]
    strategy = StrategyConfig(kind="parameter-server", settings={"servers": 2})
    for found in run_workers(3, script, strategy=strategy):
        for one, two in zip(found, exact, strict=True):
            torch.testing.assert_close(one, two)


def test_lengths_are_those_of_the_steps():
    def script():
        index = DataLoader(TensorDataset(torch.zeros(50, 1)), batch_size=4)
        whole = DataLoader(torch.zeros(50, 1), batch_size=4, collate_fn=torch.stack)
        _, index, whole = reparto.prepare(nn.Linear(1, 1), index, whole)
        before = len(index), len(whole)
        return before, (len(list(index)), len(list(whole))), (len(index), len(whole))

    strategy = StrategyConfig(kind="all-reduce", settings={"batch": "worker"})
    assert run_workers(3, script, strategy=strategy) == [((5, 5),) * 3] * 3  # 13 batches
    assert run_workers(3, script) == [((13, 13),) * 3] * 3


def test_all_workers_skip_a_step_that_overflows_on_one():
    def script():
        torch.manual_seed(0)
        x = torch.ones(8, 2)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        model, optimizer = reparto.prepare(model, optimizer)
        moved = []
        for step in range(3):
            rows = x.clone()
            rows[-1] = torch.inf if step == 1 else 1.0  # the last worker's
            before = model.weight.detach().clone()
            optimizer.zero_grad()
            scaler.scale(model(reparto.shard(rows)).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            moved.append(not torch.equal(before, model.weight.detach()))
        model.eval()
        return moved, scaler.get_scale(), model.weight.detach().tolist()

    strategy = StrategyConfig(kind="local-sgd", settings={"sync_every": 2})
    one, two = run_workers(2, script, strategy=strategy)
    assert one == two
    assert one[:2] == ([True, False, True], 2.0)


def test_a_copy_that_is_loaded_leaves_replicas_apart():
    """An average of weights that a script keeps beside its model is none of the strategy's."""

    def script():
        torch.manual_seed(0)
        x = reparto.shard(torch.randn(6, 2))
        model, copy = nn.Linear(2, 1), nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = reparto.prepare(model, optimizer)
        kept = []
        for _ in range(4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            own = model.weight.detach().clone()
            copy.load_state_dict(copy.state_dict())
            model(x)  # a training step begins: the worker's own parameters again
            kept.append(torch.equal(own, model.weight.detach()))
        return kept

    strategy = StrategyConfig(kind="diloco", settings={"sync_every": 16})
    assert run_workers(2, script, strategy=strategy) == [[True] * 4] * 2


def test_moments_that_some_workers_lack_are_left_alone():
    def work(group):
        strategy = LocalSGD.Config(sync_every=1, moments="average").build(group)
        tensors = [torch.zeros(2).requires_grad_() for _ in range(3)]
        optimizer = torch.optim.SGD(tensors, lr=0.1, momentum=0.9)
        given = ParameterSet("set", tensors)
        given.optimizer_ref, given.share = lambda: optimizer, 0.5
        strategy.start(given)
        for number, tensor in enumerate(tensors):
            if number == 0 or number == 1 + group.rank():
                tensor.grad = torch.full((2,), 1.0 + group.rank())
        optimizer.step()
        strategy.after_step(given)
        found = [optimizer.state.get(one, {}).get("momentum_buffer") for one in tensors]
        return [None if one is None else one[0].item() for one in found]

    meeting = Meeting(2, timeout_s=60)
    found = run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work)
    assert found == [[1.5, 1.0, None], [1.5, None, 2.0]]
