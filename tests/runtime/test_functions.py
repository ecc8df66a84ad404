"""Operations with a backward pass of the script's own, and compiled TorchScript."""

import pytest
import torch
from tests.runtime.cases import case, table
from torch import nn


class Exp(torch.autograd.Function):
    """Saves its result, as torch's own tutorial does."""

    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * result


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= ctx.limit), None


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.alpha, None


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        out = x.mm(weight.t())
        return out if bias is None else out + bias.unsqueeze(0).expand_as(out)

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = grad.mm(weight)
        if ctx.needs_input_grad[1]:
            of_weight = grad.t().mm(x)
        if bias is not None and ctx.needs_input_grad[2]:
            of_bias = grad.sum(0)
        return of_x, of_weight, of_bias


class Quantize(torch.autograd.Function):
    """Setting up its context apart, with two results of which one has no gradient."""

    @staticmethod
    def forward(x, table):
        index = torch.cdist(x, table).argmin(1)
        return table[index], index

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, table = inputs
        ctx.save_for_backward(output[1], table)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        index, table = ctx.saved_tensors
        return grad, torch.zeros_like(table).index_add_(0, index, grad)


class Mean(torch.autograd.Function):
    """Looks across the batch in both passes, and gives one number."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean()

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(ctx.shape) / ctx.shape.numel()


class Centre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x - x.mean(0)

    @staticmethod
    def backward(ctx, grad):
        return grad - grad.mean(0)


class Clip(torch.autograd.Function):
    """Changes the gradient in a way that is not linear."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / grad.norm().clamp(min=1)


FUNCTIONS = {
    "exp": case("s:b,4", lambda x: Exp.apply(x) * 2),
    "straight through": case("s:b,4", lambda x: StraightThrough.apply(x, 0.7)),
    "reverse": case("s:b,4 P:4,2", lambda x, w: Reverse.apply(x @ w, 0.3).softmax(1)),
    "linear": case("s:b,4 P:3,4 P:3", lambda x, w, c: (Linear.apply(x, w, c), Linear.apply(x, w))),
    "quantize": case("s:b,4 P:5,4", lambda x, t: Quantize.apply(x, t)),
    "mean": case("s:b,4", lambda x: (Mean.apply(x), Mean.apply(x * 2) + x.sum())),
    "centre": case("s:b,4", lambda x: Centre.apply(x)),
    "clip": case("s:b,4", lambda x: Clip.apply(x) * 9),
    "of a parameter": case("P:4 s:b,4", lambda w, x: Exp.apply(w) * x + Clip.apply(w)),
    "of a sum": case("s:b,4", lambda x: Exp.apply(x.mean(0)) + Exp.apply(x.mean())),
    "in a row": case("s:b,4", lambda x: Exp.apply(StraightThrough.apply(Exp.apply(x * 0.1), 2.0))),
    "without gradient": case("n:b,4", lambda x: (Exp.apply(x), Reverse.apply(x, 1.0))),
}  # fmt: skip


@table(FUNCTIONS)
def test_functions(case):
    case.run()


def test_a_function_within_a_module_that_is_called_again_and_again():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return StraightThrough.apply(Centre.apply(self.linear(x)), 0.5)

    torch.manual_seed(1)
    block = Block()
    case("s:b,4", lambda x: [block(x * k) for k in (1, 2, 3)], [(2, 7), (4, 3)]).run()


def gated(x, w):
    return torch.tanh(x @ w) * torch.sigmoid(x @ w) + x.mean()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["script", "trace"])
def test_torchscript(how):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    example = torch.randn(3, 4), torch.randn(4, 4)
    if how == "script":
        function, module = torch.jit.script(gated), torch.jit.script(net)
    else:
        function, module = torch.jit.trace(gated, example), torch.jit.trace(net, example[:1])
    both = case("s:b,4 P:4,4", lambda x, w: (function(x, w), module(x), module(x * 2)), [(2, 7)])
    both.run()
