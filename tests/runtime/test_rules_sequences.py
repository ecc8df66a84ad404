"""Recurrent layers, attention and transformers, with the batch first or second."""

import copy

import pytest
import torch
from tests.runtime.cases import FEW, Case, case, table
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
SHAPES = {
    "batch first": ("s:b,5,3", {"batch_first": True}),
    "time first": ("s:5,b,3@1", {}),
    "both ways": ("s:b,5,3", {"batch_first": True, "bidirectional": True, "num_layers": 2}),
    "cut along time": ("s:5,b,3@0", {}),
    "batch first, cut along time": ("s:b,5,3@1", {"batch_first": True}),
    "cut along features": ("s:5,b,3@2", {}),
}


def made(kind, **options):
    torch.manual_seed(1)
    return kind(**options) if options else kind()


def calling(module, call=lambda layer, *args: layer(*args)):
    """Call a copy of a module; its gradients are compared, too."""

    def function(*tensors):
        layer = copy.deepcopy(module)
        result = call(layer, *tensors)
        parts = result if isinstance(result, tuple) else (result,)
        flat = [one for part in parts for one in (part if isinstance(part, tuple) else (part,))]
        sum((one * one.detach().sin()).sum() for one in flat if one is not None).backward(
            retain_graph=True
        )
        return flat, [one.grad.clone() for one in layer.parameters() if one.grad is not None]

    return function


