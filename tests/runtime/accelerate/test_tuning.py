"""Ways are tried in real steps, kept where they help, and put back at the end."""

import itertools
import threading

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import (
    accelerated,
    adam,
    epochs,
    mlp,
    plain_step,
    same,
    state,
)
from torch import nn

from reparto.runtime.accelerate import _bf16_layers, _fewer_threads, _products
from reparto.runtime.accelerate._bf16_layers import Bf16Layers
from reparto.runtime.accelerate._fewer_threads import FewerThreads
from reparto.runtime.accelerate._kept_memory import KeptMemory
from reparto.runtime.accelerate._products import Products
from reparto.runtime.accelerate._tuning import SETTLING, Tuning
from reparto.runtime.accelerate._ways import ways

pytestmark = pytest.mark.usefixtures("in_float32")
NO_MEMORY = KeptMemory(lambda: pytest.fail("asked"), None)


@pytest.fixture
def in_float32():
    """As scripts compute; other tests prove in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


class Fake:
    """A way that makes steps take so much of their time."""

    def __init__(self, name="a", factor=0.5, suits=True):
        self.name, self.factor, self.is_on, self.obeys = name, factor, False, True
        self.is_fit = suits

    def suits(self, step_s):
        return self.is_fit

    def switch(self, on):
        self.is_on = on and self.obeys
        return self.obeys

    def replacements(self):
        return []


class Machine:
    """Steps that take as long as the ways say that are switched on."""

    def __init__(self, *ways, step_s=1.0):
        self.ways, self.now, self.step_s = ways, 0.0, step_s
        self.tuning = Tuning(ways, NO_MEMORY, lambda: self.now)
        self.went = []

    def steps(self, num, who="optimizer", rows=10):
        for _ in range(num):
            factor = 1.0
            for way in self.ways:
                factor *= way.factor if way.is_on else 1.0
            self.went.append("".join(way.name for way in self.ways if way.is_on))
            self.now += self.step_s * factor
            self.tuning.stepped(who, rows)


def test_a_way_that_helps_is_kept_and_told_of():
    machine = Machine(way := Fake(factor=0.5))
    machine.steps(SETTLING)
    assert machine.went == [""] * SETTLING
    machine.steps(20)
    assert way.is_on
    assert machine.went[-5:] == ["a"] * 5
    assert machine.tuning.told() == ["a: 2.00 times as fast, in 6 steps that were timed"]
    machine.tuning.finish()
    assert not way.is_on


def test_a_way_that_does_not_help_is_left_and_told_of():
    machine = Machine(way := Fake(factor=1.5))
    machine.steps(30)
    assert not way.is_on
    assert machine.tuning.told() == [
        "left alone, a: 0.67 times as fast, in 4 steps that were timed"
    ]


def test_ways_are_tried_one_after_the_other_with_what_was_kept():
    machine = Machine(Fake("a", 0.5), Fake("b", 2.0), Fake("c", 0.5))
    machine.steps(60)
    assert machine.went[-1] == "ac"
    assert {"", "a", "ab", "ac"} == set(machine.went)


def test_a_way_that_does_not_suit_is_not_tried():
    machine = Machine(Fake("a", suits=False), Fake("b"))
    machine.steps(40)
    assert set(machine.went) == {"", "b"}


def test_another_optimizer_has_a_course_of_its_own():
    machine = Machine(way := Fake(factor=0.5))
    machine.steps(30, "one")
    assert way.is_on
    machine.steps(2, "two")  # it takes two steps to see that the first is over
    assert not way.is_on
    way.factor = 1.5
    machine.steps(30, "two")
    assert not way.is_on
    machine.steps(2, "one")
    assert way.is_on
    told = machine.tuning.told()
    assert told == ["a in 1 of 2 trainings: 2.00 times as fast, in 6 steps that were timed"]


def test_where_optimizers_step_by_turns_a_round_is_one_step():
    machine = Machine(way := Fake(factor=0.5))
    for _ in range(30):
        machine.steps(1, "discriminator")
        machine.steps(1, "generator")
    assert way.is_on
    assert len(machine.tuning._courses) == 1


def test_a_choice_of_the_scripts_holds():
    machine = Machine(way := Fake("a"), Fake("b"))
    machine.steps(SETTLING + 1)
    way.obeys = False
    machine.steps(40)
    assert machine.went[-1] == "b"
    assert "a" not in machine.went[SETTLING + 2 :]


def test_ways_are_left_when_the_script_compiles():
    machine = Machine(way := Fake())
    machine.steps(SETTLING)
    assert way.is_on  # the next step tries it
    machine.tuning.leave()
    assert not way.is_on
    machine.steps(20)
    machine.steps(20, "another")
    assert set(machine.went) == {""}


def test_other_threads_are_not_listened_to():
    machine = Machine(Fake())
    other = threading.Thread(target=machine.steps, args=(30,))
    other.start()
    other.join()
    assert set(machine.went) == {""}


def test_nothing_is_tried_where_results_are_to_be_the_same_to_the_bit():
    machine = Machine(Fake())
    torch.use_deterministic_algorithms(True)
    try:
        machine.steps(30)
    finally:
        torch.use_deterministic_algorithms(False)
    assert set(machine.went) == {""}


def test_what_happens_between_passes_is_not_held_against_a_way():
    """Each fifth step begins a pass, behind a long evaluation; a trial is over all the same."""
    machine = Machine(way := Fake(factor=0.7))
    for number in range(60):
        if number % 5 == 0:
            machine.tuning.pass_begins()
            machine.now += 100.0
        machine.steps(1)
    assert way.is_on


# The ways.


def test_products_by_onednn_are_those_of_float32():
    found = _products.ways(is_relaxed=False)
    if not found:
        pytest.skip("this processor would round")
    before = torch.backends.mkldnn.matmul.fp32_precision
    assert found[0].switch(True)
    try:
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
        assert _products.error() < _products.MOST_ERROR
    finally:
        assert found[0].switch(False)
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_products_that_are_rounded_are_told_from_others(monkeypatch):
    multiplied = torch.Tensor.__matmul__

    def rounded(a, b):
        return multiplied(a.bfloat16().float(), b.bfloat16().float())

    monkeypatch.setattr(_products, "error", lambda: _error_of(rounded))
    assert _error_of(multiplied) < _products.MOST_ERROR < _error_of(rounded)
    assert _products.ways(is_relaxed=False) == []
    assert "bf16" in _products.ways(is_relaxed=True)[0].name


def _error_of(product):
    return max(
        _products._error(product(a.float(), b.float()), a @ b) for a, b in _products._factors(64)
    )


def test_a_precision_that_the_script_has_chosen_is_left():
    way, setting = Products(""), torch.backends.mkldnn.matmul
    torch.set_float32_matmul_precision("high")
    try:
        assert not way.switch(True)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert way.switch(True)
    torch.set_float32_matmul_precision("highest")  # in between
    assert not way.switch(False)
    assert setting.fp32_precision == "ieee"


def test_the_script_is_told_its_own_precision():
    with accelerated("no") as accelerator:
        products = [way for way in accelerator.tuning._ways if type(way) is Products]
        for way in products:
            way.switch(True)
        assert torch.get_float32_matmul_precision() == "highest"
        for way in products:
            assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
            way.switch(False)


def test_threads_are_as_many_as_chosen_and_come_back(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        half, one = _fewer_threads.ways()
        assert (half.name, one.name) == ("2 of 4 threads", "1 of 4 threads")
        assert half.switch(True) and one.switch(True)
        assert torch.get_num_threads() == 1
        assert one.switch(False)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(3)  # the script
        assert not half.switch(False)
        assert torch.get_num_threads() == 3
        assert not FewerThreads(3, "").switch(True)
    finally:
        torch.set_num_threads(before)


def test_threads_that_the_user_has_set_are_left(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert _fewer_threads.ways() == []


def test_fewer_threads_are_for_short_steps():
    way = FewerThreads(1, "")
    assert way.suits(0.01)
    assert not way.suits(1.0)


def test_layers_in_bf16_round_only_what_is_trained_and_hand_out_float32():
    way = Bf16Layers()
    linear = {name: make for _, name, make in way.replacements()}["linear"](F.linear)
    x, w, b = torch.randn(8, 16), torch.randn(4, 16, requires_grad=True), torch.zeros(4)
    exact = F.linear(x, w, b)
    assert torch.equal(linear(x, w, b), exact)
    way.switch(True)
    rounded = linear(x, w, bias=b)
    assert rounded.dtype is torch.float32
    assert 1e-4 < (rounded - exact).abs().max() < 0.2
    rounded.sum().backward()
    assert w.grad.dtype is torch.float32
    with torch.no_grad():
        assert torch.equal(linear(x, w), F.linear(x, w))
    assert linear(x.double(), w.double()).dtype is torch.float64


def test_layers_in_bf16_are_for_those_who_agreed():
    assert not any(type(way) is Bf16Layers for way in ways(is_relaxed=False))
    has = torch.cpu.get_capabilities()
    expected = any(map(has.get, _bf16_layers.ABILITIES))
    assert any(type(way) is Bf16Layers for way in ways(is_relaxed=True)) == expected


# In a training.


def trained():
    """Losses, parameters, and what is drawn next; of layers that are worth oneDNN's while."""
    layers = [nn.Linear(4, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.Linear(64, 3)]
    model = nn.Sequential(*layers)
    optimizer, losses = adam(model), []

    def body(step, x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    epochs(body, num=20)
    return losses, state(model), torch.rand(3)


def test_a_training_comes_to_the_same_whatever_is_chosen():
    torch.manual_seed(3)
    plain = trained()
    torch.manual_seed(3)
    threads = torch.get_num_threads()
    with accelerated("no") as accelerator:
        found = trained()
        assert accelerator.tuning._course.is_over
        told = accelerator.told()
        assert told == accelerator.tuning.told()
        # Some processors have nothing to try: oneDNN rounds there, and one thread is no choice.
        tried = [way.name for way in ways(is_relaxed=False) if way.suits(0.0)]
        assert all(any(name in line for line in told) for name in tried)
    assert torch.get_num_threads() == threads
    assert torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")
    same(plain, found, within=1e-4)


def test_without_trials_it_is_the_same_to_the_bit(monkeypatch):
    monkeypatch.setenv("REPARTO_TRIALS", "0")
    torch.manual_seed(3)
    with accelerated("no") as accelerator:
        found = trained()
        assert accelerator.tuning is None
        assert accelerator.told() == []
    monkeypatch.setenv("REPARTO_TRIALS", "1")
    torch.manual_seed(3)
    with accelerated("no") as accelerator:
        accelerator.tuning._ways.clear()  # memory alone
        again = trained()
    for one, two in zip(found[1], again[1], strict=True):
        assert torch.equal(one, two)
    assert found[0] == again[0]


def test_under_verify_nothing_is_timed_and_products_are_those_that_may_be_chosen(tmp_path):
    before = torch.backends.mkldnn.matmul.fp32_precision
    threads = torch.get_num_threads()
    with accelerated("no", record=str(tmp_path)) as accelerator:
        assert accelerator.tuning is None
        is_offered = bool(_products_offered())
        epochs(plain_step(model := mlp(), adam(model)), num=10)
        now = torch.backends.mkldnn.matmul.fp32_precision
        assert (now == "bf16") == is_offered
        assert torch.get_num_threads() == threads
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def _products_offered():
    now = torch.backends.mkldnn.matmul.fp32_precision
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    try:
        return _products.ways(is_relaxed=False)
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = now


def test_a_script_that_compiles_is_left_as_it_is():
    with accelerated("no") as accelerator:
        model = mlp()
        epochs(plain_step(model, adam(model)), num=2)
        torch.compile(lambda x: x)
        assert accelerator.tuning._ways == []
        epochs(plain_step(model, adam(model)), num=10)
        assert accelerator.tuning._on == []


def test_a_step_costs_little_more_when_all_is_decided():
    machine = Machine(Fake())
    machine.steps(30)
    counted = itertools.count()
    machine.tuning._clock = lambda: float(next(counted))
    machine.steps(100)
    assert next(counted) == 100  # it looks at the clock once, and decides nothing
