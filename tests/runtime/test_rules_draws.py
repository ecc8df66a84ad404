"""Draws under ``shared_draws``: every worker gets its rows of what the script alone would draw."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.cases import Case, table
from tests.runtime.cases import case as any_case
from torch import distributions, nn

import reparto
from reparto.testing import run_workers


def case(given, function, sizes=((2, 7), (3, 10), (4, 3), (3, 1))):
    return any_case(given, function, list(sizes), shared_draws=True)


DROPOUTS = {
    "dropout": case("s:b,4", lambda x: (F.dropout(x), F.dropout(x, 0.3), torch.dropout(x, 0.2, True), nn.Dropout(0.1)(x))),
    "by keyword": case("s:b,4", lambda x: F.dropout(input=x, p=0.3, training=True)),
    "off": case("s:b,4", lambda x: (F.dropout(x, 0.5, False), F.dropout(x, 0.0), F.dropout(x, training=False), F.dropout(x, 1.0))),
    "after something": case("s:b,4", lambda x: F.dropout((x * 2).relu(), 0.5) @ torch.ones(4, 2)),
    "of columns": case("s:4,b@1", lambda x: (F.dropout(x), F.dropout(x.t()), F.dropout(x.t() * 2)), [(2, 7), (4, 7)]),
    "of time first": case("s:5,b,3@1", lambda x: F.dropout(x)),
    "permuted": case("s:5,b,3@1", lambda x: (F.dropout(x.transpose(0, 1)), F.dropout(x.permute(2, 1, 0))), [(2, 7), (3, 10), (4, 7)]),
    "permuted and computed": case("s:5,b,3@1", lambda x: F.dropout(x.transpose(0, 1) + 1), [(2, 7), (4, 7)]),
    "channels last": case("s:b,3,4,4", lambda x: F.dropout(x.to(memory_format=torch.channels_last)), [(2, 7), (4, 7)]),
    "channels": case("s:b,4,3,3", lambda x: (F.dropout2d(x), F.dropout1d(x.flatten(2)), F.dropout3d(x[..., None]), nn.Dropout2d(0.3)(x))),
    "alpha": case("s:b,4,3", lambda x: (F.alpha_dropout(x, 0.5, True), F.feature_alpha_dropout(x, 0.5, True), nn.AlphaDropout(0.2)(x))),
    "in place": any_case("s:b,4", lambda x: (F.dropout(x, 0.5, True, True), x), [(2, 7), (4, 3)], shared_draws=True, writes=True),
    "in place of a layer": any_case("s:b,4", lambda x: (nn.Dropout(0.5, inplace=True)(x), x), [(2, 7)], shared_draws=True, writes=True),
    "merged": case("s:b,5,3", lambda x: F.dropout(x.view(-1, 3))),
    "of a replicated tensor": case("s:b,4 P:4", lambda x, w: x * F.dropout(w) + F.dropout(x)),
    "attention": case("s:b,2,3,4", lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.4)),
}  # fmt: skip


@table(DROPOUTS)
def test_dropout(case):
    case.run()


DRAWS = {
    "likes": case("s:b,4", lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 9), torch.randint_like(x, 2, 5))),
    "likes of a permuted tensor": case("s:5,b@1", lambda x: (torch.rand_like(x.t()), torch.randn_like(x.t() * 2)), [(2, 7), (4, 7)]),
    "in another type": case("i9:b,4", lambda x: torch.rand_like(x, dtype=torch.float64)),
    "by size": case("s:b,4", lambda x: (torch.randn(x.size(0), 3), torch.rand(x.shape), torch.randn(*x.shape), torch.randn(2, x.size(0)))),
    "whole numbers by size": case("s:b,4", lambda x: (torch.randint(0, 9, (x.size(0),)), torch.randint(9, (x.size(0), 2)), torch.randint(high=5, size=(x.size(0),)))),
    "whole numbers below the size": case("s:b,4", lambda x: (torch.randint(0, x.size(0), (3,)), torch.randint(x.size(0), (x.size(0),)), torch.randint(0, len(x), (len(x),)))),
    "normal": case("s:b,4", lambda x: (torch.normal(0.0, 1.0, (x.size(0), 2)), torch.normal(x.detach(), 1.0), torch.normal(0.0, x.exp().detach()), torch.normal(mean=0.0, std=1.0, size=x.shape))),
    "by methods": case("s:b,4", lambda x: (torch.empty_like(x).normal_(), x.detach().clone().uniform_(-1, 1), x.new_empty(x.size(0), 2).exponential_(), torch.zeros(x.size(0)).random_(9))),
    "by methods on a permuted tensor": case("s:5,b@1", lambda x: (torch.empty_like(x.t()).normal_(), (x.t() * 1).detach().uniform_()), [(2, 7), (4, 7)]),
    "bernoulli": case("u:b,4", lambda p: (torch.bernoulli(p.detach()), p.detach().bernoulli(), torch.zeros_like(p).bernoulli_(0.3), torch.empty_like(p).bernoulli_(p.detach()))),
    "poisson": case("u:b,4", lambda p: torch.poisson(p.detach() * 5)),
    "multinomial": case("u:b,4", lambda p: (torch.multinomial(p, 1), p.multinomial(3), torch.multinomial(p, num_samples=2, replacement=True))),
    "multinomial of the batch": case("u:b", lambda p: torch.multinomial(p, 1)),
    "gumbel": case("s:b,4", lambda x: (F.gumbel_softmax(x), F.gumbel_softmax(x, tau=0.5, hard=True), F.gumbel_softmax(x, dim=0))),
    "rrelu": case("s:b,4", lambda x: (F.rrelu(x, training=True), nn.RReLU()(x))),
    "permutation": case("s:b,4", lambda x: (x[torch.randperm(x.size(0))], torch.randperm(len(x)), x[torch.randperm(4)[:1] % len(x)])),
    "mixup": case("s:b,4", lambda x: 0.3 * x + 0.7 * x[torch.randperm(x.size(0))]),
    "with a generator": case("s:b,4", lambda x: (torch.randn(x.size(0), 2, generator=torch.Generator().manual_seed(4)), torch.bernoulli(x.sigmoid().detach(), generator=torch.Generator().manual_seed(5)))),
    "numpy's size": case("s:b,4", lambda x: x + torch.from_numpy(__import__("numpy").random.RandomState(0).randn(x.size(0), 4))),
    "fractional pool": case("s:b,2,6,6", lambda x: F.fractional_max_pool2d(x, 2, output_size=3)),
    "noise and gradient": case("s:b,4 s:b,4", lambda m, s: m + (0.5 * s).exp() * torch.randn_like(s)),
    "after a draw of a parameter": case("s:b,4 P:4", lambda x, w: (torch.rand_like(w), torch.rand_like(x), torch.rand(3), torch.randn(x.size(0)))),
}  # fmt: skip


@table(DRAWS)
def test_draws(case):
    case.run()


DISTRIBUTIONS = {
    "normal": case("s:b,4", lambda x: (lambda d: (d.rsample(), d.sample(), d.log_prob(x), d.entropy().mean()))(distributions.Normal(x, torch.ones_like(x)))),
    "categorical": case("s:b,4", lambda x: (lambda d: (lambda a: (a, d.log_prob(a), d.entropy()))(d.sample()))(distributions.Categorical(logits=x))),
    "bernoulli": case("u:b,4", lambda p: distributions.Bernoulli(p).sample()),
    "divergence": case("s:b,4", lambda x: distributions.kl_divergence(distributions.Normal(x, x.exp()), distributions.Normal(0.0, 1.0)).sum(1).mean()),
    "relaxed": case("s:b,4", lambda x: distributions.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x).rsample()),
}  # fmt: skip


@table(DISTRIBUTIONS)
def test_distributions(case):
    case.run()


@pytest.mark.parametrize("regions", [True, False])
def test_a_model_with_dropout_is_the_same_as_alone(regions):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 2))

    def function(x):
        net = copy.deepcopy(model)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in net.parameters()]

    Case("n:b,4", function, [(2, 7), (4, 3)], {"shared_draws": True, "regions": regions}).run()


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_dropout_is_the_same_as_alone(layer):
    torch.manual_seed(1)
    module = layer(3, 4, num_layers=2, dropout=0.5)
    case("s:5,b,3@1", lambda x: copy.deepcopy(module)(x)[0]).run()


@pytest.mark.parametrize("batch_first", [True, False])
def test_dropout_of_attention_is_the_same_as_alone(batch_first):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=batch_first)
    attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=batch_first)
    given = "s:b,3,4" if batch_first else "s:3,b,4@1"
    sizes = [(2, 7), (3, 10), (4, 7)]
    Case(
        given,
        lambda x: (copy.deepcopy(layer)(x), copy.deepcopy(attention)(x, x, x)),
        sizes,
        {"shared_draws": True},
    ).run()


def test_without_shared_draws_workers_draw_apart_and_stay_in_step():
    def function():
        x = reparto.shard(torch.ones(7, 100))
        mask = F.dropout(x, 0.5).bool()
        return mask.tolist(), torch.rand(3)

    for mask, common in run_workers(3, function):
        assert len({tuple(row) for row in mask}) == 7
        assert torch.equal(common, torch.rand(3, generator=torch.Generator().manual_seed(0)))
