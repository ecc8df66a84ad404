"""Element by element: operators, functions of one tensor, conversions, in-place forms."""

import math
import operator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.runtime.cases import Case, case, kept, table, written

OPERATORS = {
    name: getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow eq ne lt le gt ge".split()
}
OPERANDS = {
    "a number": ("u:b,4", lambda f, x: f(x, 1.5)),
    "a whole number": ("u:b,4", lambda f, x: f(x, 2)),
    "from a number": ("u:b,4", lambda f, x: f(2.5, x)),
    "a number of numpy": ("u:b,4", lambda f, x: f(x, np.float64(1.5))),
    "another shard": ("u:b,4 u:b,4", lambda f, x, y: f(x, y)),
    "a column": ("u:b,4 u:b,1", lambda f, x, y: f(x, y)),
    "a replicated row": ("u:b,4 U:4", lambda f, x, y: f(x, y)),
    "a replicated batch": ("u:b,4 U:b,4", lambda f, x, y: f(y, x)),
    "a replicated column": ("u:b,4 U:b,1", lambda f, x, y: f(x, y)),
    "a replicated row of one": ("u:b,4 U:1,4", lambda f, x, y: f(x, y)),
    "a replicated scalar": ("u:b,4 U:", lambda f, x, y: f(x, y)),
    "more dimensions": ("u:b,4 U:3,b,4", lambda f, x, y: f(x, y)),
    "fewer dimensions": ("u:b,4 u:4@0", lambda f, x, y: f(x, y)),
    "the second dimension": ("u:4,b@1 u:4,b@1", lambda f, x, y: f(x, y)),
    "the last dimension and a row": ("u:4,b@1 U:b", lambda f, x, y: f(x, y)),
    "another dimension": ("u:b,b@0 u:b,b@1", lambda f, x, y: f(x, y)),
    "a batch of one that is stretched": ("u:1,4 U:b,4", lambda f, x, y: f(x, y)),
    "a shard of one that is stretched": ("u:b,4 u:1,4", lambda f, x, y: f(x, y)),
    "a column against a row": ("u:b,1 u:1,b@1", lambda f, x, y: f(x, y)),
    "its own sum": ("u:b,4", lambda f, x: f(x, x.sum())),
    "its own mean over the batch": ("u:b,4", lambda f, x: f(x, x.mean(0))),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("operands", OPERANDS)
def test_operators(name, operands):
    given, function = OPERANDS[operands]
    if name in ("floordiv", "mod"):  # which have no gradient
        given = given.replace("u:", "n:").replace("U:", "N:")
    sizes = [(2, 7), (4, 3)] if name == "mul" else [(3, 4 if "stretched" in operands else 2)]
    Case(given, lambda *args: function(OPERATORS[name], *args), sizes).run()


BITWISE = {
    "and": kept("m:b,4 m:b,4", lambda x, y: x & y),
    "or": kept("m:b,4 M:b,4", lambda x, y: y | x),
    "xor": kept("m:b,4 M:4", lambda x, y: x ^ y),
    "not": kept("m:b,4", lambda x: ~x),
    "shift": kept("i9:b,4", lambda x: ((x << 2) >> 1, 1 << x)),
    "logical": kept("m:b,4 m:b,4", lambda x, y: (torch.logical_and(x, y), x.logical_not())),
    "whole numbers": kept("i9:b,4", lambda x: (x // 2, x % 3, x / 4, -x, abs(x), 7 - x)),
}


@table(BITWISE)
def test_bits_and_whole_numbers(case):
    case.run()


FUNCTIONS = {
    name: kept("u:b,4", getattr(torch, name))
    for name in """abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square sin cos tan asin
    acos atan sinh cosh tanh asinh atanh sigmoid erf erfc erfinv lgamma digamma floor ceil round
    trunc frac sign reciprocal isnan isinf isfinite logit relu positive signbit sinc nan_to_num
    deg2rad rad2deg""".split()
} | {
    f"F.{name}": kept("s:b,4", getattr(F, name))
    for name in """relu relu6 elu selu celu leaky_relu gelu silu mish softplus softsign tanhshrink
    hardtanh hardswish hardsigmoid logsigmoid softshrink hardshrink sigmoid tanh""".split()
}  # fmt: skip


@table(FUNCTIONS)
def test_functions_of_one_tensor(case):
    Case(case.given, case.function, [(3, 4), (3, 2)], case.options).run()


MORE = {
    "clamp": kept("s:b,4", lambda x: (x.clamp(-1, 1), torch.clamp(x, min=0), x.clip(max=0.5))),
    "clamp by tensors": kept("s:b,4 S:4 S:b,1", lambda x, lo, hi: x.clamp(min=lo, max=hi)),
    "maximum": kept("s:b,4 S:b,4", lambda x, y: (torch.maximum(x, y), torch.fmin(y, x))),
    "where": kept("s:b,4 s:b,4", lambda x, y: (torch.where(x > 0, x, y), x.where(x > y, 0.0))),
    "where a number": kept("m:b,4 P:4", lambda m, w: (torch.where(m, 1.0, 0.0), w.where(m, 2.0))),
    "masked fill": kept("s:b,4 m:b,4", lambda x, m: (x.masked_fill(m, -1e9), x.masked_fill(~m, 0))),
    "masked fill by a row": kept("s:b,4 M:4", lambda x, m: x.masked_fill(m, 0.0)),
    "masked fill by a batch": kept("s:b,4 M:b,1", lambda x, m: x.masked_fill(m, 0.0)),
    "lerp": kept("s:b,4 s:b,4 U:b,1", lambda x, y, w: (torch.lerp(x, y, 0.3), x.lerp(y, w))),
    "addcmul": kept("s:b,4 s:b,4 P:4", lambda x, y, w: torch.addcmul(x, y, w, value=0.5)),
    "addcdiv": kept("s:b,4 u:b,4", lambda x, y: torch.addcdiv(x, x, y, value=2)),
    "add alpha": kept("s:b,4 P:4", lambda x, w: (torch.add(x, w, alpha=3), x.sub(w, alpha=2))),
    "rsub": kept("s:b,4", lambda x: (torch.rsub(x, 1), 1 - x, 1 / (x + 9))),
    "div rounding": kept("s:b,4", lambda x: torch.div(x, 0.3, rounding_mode="floor")),
    "atan2, hypot": kept("s:b,4 s:b,4", lambda x, y: (torch.atan2(x, y), torch.hypot(x, y))),
    "pow": kept("u:b,4 u:b,4", lambda x, y: (x**y, 2**x, x**2, torch.pow(x, 0.5), x.pow(3))),
    "xlogy, logaddexp": kept("u:b,4 u:b,4", lambda x, y: (torch.xlogy(x, y), x.logaddexp(y))),
    "isclose": kept("s:b,4 S:b,4", lambda x, y: torch.isclose(x, y)),
    "nan_to_num": kept("s:b,4", lambda x: torch.nan_to_num(x.log(), nan=3.0)),
    "threshold": kept("s:b,4", lambda x: F.threshold(x, 0.1, 5.0)),
    "heaviside": kept("n:b,4 N:4", lambda x, y: torch.heaviside(x, y)),
    "polar": case("n:b,4", lambda x: torch.polar(x.abs(), x).real),
    "complex": case("n:b,4 n:b,4", lambda x, y: torch.complex(x, y).abs()),
    "prelu": kept("s:b,4 P:4", F.prelu),
    "keywords": kept("s:b,4", lambda x: (torch.mul(input=x, other=2), torch.exp(input=x))),
    "out": case("n:b,4", lambda x: torch.mul(x, 2, out=torch.empty(x.shape[0], 4))),
    "one hot": kept("i3:b", lambda y: F.one_hot(y, 3)),
    "one hot of what there is": case("i3:b", lambda y: F.one_hot(y)),
    "masked scatter": case("s:b,4 m:b,4 S:99", lambda x, m, v: x.masked_scatter(m, v)),
}  # fmt: skip


@table(MORE)
def test_functions_of_several_tensors(case):
    case.run()


CONVERSIONS = {
    "float": kept("i9:b,4", lambda x: (x.float(), x.double(), x.to(torch.float32), x.half())),
    "to whole numbers": kept("s:b,4", lambda x: (x.long(), x.int(), x.bool(), x.to(torch.int8))),
    "to a device": kept("s:b,4", lambda x: (x.to("cpu"), x.cpu(), x.to(x.device))),
    "to a device and type": kept("s:b,4", lambda x: x.to("cpu", torch.float32).double()),
    "type as a matrix": kept("i9:b P:3,4", lambda x, w: (x.type_as(w), x.to(w))),
    "a parameter as the batch": case("P:3,4 i9:b", lambda w, x: (w.type_as(x), w.to(x))),
    "type": kept("s:b,4", lambda x: (x.type(torch.float32), x.type("torch.LongTensor"))),
    "the name of the type": case("s:b,4", lambda x: x.type()),
    "clone, detach": kept("s:b,4", lambda x: (x.clone(), x.detach(), x.contiguous(), x.data)),
    "likes": kept("s:b,4", lambda x: (torch.zeros_like(x), torch.ones_like(x, dtype=torch.int))),
    "full like": kept("s:b,4", lambda x: torch.full_like(x, 3.0)),
    "new": kept("s:b,4", lambda x: (x.new_zeros(x.shape), x.new_ones(x.size(0), 2))),
    "new of a fixed size": case("s:b,4", lambda x: (x.new_zeros(3), x.new_tensor([1.0, 2.0]))),
    "zeros by size": kept("s:b,4", lambda x: (torch.zeros(x.size(0), 3), torch.ones(x.shape))),
    "full by size": kept("s:b,4", lambda x: torch.full((x.size(0), 2), 7.0)),
    "full of the size": case("s:b,4", lambda x: torch.full((3, 2), x.size(0))),
    "full by and of the size": case("s:b,4", lambda x: torch.full((x.size(0),), x.size(0))),
    "second dimension": kept("s:b,4", lambda x: torch.zeros(2, x.size(0), 5)),
    "two batch dimensions": case("s:b,4", lambda x: torch.ones(x.size(0), x.size(0)).triu(1)),
    "keyword size": kept("s:b,4", lambda x: torch.zeros(size=(x.size(0), 2), dtype=torch.long)),
    "eye": case("s:b,4", lambda x: (torch.eye(x.size(0)), torch.arange(x.size(0)))),
    "merged size": kept("s:b,4", lambda x: torch.zeros(x.size(0) * 3, 2) + 1),
    "numpy": case("s:b,4", lambda x: torch.from_numpy(x.detach().numpy() * 2)),
    "transforms of functions": case(
        "n:b,4 N:4",
        lambda x, w: (
            torch.vmap(lambda row: row.sum())(x),
            torch.func.grad(lambda w: (x.detach() @ w).square().mean())(w),
            torch.func.vmap(torch.func.grad(lambda w, row: row @ w), (None, 0))(w, x),
        ),
    ),
    "arguments with names": case(
        "n:b,4 i4:b,2",
        lambda x, i: (
            torch.gather(input=x, dim=1, index=i),
            torch.index_select(input=x, dim=1, index=torch.tensor([0, 2])),
        ),
    ),
    "differences after others": case(
        "n:b,4", lambda x: torch.diff(x, prepend=torch.zeros(x.shape[0], 1))
    ),
    "a vector times a batch": case("n:b,4,3 N:4", lambda x, v: v @ x),
    "a sparse matrix times a batch": case(
        "n:b,4", lambda x: torch.eye(x.size(0)).to_sparse() @ x
    ),
    "an old tensor of a shard": case("n:b,4", lambda x: (torch.Tensor(x), torch.DoubleTensor(x))),
    "an old tensor of indices": case("i5:b", lambda i: torch.LongTensor(i)),
    "an old tensor of something else": case(
        "n:b,4",
        lambda x: (
            x * torch.DoubleTensor([1, 2, 3, 4]),
            torch.Tensor([[1.0]]) + x,
            torch.Tensor(x.size(0), 4).fill_(1) * x,
            torch.LongTensor(2, 3).shape,
        ),
    ),
    "old types": case(
        "n:b,4",
        lambda x: (
            x.type(torch.FloatTensor),
            x.type("torch.LongTensor"),
            isinstance(x.float(), torch.FloatTensor),
            isinstance(x, torch.FloatTensor),
            torch.FloatTensor.dtype,
        ),
    ),
    "a tensor of a shard": case("n:b,4", lambda x: (torch.tensor(x), torch.as_tensor(x))),
    "a tensor of sums": case("n:b,4", lambda x: torch.tensor([x.sum(), x.mean()])),
    "a list": case("n:b,4", lambda x: x.tolist()),
    "rows": case("n:b,4", lambda x: [row.sum().item() for row in x]),
    "python scalars": case("n:b,4", lambda x: (float(x[0, 0]), int(x[0, 1]), bool(x[0, 2] > 0))),
    "text": case("n:b,4", lambda x: (str(x), repr(x), f"{x.sum():.4f}")),
    "deep copy": kept("n:b,4", lambda x: __import__("copy").deepcopy(x)),
    "complex": case("s:b,4", lambda x: torch.view_as_real(torch.fft.fft(x))),
}  # fmt: skip


@table(CONVERSIONS)
def test_conversions(case):
    case.run()


FACTS = {
    "size": case("s:b,4", lambda x: (x.size(0), x.size(), x.size(-1), x.shape[0], x.size(dim=0))),
    "numel": case("s:b,4", lambda x: (x.numel(), x.nelement(), len(x), x.ndim, x.dim())),
    "arithmetic": case("s:b,4", lambda x: (
        x.size(0) * 2, 2 * x.size(0), x.size(0) // 2, x.size(0) / 2, x.size(0) % 2, -x.size(0),
        x.size(0) + 1, 1 - x.size(0), x.size(0) ** 2, 9 // x.size(0), divmod(x.size(0), 2),
        math.sqrt(x.size(0)), round(x.size(0)), x.size(0) > 3, x.size(0) == 7, int(x.size(0)),
        float(x.size(0)), str(x.size(0)), f"{x.shape[0]:03d}", x.size(0) & 1, abs(-x.size(0)),
        x.size(0) * 1.5, 1.5 * x.size(0), [0] * x.size(0), list(range(x.size(0))), hash(x.size(0)),
    )),
    "shape": case("s:b,4", lambda x: (tuple(x.shape), x.shape == (3, 4), x.shape[1:], str(x.shape))),
    "products of shapes": case("s:b,4", lambda x: (x.shape.numel(), math.prod(x.shape))),
    "kind": case("s:b,4", lambda x: (x.dtype, x.device, x.requires_grad, x.is_leaf, x.layout)),
    "floating": case("s:b,4", lambda x: (x.is_floating_point(), torch.is_tensor(x), x.is_sparse)),
    "equal": case("n:b,4 N:b,4", lambda x, y: (torch.equal(x, y), torch.allclose(x, x + 1e-12))),
    "same size": case("n:b,4 N:b,4", lambda x, y: (x.is_same_size(y), x.shape == y.shape)),
    "membership": case("i9:b", lambda x: (5 in x, x.nonzero(), torch.isin(x, torch.arange(3)))),
    "strides": case("n:b,4", lambda x: (x.stride(), x.is_contiguous())),
}  # fmt: skip


@table(FACTS)
def test_what_a_shard_tells_of_itself(case):
    case.run()


def iadd(x, y):
    x += y
    return x


def scaled(x, w):
    x *= w
    x -= 1
    x /= 2
    x **= 2
    return x


WRITES = {
    "iadd": written("s:b,4 s:b,4", iadd),
    "iadd a row": written("s:b,4 P:4", iadd),
    "iadd a batch": written("s:b,4 P:b,4", iadd),
    "iadd into a replicated tensor": written("P:b,4 s:b,4", iadd),
    "iadd along another dimension": written("s:b,b@0 s:b,b@1", iadd),
    "iadd of its sum": written("s:b,4 s:b,4", lambda x, y: iadd(x, y.mean(0))),
    "several": written("s:b,4 P:b,1", scaled),
    "methods": written("s:b,4 s:b,4", lambda x, y: x.mul_(2).add_(y, alpha=3).sub_(1).neg_()),
    "clamp_, relu_": written("s:b,4", lambda x: (x.clamp_(-1, 1), F.relu(x, inplace=True))),
    "zero_": written("s:b,4 n:b,4", lambda x, y: (x.zero_(), y.fill_(2.0))),
    "masked_fill_": written("s:b,4 m:b,4", lambda x, m: x.masked_fill_(m, 0.5)),
    "copy_": written("s:b,4 s:b,4", lambda x, y: x.copy_(y)),
    "copy_ a row": written("s:b,4 P:4", lambda x, w: x.copy_(w)),
    "copy_ into a replicated tensor": written("P:b,4 s:b,4", lambda w, x: w.copy_(x)),
    "exp_ of a view": written("s:b,4", lambda x: x.view(-1).exp_()),
    "a view of a column": written("s:b,4", lambda x: x[:, 1].mul_(3)),
    "a row": written("s:b,4", lambda x: (x[0].mul_(3), x + 1)),
    "a row of a row": written("n:b,4", lambda x: x[0][1:].fill_(7.0)),
    "bits": written("m:b,4 m:b,4", lambda x, y: x.__iand__(y)),
    "whole numbers": written("i9:b,4", lambda x: x.add_(3).remainder_(4)),
    "where a layer writes": written("s:b,4", lambda x: torch.nn.ReLU(inplace=True)(x * 2)),
    "unsqueeze_": written("n:b,4", lambda x: (x.unsqueeze_(1), x.shape)),
    "squeeze_": written("n:b,1,4", lambda x: (x.squeeze_(1), x.shape)),
    "transpose_": written("n:b,4", lambda x: (x.transpose_(0, 1), x.t_().shape)),
}  # fmt: skip


@table(WRITES)
def test_writing_in_place(case):
    case.run()


SOURCES = {
    "iadd": lambda x: x.add_(1),
    "setitem": lambda x: x.__setitem__((slice(None), 0), 5.0),
    "a mask": lambda x: x.__setitem__(x > 0, 5.0),
    "of a row": lambda x: x[0].zero_(),
    "of a view": lambda x: x.view(-1).mul_(2),
}


@pytest.mark.parametrize("write", SOURCES.values(), ids=SOURCES)
def test_what_is_written_into_a_slice_is_seen_in_the_data_it_was_cut_from(write):
    import reparto

    def function(data):
        x = reparto.shard(data[1:-1])
        write(x)
        return x, data, data + 1

    Case("N:9,4", function, [(2, 0), (3, 0)], {"writes": True}).run()
