"""Backward passes of unusual kinds: twice differentiated, by hand, within each other."""

import copy

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from tests.runtime.steps import batches, model, same, state
from torch import nn

import reparto


def penalty(critic, real, fake):
    mix = torch.rand(real.size(0), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between)
    (slope,) = torch.autograd.grad(
        outputs=score, inputs=between, grad_outputs=torch.ones_like(score), create_graph=True
    )
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_gradient_penalty(norm):
    layers = {"none": nn.Identity(), "batch": nn.BatchNorm1d(5), "layer": nn.LayerNorm(5)}

    def train(x, y):
        torch.manual_seed(1)
        critic = nn.Sequential(
            nn.Linear(4, 5), copy.deepcopy(layers[norm]), nn.Tanh(), nn.Linear(5, 1)
        )
        optimizer = torch.optim.Adam(critic.parameters(), 0.01)
        log = []
        for a, _ in batches(x, y):
            fake = torch.randn(a.size(0), 4)
            optimizer.zero_grad()
            loss = critic(fake).mean() - critic(a).mean() + 10 * penalty(critic, a, fake)
            loss.backward()
            optimizer.step()
            log.append(loss.item())
        return state(critic), log

    same(train, shared_draws=True, tolerance=1e-8)


def test_adversarial_examples():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        hits = []
        for a, b in batches(x, y):
            a.requires_grad = True
            F.cross_entropy(net(a), b, ignore_index=1).backward()
            worse = a + 0.1 * a.grad.sign()
            clean = a.detach()
            delta = torch.zeros_like(clean).requires_grad_()
            for _ in range(2):
                (step,) = torch.autograd.grad(F.cross_entropy(net(clean + delta), b), delta)
                delta = (delta + 0.1 * step).clamp(-0.2, 0.2).detach().requires_grad_()
            optimizer.zero_grad()
            F.cross_entropy(
                net(torch.cat([worse.detach(), clean + delta])), torch.cat([b, b])
            ).backward()
            optimizer.step()
            hits.append((net(worse).argmax(1) == b).sum().item())
        return state(net), hits, a.grad

    same(train)


def test_retained_gradients():
    def train(x, y):
        net = model()
        a, b = next(batches(x, y))
        hidden = net[0](a)
        hidden.retain_grad()
        square = net[2].weight * net[2].weight
        square.retain_grad()
        loss = F.cross_entropy(F.linear(hidden.tanh(), square), b, ignore_index=0)
        loss.backward()
        return hidden.grad, square.grad, net[2].weight.grad, square.grad

    same(train)


def test_second_order_steps():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y):
            weights = dict(net.named_parameters())
            inner = F.cross_entropy(torch.func.functional_call(net, weights, (a,)), b)
            grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            fast = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads, strict=True)}
            outer = F.cross_entropy(torch.func.functional_call(net, fast, (a,)), b)
            optimizer.zero_grad()
            outer.backward()
            optimizer.step()
        return state(net)

    same(train)


def test_a_step_beside_the_first_one():
    """Sharpness-aware: step to a worse place, take the gradient there, go back."""

    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y):
            F.cross_entropy(net(a), b).backward()
            with torch.no_grad():
                norm = torch.stack([one.grad.norm() for one in net.parameters()]).norm()
                moved = [one.grad * (0.05 / norm) for one in net.parameters()]
                for one, move in zip(net.parameters(), moved, strict=True):
                    one.add_(move)
            optimizer.zero_grad()
            F.cross_entropy(net(a), b).backward()
            with torch.no_grad():
                for one, move in zip(net.parameters(), moved, strict=True):
                    one.sub_(move)
            optimizer.step()
            optimizer.zero_grad()
        return state(net)

    same(train)


def test_a_step_within_the_backward_pass():
    def train(x, y):
        net = model()
        optimizers = {one: torch.optim.SGD([one], 0.1) for one in net.parameters()}

        def step(one):
            optimizers[one].step()
            optimizers[one].zero_grad()

        for one in net.parameters():
            one.register_post_accumulate_grad_hook(step)
        for a, b in batches(x, y):
            F.cross_entropy(net(a), b).backward()
        return state(net)

    same(train)


def test_gradients_are_read_within_the_backward_pass():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        seen = []
        for one in net.parameters():
            one.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
        for a, b in batches(x, y):
            optimizer.zero_grad()
            F.cross_entropy(net(a), b).backward()
            optimizer.step()
        return state(net), seen

    same(train)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_activations(reentrant):
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y):
            optimizer.zero_grad()
            hidden = torch.utils.checkpoint.checkpoint(
                net[:2], a.requires_grad_(), use_reentrant=reentrant
            )
            F.cross_entropy(net[2](hidden), b).backward()
            optimizer.step()
        return state(net)

    same(train)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_part_draws_and_normalises_the_same_twice(reentrant):
    from reparto.testing import run_workers

    def train(checkpointed):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 5))
        outer = nn.Sequential(Checkpointed(net, checkpointed), nn.Dropout(0.5), nn.Linear(5, 2))
        grads = []
        for _ in range(4):
            outer.zero_grad()
            outer(reparto.shard(torch.randn(9, 4)).requires_grad_()).square().mean().backward()
            grads.append([one.grad.clone() for one in outer.parameters()])
        return grads

    class Checkpointed(nn.Module):
        def __init__(self, net, on):
            super().__init__()
            self.net, self.on = net, on

        def forward(self, x):
            if not self.on:
                return self.net(x)
            return torch.utils.checkpoint.checkpoint(self.net, x, use_reentrant=reentrant)

    once, twice = (run_workers(2, lambda on=on: train(on))[1] for on in (False, True))
    torch.testing.assert_close(twice, once, rtol=0, atol=1e-12)


def test_backward_needs_a_scalar_as_torch_says():
    def train(x, y):
        net = model()
        a, _ = next(batches(x, y))
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
            net(a).backward()
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
            net[0].weight.exp().backward()
        net(a).backward(torch.ones(5, 3))
        (net(a) * 2).sum().backward(torch.tensor(3.0))
        torch.autograd.backward([net(a).sum(), net(a).mean()])
        torch.autograd.backward(net(a), grad_tensors=net(a).detach())
        return [one.grad for one in net.parameters()]

    same(train)


def test_gradients_of_several_inputs():
    def train(x, y):
        net = model()
        a, b = next(batches(x, y))
        a.requires_grad_()
        loss = F.cross_entropy(net(a), b, ignore_index=0)
        unused = torch.zeros(2, requires_grad=True)
        weight = net[0].weight
        got = torch.autograd.grad(loss, [a, weight, unused], retain_graph=True, allow_unused=True)
        both = torch.autograd.grad([loss, net(a).sum()], [weight, a], retain_graph=True)
        loss.backward(inputs=[weight])
        return got[0], got[1], got[2] is None, both, weight.grad, net[0].bias.grad is None

    same(train)
