"""The network itself: several small networks in one, over embedded numbers.

    x ──┬─ numbers ─ periodic embedding ─┐
        ├─ numbers ──────────────────────┼─► z ─► × r₁ ─► ┌─────────┐ ─► head₁ ─┐
        └─ levels, what is missing ──────┘    ─► × r₂ ─► │ layers, │ ─► head₂ ─┼─► mean
                                              ─► × r₃ ─► │ shared  │ ─► head₃ ─┘
                                                          └─────────┘

Members differ by what they multiply their input with and by their heads, and share all else: what
an ensemble is worth, for little more than one network (TabM, Gorishniy et al., 2024). Embeddings
are sines and cosines of each number, frequencies learnt (Gorishniy et al., 2022). Levels of
categories are columns of their own, so the first layer is their embedding.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """How large a network is.

    Attributes:
        num_inputs: Columns.
        num_numbers: The first so many of them are numbers.
        num_outputs: Classes, or 1.
        width: Of its layers.
        depth: How many there are.
        dropout: Share of a layer's outputs that a step leaves out.
        members: How many networks it is.
        frequencies: Of each number's embedding; 0 for none.
        scale: Of the frequencies at the beginning: the greater, the finer steps it can make.
    """

    num_inputs: int
    num_numbers: int
    num_outputs: int
    width: int = 128
    depth: int = 2
    dropout: float = 0.1
    members: int = 8
    frequencies: int = 0
    scale: float = 0.1


class TabularNetwork(nn.Module):
    """Rows in, one answer of each member out: ``(rows, members, outputs)``."""

    #: Of each number's embedding.
    embedding_width = 8

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width_in = shape.num_inputs
        if shape.frequencies:
            self.frequencies = nn.Parameter(
                shape.scale * torch.randn(shape.num_numbers, shape.frequencies)
            )
            self.embedding = nn.Linear(2 * shape.frequencies, self.embedding_width)
            width_in += shape.num_numbers * self.embedding_width
        first = torch.randn if shape.frequencies else _signs
        self.adapters = nn.Parameter(first(shape.members, width_in)) if shape.members > 1 else None
        widths = [width_in, *[shape.width] * shape.depth]
        self.layers = nn.ModuleList(
            nn.Linear(before, after) for before, after in itertools.pairwise(widths)
        )
        bound = 1 / math.sqrt(widths[-1])
        self.heads = nn.Parameter(
            torch.empty(shape.members, widths[-1], shape.num_outputs).uniform_(-bound, bound)
        )
        self.biases = nn.Parameter(torch.zeros(shape.members, shape.num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Answer for each row, by each member."""
        shape = self.shape
        if shape.frequencies:
            angles = 2 * math.pi * self.frequencies * x[:, : shape.num_numbers, None]
            waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
            x = torch.cat([x, functional.relu(self.embedding(waves)).flatten(1)], dim=1)
        hidden = x[:, None, :] if self.adapters is None else x[:, None, :] * self.adapters
        for layer in self.layers:
            hidden = functional.relu(layer(hidden))
            hidden = functional.dropout(hidden, shape.dropout, self.training)
        return torch.einsum("rmi,mio->rmo", hidden, self.heads) + self.biases


def _signs(*size: int) -> Tensor:
    return torch.randint(0, 2, size).float() * 2 - 1


def loss_of(answers: Tensor, y: Tensor) -> Tensor:
    """Mean loss over rows and members, each member judged by itself: that keeps them different."""
    if y.is_floating_point():
        return (answers[:, :, 0] - y[:, None]).square().mean()
    return functional.cross_entropy(
        answers.transpose(1, 2), y[:, None].expand(-1, answers.shape[1])
    )


def mixed(answers: Tensor, *, classes: bool) -> Tensor:
    """What all members say together: probabilities, or values."""
    if classes:
        return answers.softmax(dim=2).mean(dim=1)
    return answers[:, :, 0].mean(dim=1)
