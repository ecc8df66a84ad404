"""Layers: convolutions, pools, embeddings, normalisations, and what modules make of them."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.cases import FEW, Case, case, kept, table
from torch import nn

CONVOLUTIONS = {
    "1": kept("s:b,3,8 P:2,3,3 P:2", lambda x, w, c: (F.conv1d(x, w, c), F.conv1d(x, w, padding=1, stride=2))),
    "2": kept("s:b,3,5,5 P:2,3,3,3 P:2", lambda x, w, c: (F.conv2d(x, w, c, padding=1), F.conv2d(x, weight=w, dilation=2), F.conv2d(x, w, padding="same"))),
    "3": kept("s:b,2,4,4,4 P:3,2,2,2,2", lambda x, w: F.conv3d(x, w, stride=2)),
    "groups": kept("s:b,4,5,5 P:4,1,3,3", lambda x, w: F.conv2d(x, w, groups=4)),
    "transposed": kept("s:b,3,4,4 P:3,2,2,2 P:2", lambda x, w, c: F.conv_transpose2d(x, w, c, stride=2)),
    "transposed 1 and 3": kept("s:b,3,4 P:3,2,2", lambda x, w: (F.conv_transpose1d(x, w), F.conv_transpose3d(x[..., None, None], w[..., None, None]))),
    "one image": case("s:3,5,5 P:2,3,3,3", lambda x, w: F.conv2d(x, w)),
    "channels shared out": case("s:b,3,5,5@1 P:2,3,3,3", lambda x, w: F.conv2d(x, w)),
    "time first": case("s:4,b,3@1 P:2,3,3", lambda x, w: F.conv1d(x.permute(1, 2, 0), w)),
    "by the batch": case("s:b,3,5,5 s:1,3,3,3", lambda x, w: F.conv2d(x, w)),
}  # fmt: skip
POOLS = {
    "max": kept("s:b,2,6,6", lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), nn.MaxPool2d(2, ceil_mode=True)(x), torch.max_pool2d(x, 2))),
    "max with indices": kept("s:b,2,6,6", lambda x: F.max_pool2d(x, 2, return_indices=True)),
    "max 1 and 3": kept("s:b,2,6,6", lambda x: (F.max_pool1d(x.flatten(2), 2), F.max_pool3d(x[:, None], 2), nn.MaxPool1d(3)(x.flatten(2)))),
    "average": kept("s:b,2,6,6", lambda x: (F.avg_pool2d(x, 2), nn.AvgPool2d(3)(x), F.avg_pool1d(x.flatten(2), 2), F.lp_pool2d(x, 2, 2))),
    "adaptive": kept("s:b,2,6,6", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, (2, 3)), nn.AdaptiveAvgPool1d(4)(x.flatten(2)))),
    "unpool": kept("s:b,2,4,4", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    "global": kept("s:b,2,4,4", lambda x: (x.mean((2, 3)), x.amax(dim=(-1, -2)), x.mean([2, 3], keepdim=True))),
    "one image": case("s:3,6,6", lambda x: (F.max_pool2d(x, 2), F.adaptive_avg_pool2d(x, 2))),
    "interpolate": kept("s:b,2,4,4", lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(7, 5), mode="bilinear", align_corners=False), nn.Upsample(scale_factor=2, mode="nearest")(x), F.interpolate(x, size=x.shape[2:]))),
    "shuffle": kept("s:b,4,2,2", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2))),
    "shuffle one image": case("s:4,2,2", lambda x: F.pixel_shuffle(x, 2)),
    "windows": kept("s:b,2,4,4", lambda x: (F.unfold(x, 2, stride=2), F.fold(F.unfold(x, 2), (4, 4), 2))),
    "pads": kept("s:b,2,4,4", lambda x: (F.pad(x, (1, 1, 1, 1), "reflect"), nn.ReflectionPad2d(1)(x), nn.ZeroPad2d(1)(x), nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular").requires_grad_(False)(x).shape[1:])[:3]),
    "grid": kept("s:b,2,4,4 s:b,2,3", lambda x, t: F.grid_sample(x, F.affine_grid(t, x.shape, align_corners=False), align_corners=False)),
    "response": kept("s:b,4,3,3", lambda x: F.local_response_norm(x, 2)),
}  # fmt: skip
EMBEDDINGS = {
    "embedding": kept("i5:b,3 P:5,2", lambda i, w: (F.embedding(i, w), F.embedding(i, w, padding_idx=0), F.embedding(input=i, weight=w))),
    "of one word": kept("i5:b P:5,2", F.embedding),
    "time first": kept("i5:3,b@1 P:5,2", F.embedding),
    "by frequency": case("i5:b,3 P:5,2", lambda i, w: F.embedding(i, w, scale_grad_by_freq=True)),
    "bag": kept("i5:b,3 P:5,2", lambda i, w: (F.embedding_bag(i, w), F.embedding_bag(i, w, mode="sum"), F.embedding_bag(i, w, mode="max"))),
    "weighted bag": kept("i5:b,3 P:5,2 s:b,3", lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s)),
    "bag weighted by replicated numbers": kept("i5:b,3 P:5,2 P:b,3", lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s)),
    "bag with offsets": case("i5:3b P:5,2", lambda i, w: F.embedding_bag(i, w, torch.arange(0, len(i), 3))),
    "positions": kept("s:b,3,2 P:9,2", lambda x, w: x + F.embedding(torch.arange(x.size(1)), w)),
    "segments": case("s:b,3,2 P:9,2", lambda x, w: x + F.embedding(torch.zeros(x.size(0), 3, dtype=torch.long), w)),
}  # fmt: skip
NORMS = {
    "layer": kept("s:b,3,4 P:4 P:4", lambda x, w, c: (F.layer_norm(x, (4,), w, c), F.layer_norm(x, [3, 4]), F.layer_norm(x, (4,), weight=w))),
    "layer over time first": kept("s:3,b,4@1 P:4", lambda x, w: F.layer_norm(x, (4,), w)),
    "layer over the batch": case("s:4,b@1", lambda x: F.layer_norm(x, (int(x.size(1)),))),
    "rms": kept("s:b,3,4 P:4", lambda x, w: F.rms_norm(x, (4,), w)),
    "group": kept("s:b,4,3 P:4 P:4", lambda x, w, c: (F.group_norm(x, 2, w, c), F.group_norm(x[:, :, 0], 2))),
    "instance": kept("s:b,4,3 P:4", lambda x, w: (F.instance_norm(x, weight=w, bias=w), F.instance_norm(x))),
    "weight": kept("s:b,4 P:3,4", lambda x, w: F.linear(x, w / w.norm(dim=1, keepdim=True))),
}  # fmt: skip


@table(CONVOLUTIONS)
def test_convolutions(case):
    case.run()


@table(POOLS)
def test_pools(case):
    case.run()


@table(EMBEDDINGS)
def test_embeddings(case):
    case.run()


@table(NORMS)
def test_norms_of_a_sample(case):
    case.run()


def through(module, times=2, seed=1):
    """Call a copy of a module twice; tell its output, and what became of it."""

    def function(*tensors):
        layer = copy.deepcopy(module)
        outputs = [layer(*(tensor * (1 + at) for tensor in tensors)) for at in range(times)]
        sum((out * out.detach().sin()).sum() for out in outputs).backward(retain_graph=True)
        learned = [one for one in layer.parameters() if one.requires_grad]
        grads = [parameter.grad.clone() for parameter in learned]
        layer.zero_grad()
        return outputs, [buffer.clone() for buffer in layer.buffers()], grads

    return function


def shaken(module):
    """A module whose parameters and statistics are not those that it was made with."""
    torch.manual_seed(3)
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
    return module


BATCH_NORMS = {
    "1d": ("s:b,4", lambda: nn.BatchNorm1d(4)),
    "1d of sequences": ("s:b,4,3", lambda: nn.BatchNorm1d(4)),
    "1d of merged time": ("s:b,3,4", lambda: nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(4))),
    "1d of time first": ("s:3,b,4@1", lambda: nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(4))),
    "2d": ("s:b,3,2,2", lambda: nn.BatchNorm2d(3)),
    "3d": ("s:b,3,2,2,2", lambda: nn.BatchNorm3d(3)),
    "cumulative": ("s:b,4", lambda: nn.BatchNorm1d(4, momentum=None)),
    "no affine": ("s:b,4", lambda: nn.BatchNorm1d(4, affine=False)),
    "no statistics": ("s:b,4", lambda: nn.BatchNorm1d(4, track_running_stats=False)),
    "no statistics in evaluation": ("s:b,4", lambda: nn.BatchNorm1d(4, track_running_stats=False).eval()),
    "in evaluation": ("s:b,4", lambda: nn.BatchNorm1d(4).eval()),
    "frozen": ("s:b,4", lambda: nn.BatchNorm1d(4).requires_grad_(False)),
    "large numbers": ("s:b,4", lambda: nn.Sequential(_Shift(), nn.BatchNorm1d(4))),
    "the channels shared out": ("s:b,4@1", lambda: nn.BatchNorm1d(4)),
    "instance with statistics": ("s:b,4,3", lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
    "lazy in a row": ("s:b,4", lambda: nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.BatchNorm1d(4))),
    "synchronised": ("s:b,4", lambda: nn.SyncBatchNorm(4).eval()),
}  # fmt: skip


class _Shift(nn.Module):
    def forward(self, x):
        return x + 1000


@pytest.mark.parametrize("name", BATCH_NORMS)
@pytest.mark.parametrize("regions", [True, False])
def test_batch_norm_sees_the_global_batch(name, regions):
    given, make = BATCH_NORMS[name]
    tolerance = 1e-9 if name == "large numbers" else 1e-12
    options = {"regions": regions, "tolerance": tolerance}
    sizes = [(2, 7), (4, 3), (3, 2)]
    Case(given, through(shaken(make())), sizes, options).run()


def test_batch_norm_of_one_value_is_refused_as_torch_refuses_it():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        Case("s:1,4", through(nn.BatchNorm1d(4)), [(2, 1)]).run()


@pytest.mark.parametrize("name", ["1d", "2d", "no affine", "lazy in a row"])
def test_batch_norm_can_be_differentiated_twice(name):
    given, make = BATCH_NORMS[name]
    module = shaken(make())

    def penalty(x):
        layer = copy.deepcopy(module)
        (slope,) = torch.autograd.grad((layer(x) ** 3).sum(), x, create_graph=True)
        loss = (slope.flatten(1).norm(dim=1) - 1).pow(2).mean()
        loss.backward(retain_graph=True)
        grads = [parameter.grad.clone() for parameter in layer.parameters()]
        return slope, loss, grads

    Case(given, penalty, [(2, 7), (4, 3)], {"tolerance": 1e-10}).run()


MODULES = {
    "convolutional": (
        "s:b,1,8,8",
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(36, 5), nn.LogSoftmax(1),
        ),
    ),
    "mixed": ("s:b,4", lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 2), nn.Softmax(-1))),
    "upward": ("s:b,4", lambda: nn.Sequential(nn.Linear(4, 8), nn.Unflatten(1, (2, 2, 2)), nn.ConvTranspose2d(2, 3, 2, 2), nn.Tanh())),
    "normal weights": ("s:b,4", lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))),
    "orthogonal weights": ("s:b,4", lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))),
    "spectral weights": ("s:b,4", lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))),
    "groups": ("s:b,4,4", lambda: nn.Sequential(nn.Conv1d(4, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.InstanceNorm1d(4))),
    "one parameter": ("s:b,4", lambda: nn.Sequential(nn.Linear(4, 4), nn.PReLU())),
    "bilinear": ("s:b,4 s:b,4", lambda: nn.Bilinear(4, 4, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    given, make = MODULES[name]
    torch.manual_seed(2)
    Case(given, through(make()), FEW if "conv" not in name else FEW[:2]).run()
