"""Data like system C's: from the light on 50 sensors, the light on one of them ten seconds later.

    x  all sensors at second t         ┐  of a published grid (`read_midc`),
    y  the middle one at second t + 10 ┘  or of clouds that move over one (`generate`)

Clouds come with the wind, so that sensors upwind tell what will be. The baseline that knows
nothing of that is *persistence*: it will be as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reparto.bench._clouds import FIELD_M, LIGHT_S, generate, hours_of_light, light
from reparto.bench._midc import Readings, read_midc, write_midc
from reparto.errors import UsageError

__all__ = [
    "Readings", "generate", "maps", "pairs", "persistence", "read_midc", "skill", "supervised",
    "write_midc",
]  # fmt: skip

Array = np.ndarray[Any, np.dtype[np.float32]]
_Rows = np.ndarray[Any, np.dtype[np.intp]]

HORIZON_S = 10
MAP_SIDE = 50
NIGHT_W = 10.0  # W/m²: below, on the average of all sensors, there is nothing to foresee
MIDDLE_W, SPREAD_W = 500.0, 300.0  # W/m²: what is scaled to 0 and how much to 1


_MIDDLE = MAP_SIDE // 2


def supervised(num_samples: int, seed: int = 0) -> tuple[Array, Array]:
    """Generated readings as a task: `x` of [N, 50], `y` of [N, 1], both scaled.

    Args:
        num_samples: Successive seconds.
        seed: The same numbers for the same seed.

    Example:
        >>> x, y = supervised(1000)
        >>> x.shape, y.shape, x.dtype
        ((1000, 50), (1000, 1), dtype('float32'))
    """
    return pairs(generate(_rows_for(num_samples), seed))


def maps(num_samples: int, seed: int = 0) -> tuple[Array, Array]:
    """The same clouds as `supervised`, seen everywhere: `x` of [N, 1, 50, 50], `y` of [N, 1].

    A map shows the field in which the sensors stand, 20 m a point; `y` is its middle ten seconds
    later.
    """
    seconds = hours_of_light(_rows_for(num_samples))
    now, then = _ahead(seconds, HORIZON_S)
    step = (np.arange(MAP_SIDE) + 0.5) * FIELD_M / MAP_SIDE
    places = np.stack(np.meshgrid(step, step), axis=-1).reshape(-1, 2)  # rows go to the north
    x = np.empty((num_samples, MAP_SIDE * MAP_SIDE), dtype=np.float32)
    for part, watts in light(seconds, places, seed):
        first, last = np.searchsorted(now, [part.start, part.stop])
        x[first:last] = _scaled(watts[now[first:last] - part.start])
    middle = places[[_MIDDLE * MAP_SIDE + _MIDDLE]]
    line = np.concatenate([watts for _, watts in light(seconds, middle, seed)])
    return x.reshape(num_samples, 1, MAP_SIDE, MAP_SIDE), _scaled(line[then])


def pairs(
    readings: Readings, target: str | None = None, horizon_s: int = HORIZON_S
) -> tuple[Array, Array]:
    """Readings as a task: `x` of [N, sensors], `y` of [N, 1], both scaled.

    The night, seconds in which a sensor is missing, and those with no reading `horizon_s` later
    are left out.

    Args:
        readings: Of a file, or generated.
        target: The sensor to foretell; without, the one in the middle of the list.
        horizon_s: How far ahead.

    Raises:
        UsageError: If there is no such sensor, or nothing is left.
    """
    if target is not None and target not in readings.sensors:
        known = ", ".join(readings.sensors)
        raise UsageError(f"there is no sensor {target!r}", remedy=f"there are {known}")
    watts = readings.watts
    column = len(readings.sensors) // 2 if target is None else readings.sensors.index(target)
    whole = ~np.isnan(watts).any(axis=1)
    day = np.nan_to_num(watts).mean(axis=1) >= NIGHT_W
    now, then = _ahead(readings.seconds, horizon_s)
    kept = whole[now] & day[now] & ~np.isnan(watts[then, column])
    if not kept.any():
        raise UsageError(
            f"of {len(watts)} rows none can be used: {np.count_nonzero(whole)} have all sensors, "
            f"{np.count_nonzero(day)} are by day, {len(now)} have one {horizon_s} s later",
            remedy="name fewer sensors, or take a file with a row a second",
        )
    return _scaled(watts[now[kept]]), _scaled(watts[then[kept], column][:, None])


def persistence(x: Array, y: Array, target: int | None = None) -> float:
    """Root mean square error of *it will be as it is*, scaled as `y`; the baseline to beat.

    Args:
        x: Sensors [N, sensors] or maps [N, 1, side, side].
        y: What came, [N, 1].
        target: The foretold sensor's column; without, the middle one.
    """
    if x.ndim == 4:
        now = x[:, 0, x.shape[2] // 2, x.shape[3] // 2]
    else:
        now = x[:, x.shape[1] // 2 if target is None else target]
    return float(np.sqrt(np.mean(np.square(now - y[:, 0], dtype=np.float64))))


def skill(error: float, x: Array, y: Array, target: int | None = None) -> float:
    """What a root mean square error saves of persistence's: 1 is perfect, 0 no better."""
    baseline = persistence(x, y, target)
    return 1 - error / baseline if baseline else 0.0


def watts_of(error: float) -> float:
    """A scaled error in W/m²."""
    return error * SPREAD_W


def _ahead(seconds: np.ndarray[Any, Any], horizon_s: int) -> tuple[_Rows, _Rows]:
    """Rows that have one just `horizon_s` later, and those."""
    then = np.searchsorted(seconds, seconds + horizon_s)
    now = np.flatnonzero(then < len(seconds))
    now = now[seconds[then[now]] == seconds[now] + horizon_s]
    return now, then[now]


def _rows_for(num_samples: int) -> int:
    """Seconds for so many samples: the last ten of each day are nobody's past."""
    if num_samples < 1:
        raise UsageError(f"{num_samples} samples are none", remedy="ask for one or more")
    return num_samples + HORIZON_S * -(-num_samples // (LIGHT_S - HORIZON_S))


def _scaled(watts: np.ndarray[Any, Any]) -> Array:
    return ((watts - MIDDLE_W) / SPREAD_W).astype(np.float32)
