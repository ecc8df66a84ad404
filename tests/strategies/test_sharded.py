"""Sharded: the contract, trainings beside the sequential ones, and what each worker keeps."""

import copy
import io
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.forked import forked_workers
from torch import nn
from torch.utils.checkpoint import checkpoint

import reparto
from reparto.api import run
from reparto.errors import DisagreementError, RefusedError, UsageError
from reparto.spec import Cluster, Host, Job, Profile, StrategyConfig
from reparto.strategies import Sharded, from_spec
from reparto.strategies._sharded import _missing
from reparto.strategies._sliced import Sliced
from reparto.testing import StrategyContract, run_workers
from reparto.verify import verify

SCRIPTS = Path(__file__).parents[1] / "scripts"


class TestSharded(StrategyContract):
    num_steps = 100
    nearly = 0.2

    @pytest.fixture(
        params=[(0, 0), (0, 4800), (2**15, 0)], ids=["all sliced", "some kept", "none sliced"]
    )
    def config(self, request):
        return Sharded.Config(min_bytes=request.param[0], keep_bytes=request.param[1])


class TestShardedOfOne(StrategyContract):
    size = 1

    @pytest.fixture
    def config(self):
        return Sharded.Config(min_bytes=0)


def test_settings_below_zero_are_refused():
    with pytest.raises(UsageError):
        from_spec(StrategyConfig(kind="sharded", settings={"keep_bytes": -1}))


def test_a_backward_pass_gathers_what_found_no_room():
    assert _missing([1, 1, 1], 3) == []
    assert _missing([1, 1, 1], 0) == [1, 0]  # the last one is still there
    assert _missing([4, 1, 1], 2) == [0]


def test_three_times_the_parameters_travel_in_a_step_of_a_large_model():
    shapes = ((1000, 1000),) * 50 + ((1000,),) * 50
    count = 50 * 1000 * 1001
    profile = Profile(num_parameters=count, gradient_bytes=4 * count, shapes=shapes)
    cluster = Cluster(hosts=tuple(Host(name=str(rank)) for rank in range(4)))

    def wire(keep_bytes):
        config = Sharded.Config(keep_bytes=keep_bytes)
        return sum(one.wire_bytes(4) for one in config.traffic(profile, cluster))

    assert wire(0) == pytest.approx(3 * 0.75 * 4 * count, rel=0.02)
    assert wire(2**30) == pytest.approx(2 * 0.75 * 4 * count, rel=0.02)


# Trainings.


def batches(count, *shape, classes=4, rows=7):
    torch.manual_seed(1)
    for _ in range(count):
        yield (
            reparto.shard(torch.randn(rows, *shape)),
            reparto.shard(torch.randint(classes, (rows,))),
        )


def numbers(model, *others):
    """Parameters, buffers and what else was read, as they are for the script."""
    found = [p.detach().numpy().copy() for p in [*model.parameters(), *model.buffers()]]
    return found + [torch.as_tensor(one).detach().numpy().copy() for one in others]


def perceptron():
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, amsgrad=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    norms = []
    for x, y in batches(6, 6):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.3))
        optimizer.step()
        schedule.step()
    largest = nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=float("inf"))
    return numbers(model, *norms, largest)


def convolutional():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
            self.second, self.last = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 4)

        def forward(self, x):
            x = F.relu(self.norm(self.first(x)))
            y = self.second(x)
            y += x  # into what a module has just given
            return self.last(y.mean((2, 3)))

    model = Net().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for x, y in batches(5, 2, 5, 5):
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).double().mean()
    return numbers(model, accuracy)


def tied_transformer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(5, 8))
            self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.out = nn.Linear(8, 11, bias=False)
            self.out.weight = self.words.weight

        def encode(self, x):
            return self.block(self.words(x) + self.places)

        def forward(self, x):
            return self.out(self.encode(x))

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    torch.manual_seed(2)
    for _ in range(5):
        x = reparto.shard(torch.randint(11, (6, 5)))
        optimizer.zero_grad()
        F.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return numbers(model, model(x).mean(), model.encode(x).square().mean())


def accumulating():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    read = []
    for number, (x, y) in enumerate(batches(12, 6)):
        y = torch.where(y == 0, -100, y)  # the divisor depends on everybody's data
        F.cross_entropy(model(x), y, ignore_index=-100).div(3).backward()
        if number % 4 == 1:
            read.append(model[0].weight.grad.norm())  # and another pass comes after
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    return numbers(model, *read)


