"""The models of the grid are those that were asked for: names, sizes, counted operations."""

import pytest
import torch

from reparto.bench import _grid, _models, _recipe


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("50", 2_601),
        ("800-400-208", 444_817),
        ("6400-3200", 20_812_801),
        ("25600-12800-6656", 414_208_513),
    ],
)
def test_parameters_are_those_that_were_published(name, count):
    assert _grid.hidden_of(name) in _grid.perceptrons()
    assert _grid.num_parameters(_grid.hidden_of(name)) == count


def test_there_are_thirty_perceptrons_and_each_has_its_own_name():
    names = [_grid.name_of(hidden) for hidden in _grid.perceptrons()]
    assert len(set(names)) == 30


def test_cnn_has_the_parameters_that_were_published():
    with torch.device("meta"):
        model = _models.cnn()
    assert _models.num_parameters(model) == _grid.cnn_parameters() == 4_352_641


@pytest.mark.parametrize("hidden", [(50,), (100, 50), (800, 400, 208)])
def test_perceptron_has_the_parameters_that_its_widths_say(hidden):
    with torch.device("meta"):
        model = _models.perceptron(hidden)
    assert _models.num_parameters(model) == _grid.num_parameters(hidden)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("hidden", [(50,), (100, 50), (800, 400, 208)])
def test_counted_operations_of_a_perceptron_are_those_that_follow_from_its_widths(hidden, train):
    counted = _models.flops_of_step(lambda: _models.perceptron(hidden), (50,), 8, train=train)
    assert counted == _recipe.grid_flops(hidden, 8, train=train)


@pytest.mark.parametrize("train", [True, False])
def test_counted_operations_of_the_cnn_are_those_that_follow_from_its_layers(train):
    counted = _models.flops_of_step(_models.cnn, (1, 50, 50), 2, train=train)
    assert counted == _recipe.cnn_flops(2, train=train)


def test_operations_that_cannot_be_counted_are_told_as_none():
    class Reads(torch.nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    assert _models.flops_of_step(Reads, (3,), 2, train=False) == 0.0


def test_number_of_steps_depends_on_the_work_alone_and_has_limits():
    small, large = _recipe.target_steps(2_601, 0.0, 2), _recipe.target_steps(10**9, 0.0, 1024)
    assert (small, large) == (_recipe.MAX_STEPS, _recipe.MIN_STEPS)
    assert _recipe.target_steps(0, 0.0, 1) == _recipe.MAX_STEPS  # a model without parameters
