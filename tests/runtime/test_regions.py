"""Regions: modules that treat every sample on its own run on plain tensors, others do not."""

import copy
import math
import random
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.runtime.cases import Case
from torch import nn

import reparto
from reparto.runtime._current import current
from reparto.testing import run_workers

STASH = {}  # by worker, as these are threads of one process


class Reshapes(nn.Module):
    """Does much with the batch size, all of it sample by sample."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x):
        y = self.linear(x).view(x.size(0), -1, 2)
        y = y.transpose(1, 2).reshape(x.shape[0] * 2, 3)
        y = F.gelu(y).view(-1, 6) + torch.zeros(x.size(0), 6)
        return y.flatten(1).unsqueeze(1).squeeze(1)


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x, scale=1.0, *, flag=True):
        return {"a": self.one(x) * scale, "b": (self.two(x), None, [3, flag])}


PURE = {
    "linear": (lambda: nn.Linear(4, 3), None),
    "sequential": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(True), nn.Linear(5, 2)), None),
    "normalised": (lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh()), None),
    "merged": (lambda: nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (-1, 4)), nn.Linear(4, 2)), None),
    "reshapes": (Reshapes, None),
    "several": (Several, lambda layer, x: layer(x, scale=2.0)),
    "lstm": (lambda: nn.LSTM(2, 3, batch_first=True), lambda layer, x: layer(x.view(-1, 2, 2))[0]),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), lambda layer, x: layer(x.unsqueeze(1))),
    "end to end": (lambda: nn.Linear(4, 3), lambda layer, x: layer(torch.cat([x, x * 2]))),
}  # fmt: skip


def parts(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in parts(part)]
    return [value]


def frozen(values):
    return [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in values]


def trained(make, call, steps=5):
    """Some steps with a last batch that is short; every number that a script could see."""

    def train(x):
        torch.manual_seed(1)
        layer = make()
        optimizer = torch.optim.SGD(layer.parameters(), 0.05)
        seen = []
        for step in range(steps):
            batch = reparto.shard(x[: 2 if step == steps - 2 else len(x)])
            optimizer.zero_grad()
            outputs = parts(call(layer, batch) if call else layer(batch))
            tensors = [one for one in outputs if isinstance(one, torch.Tensor)]
            loss = sum(one.square().mean() for one in tensors)
            loss.backward()
            optimizer.step()
            seen += frozen([loss.item(), *outputs])
        return seen, list(layer.state_dict().values())

    return train


@pytest.mark.parametrize("name", PURE)
@pytest.mark.parametrize("workers", [2, 4])
def test_pure_modules_become_regions(name, workers):
    make, call = PURE[name]
    Case("N:7,4", trained(make, call), [(workers, 0)], {"tolerance": 1e-10}).run()

    def known():
        torch.manual_seed(1)
        layer = make()
        for _ in range(2):
            x = reparto.shard(torch.randn(6, 4))
            call(layer, x) if call else layer(x)
        return [region.pure for region in current().regions.known[layer].values()]

    assert run_workers(2, known) == [[True], [True]]


HELD = threading.local()  # each worker of a test is a thread


def helper(bias, h):
    return bias * h.size(0)


def keep(h):
    STASH.setdefault(reparto.rank(), []).append(h.detach())


class Impure(nn.Module):
    """Each kind looks across the batch in a way of its own."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.calls = 0
        if kind == "mixes_now_and_then":
            self.random = random.Random(1)

    def forward(self, x, y=None):
        h = self.linear(x)
        return getattr(self, self.kind)(h, y)

    def centred(self, h, y):
        return h - h.mean(0)

    def scaled(self, h, y):
        return h / h.size(0)

    def counted(self, h, y):
        return h * len(h)

    def compared(self, h, y):
        return h * 2 if h.size(0) == 7 else h * 3

    def hard_coded(self, h, y):
        return h.view(7, 2, 2).flatten(1) if h.shape[0] == 7 else h

    def odd(self, h, y):
        return h if h.size(0) % 2 else -h

    def to_int(self, h, y):
        return h * int(h.shape[0])

    def squeezed(self, h, y):
        out = h[:, :1].squeeze()
        return out if out.dim() else out.unsqueeze(0)

    def running(self, h, y):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * h.mean(0))
        return h - self.mean

    def replaced(self, h, y):
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        return h - self.mean

    def stashed(self, h, y):
        self.hidden = h
        return h * 2

    def stashed_in_a_list(self, h, y):
        self.__dict__.setdefault("log", []).append(h.detach())
        self.log = self.log[-1:]
        return h * 2

    def stashed_outside(self, h, y):
        STASH.setdefault(reparto.rank(), []).append(h.detach())
        return h * 2

    def decided(self, h, y):
        return h * 2 if h.max() > 0.5 else h * 3

    def read(self, h, y):
        self.level = h.detach().norm().item()
        return h / self.level

    def positioned(self, h, y):
        return h + torch.arange(h.size(0)).unsqueeze(1)

    def attended(self, h, y):
        return (h @ h.t()).softmax(1) @ h

    def loss(self, h, y):
        return F.mse_loss(h, y)

    def both(self, h, y):
        return h, F.mse_loss(h, y)

    def sized(self, h, y):
        return h, h.size(0)

    def sized_plainly(self, h, y):
        return h, h.shape

    def of_rows(self, h, y):
        return torch.stack([row * (number + 1) for number, row in enumerate(h)])

    def counts_calls(self, h, y):
        self.calls += 1
        return h * self.calls

    def changes_its_input(self, h, y):
        y.add_(1)
        return h + y

    def shares_out_its_own(self, h, y):
        noise = np.random.RandomState(3).normal(size=(h.size(0), 4))
        return h + reparto.shard(torch.from_numpy(noise).to(h.dtype))

    def divides_by_the_size(self, h, y):
        return h + self.linear.bias / h.size(0)

    def asks_math_for_the_size(self, h, y):
        return h * math.log(h.shape[0] + 1.0) + helper(self.linear.bias, h)

    def mixes_now_and_then(self, h, y):
        return 0.7 * h + 0.3 * h.flip(0) if self.random.random() < 0.4 else h

    def mixes_every_third_time(self, h, y):
        self.calls += 1
        return 0.7 * h + 0.3 * h.flip(0) if self.calls % 3 == 0 else h

    def keeps_it_by_a_helper(self, h, y):
        keep(h)
        return h * 2

    def masks_by_a_global(self, h, y):
        return h * HELD.mask

    def normalises_its_weights(self, h, y):
        return h @ F.batch_norm(self.linear.weight, None, None, training=True)


