"""How a model of the grid is trained: the rate of Adam, and the number of steps. Pure."""

from __future__ import annotations

from itertools import pairwise

from reparto.bench import _grid

#: Adam's rate for narrow nets. A step moves each weight by about the rate, so that the answer of
#: a wide layer moves by as many times as it is wide: beyond this width the rate falls with it.
RATE, NARROW = 1e-3, 400
#: Work of a training cell, the same for every device: a processor with 10¹² operations a second
#: takes two seconds for it. Adam's step moves 28 bytes a parameter, which counts as that many.
COST_A_CELL, COST_A_PARAMETER = 2e12, 600.0
MIN_STEPS, MAX_STEPS = 12, 200


def rate_of(hidden: tuple[int, ...]) -> float:
    """Adam's rate for a perceptron of those widths.

    Example:
        >>> rate_of((50,)), rate_of((1600, 800))
        (0.001, 0.00025)
    """
    return RATE * min(1.0, NARROW / max(hidden, default=1))


def target_steps(num_parameters: int, flops: float, rows: int) -> int:
    """Steps that a training cell makes before its loss is taken; none depends on the device.

    Args:
        num_parameters: Of the model.
        flops: Of a step; 0.0 where they could not be counted, and parameters tell.
        rows: Samples of a step.

    Example:
        >>> target_steps(2601, 0.0, 2), target_steps(414_208_513, 0.0, 1024)
        (200, 12)
    """
    cost = (flops or 6.0 * num_parameters * rows) + COST_A_PARAMETER * num_parameters
    return max(MIN_STEPS, min(MAX_STEPS, int(COST_A_CELL / max(cost, 1.0))))


def grid_flops(hidden: tuple[int, ...], rows: int, *, train: bool = True) -> float:
    """Multiplications and additions of a step, or of a call, of a perceptron.

    Going back takes twice what going forward does, but for the first layer: nobody asks for the
    gradient of the inputs.

    Example:
        >>> grid_flops((50,), 1), grid_flops((50,), 1, train=False)
        (10300.0, 5100.0)
    """
    sizes = (_grid.NUM_INPUTS, *hidden, _grid.NUM_OUTPUTS)
    products = [a * b for a, b in pairwise(sizes)]
    forward = 2.0 * rows * sum(products)
    return 3 * forward - 2.0 * rows * products[0] if train else forward


def cnn_flops(rows: int, *, train: bool = True) -> float:
    """The same of the CNN."""
    one, two = _grid.MAP_SIDE - 2, _grid.MAP_SIDE - 4
    flat = 64 * (two // 2) ** 2
    products = [9 * 32 * one**2, 9 * 32 * 64 * two**2, flat * 128, 128]
    forward = 2.0 * rows * sum(products)
    return 3 * forward - 2.0 * rows * products[0] if train else forward
