"""Passes of gradients on a device that begin with numbers of the CPU."""

import pytest
import torch
from torch import Tensor


@pytest.fixture
def leaf():
    """A parameter that has moved to the device, and what was computed of it."""
    x = torch.ones(3, device="meta", requires_grad=True)
    return x, 2 * x


def test_a_gradient_to_begin_with_comes_to_the_device(home, leaf):
    x, y = leaf
    (grad,) = home.run(torch.autograd.grad, (y, x, torch.ones(3)), {})
    assert grad.device.type == "meta"


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


def test_a_pass_on_the_cpu_begins_there(home):
    """What never met the device has its gradients where it is."""
    x = torch.ones(3, requires_grad=True)
    home.run(Tensor.backward, (2 * x, torch.ones(3)), {})
    assert x.grad.tolist() == [2, 2, 2]
    (grad,) = home.run(torch.autograd.grad, ([2 * x], x), {"grad_outputs": (torch.ones(3),)})
    assert grad.tolist() == [2, 2, 2]


def test_roots_on_both_devices_have_each_its_own(home, leaf):
    x, y = leaf
    other = torch.ones(3, requires_grad=True)
    begin = [torch.ones(3), torch.ones(3), None]
    home.run(torch.autograd.backward, ([y, 3 * other, (2 * other).sum()], begin), {})
    assert x.grad.device.type == "meta"
    assert other.grad.tolist() == [5, 5, 5]


def test_too_few_are_still_an_error(home, leaf):
    _, y = leaf
    with pytest.raises(RuntimeError, match="2 tensors and 1 gradients"):
        home.run(torch.autograd.backward, ([y, y], [torch.ones(3)]), {})