KINDS = [name for name in vars(Impure) if not name.startswith("_") and name != "forward"]


@pytest.mark.parametrize("kind", KINDS)
def test_impure_modules_stay_exact(kind):
    def train(x):
        torch.manual_seed(1)
        STASH.pop(reparto.rank(), None)
        layer = nn.Sequential(nn.Linear(4, 4), Impure(kind), nn.Identity())
        optimizer = torch.optim.SGD(layer.parameters(), 0.05)
        seen = []
        for step in range(6):
            data = x.clone()[: (7, 7, 7, 2, 7, 1)[step]]
            batch, y = reparto.shard(data), reparto.shard(data.cos())
            optimizer.zero_grad()
            HELD.mask = y.sign()
            result = layer[1](layer[0](batch), y)
            outputs = parts(list(result) if isinstance(result, tuple) else result)
            tensors = [one for one in outputs if isinstance(one, torch.Tensor)]
            loss = sum(one.square().mean() for one in tensors)
            loss.backward()
            optimizer.step()
            stashed = [*STASH.get(reparto.rank(), []), *getattr(layer[1], "log", [])]
            stashed += [layer[1].hidden] if hasattr(layer[1], "hidden") else []
            seen += frozen([loss.item(), *outputs, *stashed, y])
        return seen, list(layer.state_dict().values())

    Case("N:7,4", train, [(2, 0), (4, 0)], {"tolerance": 1e-9}).run()