def checkpointed():
    def made():
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        return model, torch.optim.Adam(model.parameters(), lr=0.05)

    def trained(model, optimizer, data):
        for x, y in data:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    model, optimizer = made()
    data = list(batches(6, 6))
    trained(model, optimizer, data[:3])
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    trained(model, optimizer, data[3:])
    file.seek(0)
    saved = torch.load(file)  # by default it takes plain tensors only
    again, its_optimizer = made()
    trained(again, its_optimizer, data[:1])
    again.load_state_dict(saved["model"])
    its_optimizer.load_state_dict(saved["optimizer"])
    kept = [saved["optimizer"]["state"][index]["exp_avg"].norm() for index in range(4)]
    trained(again, its_optimizer, data[3:])
    return numbers(again, *[p.norm() for p in model.parameters()], *kept)


def by_hand():
    """What scripts do to parameters between steps."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    held = list(model.parameters())
    averaged = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches(4, 6):
        penalty = sum(p.pow(2).sum() for p in model.parameters()) + model[0].weight.norm()
        loss = F.cross_entropy(model(x), y) + 1e-2 * penalty
        optimizer.zero_grad()
        loss.backward()
        held[0].grad.clamp_(-0.05, 0.05)
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(model.parameters(), averaged.parameters(), strict=True):
                q.mul_(0.9).add_(p, alpha=0.1)
            model[2].weight[1] *= 0.5
        model[0].weight.data.clamp_(-0.3, 0.3)
        for p, g in zip(held, torch.autograd.grad(model(x).mean(), held), strict=True):
            p.data -= 0.1 * g
    alias = model.state_dict()
    model[0].weight.data.zero_()
    read = [model[2].weight[0, 1].item(), sum(model[2].weight.tolist()[0])]
    flat = nn.utils.parameters_to_vector(model.parameters())
    return numbers(averaged, *read, alias["0.weight"].abs().sum(), *flat.detach())


def gradient_penalty():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.NAdam(model.parameters(), lr=0.05)
    for x, _ in batches(4, 6):
        x = x.detach().clone().requires_grad_()
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        optimizer.zero_grad()
        ((grad.norm(dim=1) - 1) ** 2).mean().backward()
        optimizer.step()
    return numbers(model)


def other_optimizers():
    """A closure; one that does not go by element; sparse gradients; frozen layers."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    words = nn.Embedding(5, 6, sparse=True)
    model[2].bias.requires_grad_(False)
    first = torch.optim.Adam(model.parameters(), lr=0.05)
    second = torch.optim.LBFGS(model.parameters(), max_iter=3)
    third = torch.optim.SGD(words.parameters(), lr=0.5, momentum=0.9)
    for _, y in batches(4, 6):

        def closure(y=y):
            first.zero_grad()
            third.zero_grad()
            loss = F.cross_entropy(model(words(y)), y)
            loss.backward()
            return loss

        first.step(closure)
        third.step()
        second.step(closure)
        closure()
        first.step()
    return numbers(model, *words.weight.detach().flatten())


