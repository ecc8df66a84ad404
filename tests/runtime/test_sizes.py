"""Which functions use the batch size as a number, told from their text."""

import math

import pytest
import torch
import torch.nn.functional as F

from reparto.runtime._sizes import uses_batch_size


def attention(self, x):
    B, T, C = x.size()
    q = x.view(B, T, self.heads, C // self.heads).transpose(1, 2)
    return (q / math.sqrt(C)).contiguous().view(B, T, C)


def flattens(self, x):
    return x.view(x.size(0), -1)


def begins_with_zeros(self, x):
    zeros = torch.zeros(2, x.size(0), 8, device=x.device)
    return self.lstm(x, (zeros, zeros))[0][:, -1]


def interpolates(self, x):
    size = x.shape[-2:]
    return F.interpolate(self.body(x), size=size)


def squeezes_and_excites(self, x):
    b, c, *_ = x.shape
    return x * self.pool(x).view(b, c).view(b, c, 1, 1).expand_as(x)


def prepends(self, x):
    batch_size = x.shape[0]
    return torch.cat([self.token.expand(batch_size, -1, -1), x], dim=1)


def merges(self, x):
    if len(x.shape) == 3:
        x = x.unsqueeze(1)
    assert x.shape[1] == 4
    rows, parts = x.size(0), x.size(1)
    return x.reshape(rows * parts, -1).reshape(rows, parts, -1)


def divides(self, x):
    return self.kl / x.size(0)


def divides_by_name(self, x):
    b, _ = x.shape
    return x * (self.weight / b)


def keeps(self, x):
    self.rows = x.size(0)
    return x


def counts(self, x):
    for _ in range(x.shape[0]):
        x = x + 1
    return x


def returns(self, x):
    return x, x.size(0)


def asks_math(self, x):
    return x * math.log(len(x))


def hands_on(self, x):
    return x * self.scale(*x.shape)


def fills(self, x):
    return self.bias.new_full((3,), x.size(0))


GOOD = (
    attention,
    flattens,
    begins_with_zeros,
    interpolates,
    squeezes_and_excites,
    prepends,
    merges,
)
BAD = (divides, divides_by_name, keeps, counts, returns, asks_math, hands_on, fills)


@pytest.mark.parametrize("function", GOOD)
def test_sizes_that_only_shape(function):
    assert not uses_batch_size(function, frozenset({0}))


@pytest.mark.parametrize("function", BAD)
def test_sizes_that_are_used(function):
    assert uses_batch_size(function, frozenset({0}))


def test_it_goes_by_the_dimension_of_the_batch():
    assert not uses_batch_size(divides, frozenset({1}))


def test_what_cannot_be_read_is_not_trusted():
    made = eval("lambda self, x: x.view(x.size(0), -1)")
    assert uses_batch_size(made, frozenset({0}))