@pytest.mark.parametrize("regions", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_recurrent_layers(kind, shape, regions):
    given, options = SHAPES[shape]
    module = made(LAYERS[kind], input_size=3, hidden_size=4, **options)
    Case(given, calling(module), [(2, 5), (4, 3)], {"regions": regions}).run()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("state", ["s:1,b,4@1", "P:1,b,4", "s:1,b,4@2", "zeros", "carried"])
def test_recurrent_layers_with_a_state(kind, state):
    module = made(LAYERS[kind], input_size=3, hidden_size=4, batch_first=True)

    def with_state(layer, x, *given):
        h = given[0] if given else torch.zeros(1, x.size(0), 4)
        state = (h, h * 2) if kind == "lstm" else h
        if state_name == "carried":
            _, state = layer(x)
            state = tuple(one.detach() for one in state) if kind == "lstm" else state.detach()
        return layer(x, state)

    state_name = state
    given = "s:b,5,3" + (f" {state}" if ":" in state else "")
    Case(given, calling(module, with_state), FEW).run()


def test_a_replicated_sequence_with_a_shared_out_state():
    module = made(nn.GRU, input_size=3, hidden_size=4)
    Case("P:5,b,3 s:1,b,4@1", calling(module), FEW).run()


def test_a_single_sequence():
    module = made(nn.LSTM, input_size=3, hidden_size=4)
    Case("s:5,3", calling(module), [(2, 0), (3, 0)]).run()


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_recurrent_cells(kind):
    module = made(getattr(nn, kind), input_size=3, hidden_size=4)

    def unrolled(cell, x, h):
        state = (h, h * 2) if kind == "LSTMCell" else h
        outputs = []
        for step in range(x.size(1)):
            state = cell(x[:, step], state)
            outputs.append(state[0] if kind == "LSTMCell" else state)
        return torch.stack(outputs, 1), cell(x[:, 0])[0]

    Case("s:b,3,3 s:b,4", calling(module, unrolled), FEW).run()
    Case("s:b,3,3 P:b,4", calling(module, unrolled), [(2, 7)]).run()


@pytest.mark.parametrize("sorted_lengths", [True, False])
@pytest.mark.parametrize("lengths", ["list", "replicated", "shared out"])
def test_packed_sequences(sorted_lengths, lengths):
    module = made(nn.LSTM, input_size=3, hidden_size=4, batch_first=True)

    def packed(layer, x, n):
        n = n % 5 + 1
        n = n.sort(descending=True).values if sorted_lengths else n
        given = {"list": n.tolist(), "replicated": torch.tensor(n.tolist()), "shared out": n}
        pack = pack_padded_sequence(x, given[lengths], True, enforce_sorted=sorted_lengths)
        output, (h, _) = layer(pack)
        unpacked, counts = pad_packed_sequence(output, batch_first=True)
        return unpacked, h[-1], counts.double()

    def function(x, n):
        layer = copy.deepcopy(module)
        return packed(layer, x, n)

    Case("s:b,5,3 i9:b", function, FEW).run()


def seeded(kind, **options):
    torch.manual_seed(1)
    return kind(**options)


ATTENTION = {"embed_dim": 4, "num_heads": 2}
MASKS = {
    "none": lambda x, b: {},
    "causal": lambda x, b: {"attn_mask": torch.ones(3, 3).triu(1).bool()},
    "numbers": lambda x, b: {"attn_mask": torch.ones(3, 3).triu(1) * -5.0},
    "padding": lambda x, b: {"key_padding_mask": _padding(x, b)},
    "replicated padding": lambda x, b: {"key_padding_mask": torch.zeros(int(x.size(b)), 3).bool()},
    "heads": lambda x, b: {"attn_mask": torch.zeros(int(x.size(b)) * 2, 3, 3).bool()},
    "no weights": lambda x, b: {"need_weights": False},
    "every weight": lambda x, b: {"average_attn_weights": False},
}


def _padding(x, batch):
    """Which places of each sample are filled up: a mask that follows the batch."""
    mask = (x.transpose(0, batch) if batch else x)[..., 0] > 0.5
    return mask & (torch.arange(3) > 0)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", MASKS)
def test_multi_head_attention(batch_first, mask):
    module = made(nn.MultiheadAttention, batch_first=batch_first, **ATTENTION)
    given = "s:b,3,4" if batch_first else "s:3,b,4@1"
    batch = 0 if batch_first else 1

    def attend(layer, x):
        return layer(x, x, x * 2, **MASKS[mask](x, batch))

    Case(given, calling(module, attend), FEW).run()


def test_attention_to_a_memory_that_all_share():
    module = made(nn.MultiheadAttention, batch_first=True, **ATTENTION)

    def attend(layer, x, memory):
        keys = memory.unsqueeze(0).expand(x.size(0), -1, -1)
        return layer(x, keys, keys)

    Case("s:b,3,4 P:5,4", calling(module, attend), FEW).run()


@pytest.mark.parametrize("regions", [True, False])
@pytest.mark.parametrize("mode", ["train", "eval", "no gradient"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_transformer_encoders(batch_first, mode, regions):
    layer = made(
        nn.TransformerEncoderLayer, d_model=4, nhead=2, dim_feedforward=8, dropout=0.0,
        batch_first=batch_first, norm_first=not batch_first,
    )  # fmt: skip
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(mode == "train")
    given = "s:b,3,4" if batch_first else "s:3,b,4@1"
    batch = 0 if batch_first else 1

    def function(x):
        encoder = copy.deepcopy(module)
        with torch.set_grad_enabled(mode != "no gradient"):
            plain = [encoder(x) for _ in range(2)]
            mask = nn.Transformer.generate_square_subsequent_mask(3)
            causal = encoder(x, mask=mask, is_causal=True)
            padded = encoder(x, src_key_padding_mask=_padding(x, batch))
        return plain, causal, padded

    Case(given, function, [(2, 5), (4, 3)], {"regions": regions}).run()


@pytest.mark.parametrize("batch_first", [True, False])
def test_transformers(batch_first):
    module = made(
        nn.Transformer, d_model=4, nhead=2, num_encoder_layers=1, num_decoder_layers=1,
        dim_feedforward=8, dropout=0.0, batch_first=batch_first,
    )  # fmt: skip
    given = "s:b,3,4 s:b,2,4" if batch_first else "s:3,b,4@1 s:2,b,4@1"
    mask = nn.Transformer.generate_square_subsequent_mask(2)
    calls = calling(module, lambda layer, x, y: layer(x, y, tgt_mask=mask))
    Case(given, calls, [(2, 5), (4, 3)]).run()


def language_model(tokens, table, out):
    """A small causal model, written out by hand."""
    b, t = tokens.size()
    x = table[tokens] + torch.arange(t).double()[:, None] / 9
    q, k, v = (x @ out).view(b, t, 2, 6).transpose(1, 2).chunk(3, dim=-1)
    scores = q @ k.transpose(-2, -1) / 2**0.5
    mask = torch.tril(torch.ones(t, t)).view(1, 1, t, t)
    weights = scores.masked_fill(mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
    y = (weights @ v).transpose(1, 2).contiguous().view(b, t, 4)
    logits = (y @ table.t())[:, :-1]
    targets = tokens[:, 1:]
    loss = nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
    return logits, loss


SEQUENCES = {
    "language model": case("i7:b,5 P:7,4 P:4,12", language_model),
    "pad a list": case("s:b,4", lambda x: pad_sequence([x[0], x[0, :2]], batch_first=True)),
    "time steps": case("s:5,b,3@1 P:3,3", lambda x, w: torch.stack([(x[t] @ w).tanh() for t in range(5)])),
    "last steps": case("s:b,5,3", lambda x: (x[:, -1], x[:, -1, :], x.mean(1), x.max(1).values)),
    "shifted": case("s:5,b,3@1", lambda x: ((x[1:] - x[:-1]) ** 2).mean()),
}  # fmt: skip


@table(SEQUENCES)
def test_sequences(case):
    case.run()
