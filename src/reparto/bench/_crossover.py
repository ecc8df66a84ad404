"""From which size on a second device is the faster one.

time of A ÷ time of B                A: usually the CPU; B: usually a GPU
10 ┤              ●
1 ┼──────────●─◉───────            ◉ the crossover: left of it A is faster, right of it B
0.1 ┤  ●   ●
└──────────────────► parameters
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reparto.bench._shown import is_sound
from reparto.spec import Measurement


@dataclass(frozen=True)
class Ratio:
    """How many times as long one device takes as another, for one model and batch.

    Attributes:
        num_parameters: Of the model.
        times: Time on the first device over time on the second.
        sound: Whether both times may be held against each other.
        model: Its name.
        perceptron: Whether it is one: work a parameter is then the same for all.
    """

    num_parameters: int
    times: float
    sound: bool
    model: str
    perceptron: bool


def device_pairs(rows: Iterable[Measurement]) -> list[tuple[str, str]]:
    """Each CPU beside each other device; without a CPU, the first device beside the others."""
    devices = list(dict.fromkeys(row.device for row in rows))
    first = [one for one in devices if one.startswith("cpu")] or devices[:1]
    return [(one, other) for one in first for other in devices if other not in first]


def ratios(rows: Sequence[Measurement], pair: tuple[str, str], batch_rows: int) -> list[Ratio]:
    """The best training time of each device with one worker, held against each other by model."""
    best: dict[tuple[str, str], Measurement] = {}
    for row in rows:
        if row.mode != "train" or row.num_workers > 1 or row.step_s is None:
            continue
        if row.work.batch_rows != batch_rows or row.device not in pair:
            continue
        key = (row.work.model, row.device)
        if key not in best or _rank(row) < _rank(best[key]):
            best[key] = row
    models = {model for model, _ in best}
    both = [
        (best[model, pair[0]], best[model, pair[1]])
        for model in models
        if all((model, device) in best for device in pair)
    ]
    return sorted((_ratio(one, other) for one, other in both), key=lambda r: r.num_parameters)


def crossover(found: Iterable[Ratio]) -> float | None:
    """Parameters from which the second device is faster; None if one always is.

    Perceptrons only, where there are some: a convolution does more with a parameter. It is the
    size that leaves the fewest models on the wrong side of it, then where the line between the
    two models beside it passes through one.
    """
    sound = comparable(found)
    if not sound or all(r.times >= 1 for r in sound) or all(r.times < 1 for r in sound):
        return None
    wrong = [
        sum(r.times >= 1 for r in sound[:cut]) + sum(r.times < 1 for r in sound[cut:])
        for cut in range(len(sound) + 1)
    ]
    cut = wrong.index(min(wrong))
    if not 0 < cut < len(sound):
        return None
    left, right = sound[cut - 1], sound[cut]
    low, high = math.log(left.num_parameters), math.log(right.num_parameters)
    below, above = math.log(left.times), math.log(right.times)
    part = -below / (above - below) if below < 0 <= above else 0.5
    return math.exp(low + part * (high - low))


def comparable(found: Iterable[Ratio]) -> list[Ratio]:
    """Sound ratios of models that are told apart by their parameters alone."""
    sound = [one for one in found if one.sound and one.times > 0]
    return [one for one in sound if one.perceptron] or sound


def _rank(row: Measurement) -> tuple[bool, bool, float]:
    """Sound ones first, then exact ones, then the fastest."""
    return not is_sound(row), row.dtype != "f32", row.step_s or math.inf


def _ratio(one: Measurement, other: Measurement) -> Ratio:
    times = (one.step_s or 0.0) / (other.step_s or math.inf)
    sound = is_sound(one) and is_sound(other)
    return Ratio(one.work.num_parameters, times, sound, one.work.model, bool(one.hidden))
