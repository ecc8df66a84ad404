"""Attention that drops weights, with what is dropped drawn on the CPU, as the script alone does."""

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import accelerated, adam, alike, data, epochs, state
from torch import Tensor, nn

from reparto.runtime.accelerate import _drawn

ATTEND = F.scaled_dot_product_attention


def drawn(*args, **kwargs):
    """What `_drawn` makes of a call."""
    assert _drawn.draws(ATTEND)
    func, args, kwargs = _drawn.on_cpu(ATTEND, args, kwargs)
    return func, func(*args, **kwargs)


def inputs(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(*shape, generator=generator, dtype=dtype) for _ in range(3)]


MASK = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)) > 0.4
MASK[2] = False  # a row that may look at nothing


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"is_causal": True},
        {"attn_mask": MASK},
        {"attn_mask": MASK.double()},
        {"scale": 0.3},
        {"scale": -0.3},
    ],
    ids=["plain", "causal", "mask", "added mask", "scale", "scale below zero"],
)
def test_it_is_what_torch_computes(how):
    query, key, value = inputs(2, 3, 5, 4)
    torch.manual_seed(9)
    plain = ATTEND(query, key, value, dropout_p=0.4, **how)
    torch.manual_seed(9)
    func, mine = drawn(query, key, value, dropout_p=0.4, **how)
    assert func is not ATTEND
    torch.testing.assert_close(mine, plain)
    after = torch.rand(3)  # as many numbers were drawn
    torch.manual_seed(9)
    ATTEND(query, key, value, dropout_p=0.4, **how)
    assert torch.equal(torch.rand(3), after)


def test_heads_that_share_keys():
    query, (key, value) = inputs(2, 4, 5, 4)[0], [one[:, :2] for one in inputs(2, 4, 5, 4)[1:]]
    torch.manual_seed(9)
    plain = ATTEND(query, key, value, None, 0.4, enable_gqa=True)
    torch.manual_seed(9)
    torch.testing.assert_close(drawn(query, key, value, None, 0.4, enable_gqa=True)[1], plain)


def test_attention_that_drops_nothing_stays_as_it_is():
    query, key, value = inputs(1, 5, 4)
    assert _drawn.on_cpu(ATTEND, (query, key, value), {"is_causal": True})[0] is ATTEND


def test_batches_that_are_spread_out():
    """Queries are the same for all batches of keys."""
    query, key, value = inputs(1, 3, 5, 4)[0], *inputs(2, 3, 6, 4)[1:]
    torch.manual_seed(9)
    plain = ATTEND(query, key, value, None, 0.4)
    torch.manual_seed(9)
    torch.testing.assert_close(drawn(query, key, value, None, 0.4)[1], plain)


def test_gradients_are_those_of_torch():
    found = []
    for attend in (ATTEND, lambda *args, **how: drawn(*args, **how)[1]):
        leaves = [one.requires_grad_() for one in inputs(2, 5, 4)]
        torch.manual_seed(9)
        attend(*leaves, attn_mask=MASK, dropout_p=0.4).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(
    "call",
    [
        (F.dropout, (), {"p": 0.5}),
        (torch.rand_like, (), {}),
        (torch.randn_like, (), {}),
        (torch.rand_like, (), {"dtype": torch.float32}),
    ],
    ids=["dropout", "rand_like", "randn_like", "other type"],
)
@pytest.mark.parametrize("size", [(3, 5), (70, 60)])
def test_draws_fill_memory_as_it_lies(call, size):
    """Of a transposed tensor, torch draws the columns first."""
    func, args, kwargs = call
    x = inputs(*size)[0].t()
    torch.manual_seed(9)
    plain = func(x, *args, **kwargs)
    torch.manual_seed(9)
    found = _drawn.on_cpu(func, (x, *args), kwargs)
    mine = found[0](*found[1], **found[2]) if type(found) is tuple else found
    torch.testing.assert_close(mine, plain)


def test_draws_in_place_fill_memory_as_it_lies():
    views = (Tensor.t, lambda one: one[:, ::2], lambda one: one)
    for view in views:
        plain, mine = (view(torch.zeros(60, 70)) for _ in range(2))
        torch.manual_seed(9)
        plain.normal_()
        torch.manual_seed(9)
        func, args, _ = _drawn.on_cpu(Tensor.normal_, (mine,), {})
        assert torch.equal(func(*args), plain)


class Encoder(nn.Module):
    """Attention that drops weights, over sequences that lie across memory."""

    def __init__(self, **how):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, 0.4, **how)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        x = x.reshape(-1, 5, 4)
        return self.out(self.layer(x)).reshape(-1, 3)


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_of_layers_is_drawn_on_the_cpu(player, batch_first):
    """The tape has no call that would draw on a GPU; masks are those of the script alone."""

    def train():
        model = Encoder(batch_first=batch_first)
        optimizer = adam(model)

        def step(_, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return epochs(step), state(model)

    engine = alike(train, player, shared_draws=True)
    calls = [call.func for one in engine.followers for call in one.tape.calls]
    assert _drawn._attended in calls
    assert not any(map(_drawn.draws, calls))
    assert F.multi_head_attention_forward not in calls


def test_weights_that_are_asked_for_are_drawn_there_too():
    attention = nn.MultiheadAttention(4, 2, dropout=0.4, batch_first=True)
    x = data()[0].reshape(-1, 5, 4)
    torch.manual_seed(9)
    plain = attention(x, x, x)
    with accelerated(shared_draws=True) as accelerator:
        seen = []
        accelerator.home.run = lambda func, args, kwargs: (
            seen.append(func) or func(*args, **kwargs)
        )
        torch.manual_seed(9)
        torch.testing.assert_close(attention(x, x, x), plain)
    assert F.multi_head_attention_forward not in seen
    assert not any(map(_drawn.draws, seen))
