"""Layers of a perceptron, as platforms ask for them, as the hidden ones that can be chosen.

layers = [[8, 5, 3]]                                    hidden_layers = [[5]]
numHiddenLayers = [1, 2], hiddenLayersWidth = [5, 32]   hidden_layers = [[5], [32], [5, 5], …]

How many columns go in and how many classes come out is the data's to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from reparto.search._request_schema import Fault, shown

OURS = "hidden_layers"
_WHOLE, _COUNT, _WIDTH = "layers", "numhiddenlayers", "hiddenlayerswidth"
_ENDS = ("inputlayerwidth", "outputlayerwidth")
#: Of a hidden layer, where only their number is given.
_USUAL_WIDTH = 32

Named = Mapping[str, Sequence[Any]]


def with_hidden_layers(
    given: Named, where: str, places: Mapping[str, int]
) -> tuple[dict[str, Sequence[Any]], list[Fault], list[str]]:
    """The same hyperparameters, with the hidden layers in the place of all that tells of layers.

    Args:
        given: Values by name.
        where: Of the method, for faults.
        places: Of each name among the hyperparameters.

    Returns:
        What is left, what is wrong, and what people should know.
    """
    named = {_plain(name): name for name in given}
    left = {
        name: values
        for name, values in given.items()
        if _plain(name) not in (_WHOLE, _COUNT, _WIDTH, *_ENDS)
    }
    faults: list[Fault] = []
    hidden: list[tuple[int, ...]] = []

    def place(name: str) -> str:
        return f"{where}.hyperparameters[{places[name]}]"

    if _WHOLE in named:
        name = named[_WHOLE]
        for index, one in enumerate(given[name]):
            if _are_sizes(one) and len(one) >= 2:
                hidden.append(tuple(one[1:-1]))
            else:
                what = f"must be a list of sizes such as [4, 5, 3] (was {shown(one)})"
                faults.append(Fault(f"{place(name)}.values[{index}]", what))
    if _COUNT in named or _WIDTH in named:
        sizes = {}
        for key, usual in ((_COUNT, 1), (_WIDTH, _USUAL_WIDTH)):
            sizes[key] = list(given[named[key]]) if key in named else [usual]
            if not _are_sizes(sizes[key]):
                what = f"must be whole numbers above 0 (was {shown(sizes[key])})"
                faults.append(Fault(f"{place(named[key])}.values", what))
        if not faults:
            points = itertools.product(sizes[_COUNT], sizes[_WIDTH])
            hidden += [(width,) * count for count, width in points]
    notes = []
    if not faults and (ends := [named[key] for key in (_WHOLE, *_ENDS) if key in named]):
        notes.append(
            f"{', '.join(ends)}: how many columns go in and how many classes come out follows "
            "from the data"
        )
    if hidden:
        left[OURS] = tuple(dict.fromkeys(hidden))
    return left, faults, notes


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in values
    )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
