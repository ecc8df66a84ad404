"""After backward: ``.grad`` is the global gradient, whoever asks first and however often."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from tests.runtime.steps import batches, model, same, state
from torch import nn

import reparto
from reparto.runtime._current import current
from reparto.testing import run_workers

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw, foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "adam, fused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    def train(x, y):
        net = model()
        optimizer = OPTIMIZERS[name](net.parameters())
        losses = []
        for a, b in batches(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(a), b)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return state(net), losses

    same(train, tolerance=1e-9)


def test_lbfgs_and_its_closure():
    def train(x, y):
        net = model()
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4, line_search_fn="strong_wolfe")
        a, b = reparto.shard(x), reparto.shard(y)

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(net(a), b)
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure)) for _ in range(3)]
        return state(net), losses

    same(train, tolerance=1e-9)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("of", ["optimizer", "module"])
def test_zeroing(to_none, of):
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y):
            zeroed = optimizer if of == "optimizer" else net
            zeroed.zero_grad(set_to_none=to_none)
            F.cross_entropy(net(a), b).backward()
            optimizer.step()
        return state(net), [one.grad for one in net.parameters()]

    same(train)


def test_zeroing_by_hand():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for number, (a, b) in enumerate(batches(x, y, 3)):
            for one in net.parameters():
                if number % 2:
                    one.grad = None
                elif one.grad is not None:
                    one.grad.zero_()
            F.cross_entropy(net(a), b).backward()
            optimizer.step()
        return state(net)

    same(train)


def test_a_part_is_zeroed_and_the_rest_accumulates():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y, 3):
            F.cross_entropy(net(a), b).backward()
            net[0].zero_grad()
            optimizer.step()
        return state(net), [one.grad for one in net.parameters()]

    same(train)


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("ignore", [-100, 1])
def test_accumulation(every, ignore):
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for number, (a, b) in enumerate(batches(x, y, 2), 1):
            (F.cross_entropy(net(a), b, ignore_index=ignore) / every).backward()
            if number % every == 0:
                optimizer.step()
                optimizer.zero_grad()
        return state(net)

    same(train)


def test_gradients_are_read_between_two_passes():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        norms = []
        for a, b in batches(x, y, 3):
            for part in range(2):
                F.cross_entropy(net(a)[:, : 2 + part], b % (2 + part)).backward()
                norms.append(sum(one.grad.norm() ** 2 for one in net.parameters()).item())
            optimizer.step()
            optimizer.zero_grad()
        return state(net), norms

    same(train)


def test_two_losses_one_after_the_other():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y):
            optimizer.zero_grad()
            out = net(a)
            F.cross_entropy(out, b, ignore_index=0).backward(retain_graph=True)
            out.square().mean().backward(retain_graph=True)
            out.square().mean().backward()
            optimizer.step()
        return state(net)

    same(train)


@pytest.mark.parametrize("kind", ["norm", "value", "by hand"])
def test_clipping(kind):
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.5)
        told = []
        for a, b in batches(x, y):
            optimizer.zero_grad()
            F.cross_entropy(net(a), b).backward()
            if kind == "norm":
                told.append(nn.utils.clip_grad_norm_(net.parameters(), 0.1).item())
            elif kind == "value":
                nn.utils.clip_grad_value_(net.parameters(), 0.01)
            else:
                for one in net.parameters():
                    one.grad.data.clamp_(-0.02, 0.02)
            optimizer.step()
        return state(net), told

    same(train)


def test_gradients_that_the_script_keeps_are_its_own():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        held, copies = [], []
        for a, b in batches(x, y):
            optimizer.zero_grad()
            F.cross_entropy(net(a), b).backward()
            optimizer.step()
            held.append([one.grad for one in net.parameters()])
            copies.append([one.grad.clone() for one in net.parameters()])
        return held, copies

    same(train)


def test_unused_and_frozen_parameters():
    def train(x, y):
        net, spare, cold = model(), nn.Linear(4, 3), nn.Linear(3, 3).requires_grad_(False)
        optimizer = torch.optim.Adam([*net.parameters(), *spare.parameters()], 0.1)
        seen = []
        for number, (a, b) in enumerate(batches(x, y)):
            optimizer.zero_grad()
            out = cold(net(a)) + (spare(a) if number == 1 else 0)
            F.cross_entropy(out, b).backward()
            seen.append([one.grad is None for one in spare.parameters()])
            optimizer.step()
        return state(net, spare, cold), seen

    torch.manual_seed(2)
    same(train)


def test_tied_weights_and_parameter_groups():
    def train(x, y):
        net = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        torch.manual_seed(1)
        nn.init.normal_(net[0].weight)
        net[1].weight = net[0].weight
        optimizer = torch.optim.SGD([{"params": net[0].parameters(), "lr": 0.1}], lr=0.3)
        for number, (a, _) in enumerate(batches(x, y)):
            if number == 1:
                optimizer.add_param_group({"params": [net[1].bias]})
            optimizer.zero_grad()
            net[1](net[0](a).tanh()).square().sum().backward()
            optimizer.step()
        return state(net)

    same(lambda x, y: (torch.manual_seed(3), train(x, y))[1])


def test_two_optimizers_against_each_other():
    def train(x, y):
        torch.manual_seed(1)
        maker, judge = nn.Linear(2, 4), nn.Linear(4, 1)
        one = torch.optim.Adam(maker.parameters(), 0.01)
        two = torch.optim.Adam(judge.parameters(), 0.01)
        log = []
        for a, _ in batches(x, y):
            noise = torch.randn(a.size(0), 2)
            fake = maker(noise)
            real, false = torch.ones(a.size(0), 1), torch.zeros(a.size(0), 1)
            two.zero_grad()
            loss = F.binary_cross_entropy_with_logits(judge(a), real)
            loss = loss + F.binary_cross_entropy_with_logits(judge(fake.detach()), false)
            loss.backward()
            two.step()
            one.zero_grad()
            F.binary_cross_entropy_with_logits(judge(fake), real).backward()
            one.step()
            log.append(loss.item())
        return state(maker, judge), log, [p.grad for p in judge.parameters()]

    same(train, shared_draws=True, tolerance=1e-9)


def test_one_optimizer_zeroes_what_another_one_steps():
    def train(x, y):
        net = model()
        one = torch.optim.SGD(net[0].parameters(), 0.1)
        two = torch.optim.SGD(net[2].parameters(), 0.1)
        for number, (a, b) in enumerate(batches(x, y, 2)):
            net.zero_grad()
            F.cross_entropy(net(a), b).backward()
            one.step()
            if number % 2:
                two.step()
            else:
                two.zero_grad()
        return state(net)

    same(train)


def test_updates_written_by_hand():
    def train(x, y):
        torch.manual_seed(1)
        w = torch.randn(4, 3, requires_grad=True)
        b = torch.zeros(3, requires_grad=True)
        for number, (a, c) in enumerate(batches(x, y)):
            loss = F.cross_entropy(a @ w + b, c)
            loss.backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
                b -= 0.1 * b.grad
                if number % 2:
                    w.grad.zero_()
                    b.grad.zero_()
                else:
                    w.grad = b.grad = None
        return w, b, loss.item()

    same(train)


def test_updates_of_modules_written_by_hand():
    def train(x, y):
        net = model()
        for a, b in batches(x, y):
            net.zero_grad()
            F.cross_entropy(net(a), b, ignore_index=2).backward()
            for one in net.parameters():
                one.data.add_(one.grad, alpha=-0.1)
        return state(net)

    same(train)


def test_gradients_that_the_script_puts_there():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for number, (a, b) in enumerate(batches(x, y, 3)):
            loss = F.cross_entropy(net(a), b)
            grads = torch.autograd.grad(loss, list(net.parameters()))
            for one, grad in zip(net.parameters(), grads, strict=True):
                one.grad = grad * 2
            if number % 2:  # on top of what was put there
                net(a).square().mean().backward()
            optimizer.step()
        return state(net)

    same(train)


def test_gradients_are_put_in_place_of_those_of_a_pass():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y, 3):
            optimizer.zero_grad()
            F.cross_entropy(net(a), b).backward()
            net[0].weight.grad = torch.ones_like(net[0].weight)
            net[0].bias.grad = None
            optimizer.step()
        return state(net)

    same(train)


def test_hooks_of_parameters_see_the_global_gradient():
    def train(x, y):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        seen = []
        net[0].weight.register_hook(lambda grad: seen.append(grad.norm().item()))
        net[2].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        for a, b in batches(x, y):
            optimizer.zero_grad()
            F.cross_entropy(net(a), b).backward()
            optimizer.step()
        return state(net), seen

    same(train)


def test_hooks_of_activations_see_the_global_batch():
    def train(x, y):
        net, seen = model(), []
        for a, b in batches(x, y):
            hidden = net[0](a)
            hidden.register_hook(lambda grad: seen.append((tuple(grad.shape), grad.sum().item())))
            hidden.register_hook(lambda grad: grad * 2)
            hidden.register_hook(lambda grad: grad / grad.norm())
            F.cross_entropy(net[2](hidden.tanh()), b).backward()
        return seen, [one.grad for one in net.parameters()]

    same(train)


def test_scaled_gradients():
    def train(x, y):
        net = model().float()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1)
        scales = []
        for number, (a, b) in enumerate(batches(x.float(), y, 3)):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(a), b) * (float("inf") if number == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return state(net), scales

    same(train, tolerance=1e-5)


def test_stale_gradients_of_frozen_layers_are_not_summed_again():
    def train(x, y):
        net = model()
        first = torch.optim.SGD(net.parameters(), 0.1)
        for a, b in batches(x, y):
            first.zero_grad()
            F.cross_entropy(net(a), b).backward()
            first.step()
        net[0].requires_grad_(False)
        head = nn.Linear(5, 3)
        net.append(nn.Linear(3, 3))
        torch.manual_seed(2)
        norms = []
        for stage in ([*head.parameters()], [*net[2].parameters(), *head.parameters()]):
            second = torch.optim.SGD(stage, 0.1)
            net[2].requires_grad_(len(stage) > 2)
            for a, b in batches(x, y):
                second.zero_grad()
                F.cross_entropy(head(net[:2](a)) + net[2](net[:2](a)), b).backward()
                norms.append(nn.utils.clip_grad_norm_(net.parameters(), 1.0).item())
                norms.append(net[0].weight.grad.sum().item())
                second.step()
        return state(net, head), norms

    same(train)


def test_optimizers_that_were_made_before_the_run():
    torch.optim.Rprop([nn.Parameter(torch.ones(1))])  # torch wraps the step of a kind once

    def train(x, y):
        net = model()
        optimizer = torch.optim.Rprop(net.parameters(), 0.1)
        for a, b in batches(x, y):
            optimizer.zero_grad()
            F.cross_entropy(net(a), b).backward()
            optimizer.step()
        world = current()
        assert world is None or world.num_steps == 3
        return state(net)

    same(train)


@pytest.mark.parametrize("eager", [False, True])
def test_layers_that_thaw_later(eager):
    def train(x, y):
        net = model()
        net[0].requires_grad_(False)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        norms = []
        for epoch in range(4):
            if epoch in (1, 3):
                net[0].requires_grad_(True)
            elif epoch == 2:
                net[2].requires_grad_(False)
            for a, b in batches(x, y):
                optimizer.zero_grad(set_to_none=eager)
                F.cross_entropy(net(a), b).backward()
                norms.append(nn.utils.clip_grad_norm_(net.parameters(), 1.0).item())
                optimizer.step()
        return state(net), norms

    same(train)


def test_layers_that_thaw_while_terms_add_up():
    def train(x, y):
        net = model()
        net[0].requires_grad_(False)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            for number, (a, b) in enumerate(batches(x, y)):
                net[0].requires_grad_(number > 0)
                F.cross_entropy(net(a), b).backward()
            optimizer.step()
            optimizer.zero_grad()
        return state(net)

    same(train)


def weighted(outputs, labels):
    return F.cross_entropy(outputs, labels, weight=torch.tensor([1.0, 5.0, 0.2]), ignore_index=0)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-0.01, 0.01)


@pytest.mark.parametrize("kind", ["parameter", "function", "module", "early", "late"])
def test_hooks_see_the_gradient_of_the_whole_weighted_mean(kind):
    def train(x, y):
        net = model()
        seen = []

        def arrived(p):
            seen.append(p.grad.norm().item())

        if kind == "early":
            net[0].weight.register_post_accumulate_grad_hook(arrived)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        if kind == "parameter":
            net[0].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
        if kind == "module":
            net[2].register_full_backward_hook(
                lambda module, inputs, outputs: (inputs[0].clamp(-0.01, 0.01),)
            )
        if kind == "late":
            net[2].bias.register_post_accumulate_grad_hook(arrived)
        for a, b in batches(x, y):
            optimizer.zero_grad()
            hidden = net[1](net[0](a))
            if kind == "function":
                hidden = Clipped.apply(hidden)
            weighted(net[2](hidden), b).backward()
            optimizer.step()
        return state(net), seen

    same(train)


def test_complex_parameters():
    def train(x, y):
        torch.manual_seed(1)
        weight = nn.Parameter(torch.randn(3, 5, dtype=torch.complex128))
        bias = nn.Parameter(torch.zeros(5))
        optimizer = torch.optim.SGD([weight, bias], 0.05)
        for a, b in batches(x, y):
            optimizer.zero_grad()
            hidden = torch.fft.irfft(torch.fft.rfft(a) @ weight, n=5) + bias
            F.cross_entropy(hidden, b).backward()
            optimizer.step()
        return torch.view_as_real(weight.detach()), bias.detach()

    same(train)


def test_loss_that_is_told_is_that_before_scaling():
    def script():
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        loss = (net(reparto.shard(torch.ones(6, 4))) - 1).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        return current().known_loss(), loss.item()

    for told, loss in run_workers(2, script):
        assert told == pytest.approx(loss)