def hooked():
    """Code of the script's that sees gradients on their way; and what is computed twice."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    read = []
    model[0].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    for number, (x, y) in enumerate(batches(6, 6)):
        if number == 2:
            for p in model.parameters():
                p.register_post_accumulate_grad_hook(lambda p: read.append(p.grad.norm()))
        hidden = checkpoint(model[:2], x, use_reentrant=bool(number % 2))
        F.cross_entropy(model[2](hidden), y).backward()
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    return numbers(model, sum(read))


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


TRAININGS = [
    perceptron, convolutional, tied_transformer, accumulating, checkpointed, by_hand,
    gradient_penalty, other_optimizers, hooked,
]  # fmt: skip


@pytest.mark.parametrize("training", TRAININGS)
def test_trainings_are_the_sequential_ones(training, doubles):
    torch.manual_seed(0)
    (alone,) = run_workers(1, training)
    for size, keep_bytes in [(2, 0), (3, 500), (4, 2**20)]:
        settings = {"min_bytes": 0, "keep_bytes": keep_bytes}
        strategy = StrategyConfig(kind="sharded", settings=settings)
        for found in run_workers(size, training, strategy=strategy):
            for one, two in zip(found, alone, strict=True):
                np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "workers"),
    [("accumulation_clip_scheduler.py", 3), ("resnet_bn.py", 2), ("tied_weights_lm.py", 3),
     ("resume_checkpoint.py", 2)],
)  # fmt: skip
def test_scripts_are_proven_the_same(name, workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    strategy = StrategyConfig(kind="sharded", settings={"min_bytes": 0, "keep_bytes": 4096})
    with forked_workers():
        result = verify(SCRIPTS / name, workers=workers, steps=10, strategy=strategy)
    assert result.verdict == "equal", result.divergence


# What a worker keeps.


def _step(model, optimizer):
    x = reparto.shard(torch.randn(6, 40))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def _bytes_kept():
    model = nn.Sequential(nn.Linear(40, 50), nn.Tanh(), nn.Linear(50, 40))
    optimizer = torch.optim.Adam(model.parameters())
    _step(model, optimizer)
    tensors = [*model.parameters(), *(p.grad for p in model.parameters())]
    tensors += [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.dim()
    ]
    kept = [t._kept.mine if isinstance(t, Sliced) else t for t in tensors]
    return sum(one.untyped_storage().nbytes() for one in kept)


@pytest.mark.parametrize("size", [2, 4])
def test_each_worker_keeps_its_part_of_parameters_gradients_and_state(size):
    strategy = StrategyConfig(kind="sharded", settings={"min_bytes": 0})
    (whole,) = run_workers(1, _bytes_kept)
    for kept in run_workers(size, _bytes_kept, strategy=strategy):
        assert kept == pytest.approx(whole / size, rel=0.01)


def test_small_parameters_stay_as_they_are():
    def work():
        model = nn.Linear(40, 50)
        _step(model, torch.optim.Adam(model.parameters()))
        return isinstance(model.weight, Sliced), isinstance(model.bias, Sliced)

    strategy = StrategyConfig(kind="sharded", settings={"min_bytes": 1000})
    assert run_workers(2, work, strategy=strategy) == [(True, False)] * 2


def test_what_shares_its_memory_or_is_in_a_graph_stays_as_it_is():
    def work():
        one, two, three = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        view, graph = one.weight.data, two(torch.randn(2, 4))
        parameters = [one.weight, two.weight, three.weight]
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        optimizer.zero_grad()
        x = reparto.shard(torch.randn(4, 4))
        three(two(one(x))).sum().backward()
        optimizer.step()
        assert torch.equal(view, one.weight) and graph.requires_grad
        return [isinstance(p, Sliced) for p in parameters]

    strategy = StrategyConfig(kind="sharded", settings={"min_bytes": 0})
    assert run_workers(2, work, strategy=strategy) == [[False, False, True]] * 2


def test_frozen_layers_that_no_optimizer_has_are_shared_out_too():
    def work():
        torch.manual_seed(0)
        frozen, head = nn.Linear(40, 8).requires_grad_(False), nn.Linear(8, 40)
        _step(nn.Sequential(frozen, head), torch.optim.SGD(head.parameters(), lr=1.0))
        return isinstance(frozen.weight, Sliced), head.weight.detach().numpy().copy()

    strategy = StrategyConfig(kind="sharded", settings={"min_bytes": 0})
    (_, alone), *_ = run_workers(1, work)
    for is_sliced, found in run_workers(2, work, strategy=strategy):
        assert is_sliced
        np.testing.assert_allclose(found, alone, rtol=1e-4, atol=1e-6)


def test_a_parameter_is_one_for_those_who_look():
    def work():
        model = nn.Linear(40, 50)
        weight, before = model.weight, repr(model.weight)
        _step(model, torch.optim.SGD(model.parameters(), lr=0.0))
        assert model.weight is weight and isinstance(weight, nn.Parameter)
        assert weight.shape == (50, 40) and weight.is_leaf and repr(weight) == before
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        assert type(torch.load(file, weights_only=False).weight) is nn.Parameter
        with pytest.raises(RefusedError):
            weight.data_ptr()
        weight.data = torch.ones(50, 40)
        model.double()
        assert model.weight is weight and weight.dtype == torch.float64
        return type(weight) is Sliced, float(weight.sum())

    strategy = StrategyConfig(kind="sharded", settings={"min_bytes": 0})
    assert run_workers(2, work, strategy=strategy) == [(True, 2000.0)] * 2


def test_workers_that_gather_in_another_order_are_told():
    def work():
        model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        _step(model, optimizer)
        for index in range(2) if reparto.rank() else reversed(range(2)):
            model[index].weight.abs().max()
        _step(model, optimizer)

    strategy = StrategyConfig(kind="sharded", settings={"min_bytes": 1000})
    with pytest.raises(DisagreementError, match="order"):
        run_workers(2, work, strategy=strategy)


# Memory of real processes.

DEEP = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(1000, 1000) for _ in range(8)])
before = memory("VmRSS")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for x in torch.randn(3, 8, 1000):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
with open("grown", "w") as file:
    file.write(str(memory("VmHWM") - before))
"""

MEMORY = """\
def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
"""


def grown(folder, strategy, **settings):
    """By how many KiB worker 0 has grown beyond its parameters."""
    script = folder / "deep.py"
    script.write_text(MEMORY + DEEP)
    job = Job(script=str(script), workers=2, strategy=strategy, settings=settings, probe=False)
    with forked_workers():
        run(job)
    return int((folder / "grown").read_text())


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="it is Linux that tells")
def test_a_worker_needs_less_memory_than_with_all_reduce(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = grown(tmp_path, "all-reduce")
    part = grown(tmp_path, "sharded", keep_bytes=2**22)
    # 31 MiB of parameters are there before; gradients, buckets and two moments come.
    assert whole > 4 * 31_000
    assert part < 0.6 * whole
