"""Passes of gradients on a device that begin with numbers of the CPU."""

import pytest
import torch
from torch import Tensor


@pytest.fixture
def leaf():
    """A parameter of the CPU, and what was computed of it on the device."""
    x = torch.ones(3, requires_grad=True)
    return x, 2 * x.to("meta")


def test_a_gradient_to_begin_with_comes_to_the_device(home, leaf):
    x, y = leaf
    (grad,) = home.run(torch.autograd.grad, (y, x, torch.ones(3)), {})
    assert grad.device.type == "cpu"  # the leaf stayed where it was


def test_a_list_of_them_by_name_too(home, leaf):
    x, y = leaf
    given = {"outputs": [y], "inputs": [x], "grad_outputs": [torch.ones(3)], "retain_graph": True}
    assert len(home.run(torch.autograd.grad, (), given)) == 1


@pytest.mark.parametrize("by_name", [False, True])
def test_backward_of_more_than_a_number(home, leaf, by_name):
    x, y = leaf
    gradient = torch.ones(3)
    args, given = ((y,), {"gradient": gradient}) if by_name else ((y, gradient), {})
    home.run(Tensor.backward, args, given)
    assert x.grad is not None


def test_backward_without_one_is_as_it_was(home, leaf):
    x, y = leaf
    home.run(Tensor.backward, (y.sum(),), {})
    assert x.grad is not None
