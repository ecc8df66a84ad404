"""Attention that drops weights, with what is dropped drawn on the CPU, as the script alone does."""

import pytest
import torch
import torch.nn.functional as F

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
    ],
    ids=["plain", "causal", "mask", "added mask", "scale"],
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
