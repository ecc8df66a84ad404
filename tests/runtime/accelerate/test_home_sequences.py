"""Packed sequences on a device: their sizes of batches stay on the CPU, as torch wants them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from reparto.runtime.accelerate._home import Home


def packed(home: Home) -> PackedSequence:
    """Three sequences whose numbers are on the device."""
    made = pack_padded_sequence(torch.zeros(3, 4, 2), torch.tensor([4, 2, 1]), batch_first=True)
    return PackedSequence(made.data.to(home.device), made.batch_sizes)


class Layer:
    """A call of a layer whose parameters are on the device."""

    def __init__(self) -> None:
        self.tensors = [torch.nn.Parameter(torch.zeros(2, device="meta"))]

    def __call__(self, sequence: PackedSequence) -> PackedSequence:
        return sequence


def test_a_layer_is_given_a_packed_sequence_with_its_sizes_on_the_cpu(home: Home) -> None:
    given = home.run(Layer(), (packed(home),), {})

    assert given.data.device.type == "meta"
    assert given.batch_sizes.device.type == "cpu"


def test_the_same_holds_for_the_functions_below(home: Home) -> None:
    sequence, state = packed(home), torch.zeros(1, 3, 3)
    layer = torch.nn.GRU(2, 3).to("meta")
    weights: Any = layer._flat_weights
    args = (sequence.data, sequence.batch_sizes, state, weights, True, 1, 0.0, True, False)
    seen: list[Tensor] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "on_device", lambda one: seen.append(one) or one.to("meta"))
        home.run(torch._C._VariableFunctions.gru, args, {})

    assert any(one is state for one in seen)
    assert all(one is not sequence.batch_sizes for one in seen)
