"""The grid: thirty perceptrons of one to three hidden layers, and a CNN. Names and sizes only.

depth 1  [50·2^k]                     k = 0 … 9
depth 2  [50·2^k, 25·2^k]             50 inputs (sensors now), 1 output (one of them, 10 s later)
depth 3  [50·2^k, 25·2^k, 13·2^k]
"""

from __future__ import annotations

from itertools import pairwise

NUM_INPUTS = 50
NUM_OUTPUTS = 1
NUM_WIDTHS = 10
MAP_SIDE = 50
CNN = "cnn"

_SHAPES = ((50,), (50, 25), (50, 25, 13))


def perceptrons() -> tuple[tuple[int, ...], ...]:
    """The hidden widths of each, from the smallest to the largest, by depth.

    Example:
        >>> perceptrons()[:2], len(perceptrons())
        (((50,), (100,)), 30)
    """
    return tuple(
        tuple(width * 2**doubled for width in shape)
        for shape in _SHAPES
        for doubled in range(NUM_WIDTHS)
    )


def name_of(hidden: tuple[int, ...]) -> str:
    """A perceptron by its widths.

    Example:
        >>> name_of((800, 400, 208))
        '800-400-208'
    """
    return "-".join(map(str, hidden))


def hidden_of(name: str) -> tuple[int, ...]:
    """The widths of a perceptron of that name; empty for other names.

    Example:
        >>> hidden_of("800-400-208"), hidden_of("cnn")
        ((800, 400, 208), ())
    """
    parts = name.split("-")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()


def num_parameters(hidden: tuple[int, ...]) -> int:
    """Weights and biases of a perceptron.

    Example:
        >>> num_parameters((50,)), num_parameters((800, 400, 208))
        (2601, 444817)
    """
    sizes = (NUM_INPUTS, *hidden, NUM_OUTPUTS)
    return sum((before + 1) * after for before, after in pairwise(sizes))


def cnn_parameters() -> int:
    """Weights and biases of the CNN.

    Two convolutions of 3×3 without padding leave 46 of 50 rows, pooling 23: 64·23·23 inputs.
    """
    flat = 64 * ((MAP_SIDE - 4) // 2) ** 2
    return (9 + 1) * 32 + (9 * 32 + 1) * 64 + (flat + 1) * 128 + (128 + 1)