@pytest.mark.parametrize("kind", ["forward", "pre", "backward", "late forward"])
def test_hooks_see_the_global_batch(kind):
    def train(x):
        torch.manual_seed(1)
        layer = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
        seen = []

        def look(module, *tensors):
            flat = [one for one in parts(list(tensors)) if isinstance(one, torch.Tensor)]
            seen.append([(tuple(one.shape), one.sum().item()) for one in flat])

        for step in range(5):
            if step == (3 if kind == "late forward" else 0):
                if kind == "pre":
                    layer[2].register_forward_pre_hook(look)
                elif kind == "backward":
                    layer[1].register_full_backward_hook(look)
                else:
                    layer[1].register_forward_hook(look)
            layer(reparto.shard(x)).square().mean().backward()
        return seen, [one.grad for one in layer.parameters()]

    Case("N:7,4", train, [(2, 0), (4, 0)]).run()


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.by_batch = False

    def forward(self, x):
        h = self.linear(x)
        return h - h.mean(0) if self.by_batch else h


def test_a_switch_that_is_thrown_from_outside_is_noticed():
    def train(x):
        torch.manual_seed(1)
        layer = nn.Sequential(Switched(), nn.Tanh())
        seen = []
        for step in range(7):
            if step == 3:
                layer[0].by_batch = True
            if step == 5:
                setattr(layer[0], "by_batch", False)  # noqa: B010
            seen.append(layer(reparto.shard(x)))
        return seen

    Case("N:7,4", train, [(2, 0), (4, 0)]).run()


def test_a_module_that_is_called_in_other_ways():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, mask=None, shift=0.0):
            h = self.linear(x)
            if mask is not None:
                h = h * mask
            return h + shift

    def train(x):
        torch.manual_seed(1)
        layer, seen = Masked(), []
        a = reparto.shard(x)
        row, whole = torch.rand(1, 4), torch.rand(7, 4)
        for _ in range(3):
            seen += [layer(a), layer(a, row), layer(a, whole), layer(a, mask=a > 0), layer(x)]
            seen += [layer(a, shift=2.0), layer(a, row[0]), layer(a, shift=a.mean()), layer(whole)]
            with torch.no_grad():
                seen.append(layer(a))
            seen.append(layer.eval()(a))
            layer.train()
        return seen

    Case("N:7,4", train, [(2, 0), (4, 0)], {"shared_draws": True}).run()


def test_a_module_of_two_batches():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, support):
            return self.linear(x), self.linear(support)

    def train(x):
        torch.manual_seed(1)
        layer = Pair()
        a, b = reparto.shard(x), reparto.shard(x[:3] * 2)
        return [layer(a, b) for _ in range(3)]

    Case("N:7,4", train, [(2, 0), (4, 0)]).run()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("nested", [True, False])
def test_encoders_in_evaluation_fill_padded_places_alike(nested):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()

    def evaluate(x):
        module = copy.deepcopy(encoder)
        with torch.no_grad():
            lengths = (x[:, 0, 0].abs() * 2).long() + 1
            padding = torch.arange(4) >= lengths.clamp(max=4).unsqueeze(1)
            padding[0] = False
            return [module(x, src_key_padding_mask=padding).mean(1) for _ in range(3)]

    Case("n:b,4,4", evaluate, [(2, 7), (4, 3)]).run()


def test_a_module_that_changes_its_ways_in_secret_is_told():
    class Secret(nn.Module):
        def forward(self, x):
            return x - x.mean(0) if TIMES[0] > 2 else x

    TIMES = [0]

    def train():
        layer = Secret()
        for step in range(9):
            TIMES[0] = step
            layer(reparto.shard(torch.ones(6, 4)))

    with pytest.raises(reparto.errors.DisagreementError, match="changed its ways"):
        run_workers(2, train)
