"""Clouds that a wind drives over sensors: readings of a grid that nobody has to download.

A cloud field is a sum of plane waves, from 400 m to 5 km long, the longer the higher. The wind
carries all of them along, each changes a little on its way, and where the sum is high there is a
cloud. A cosine of a difference falls apart into what depends on time and what depends on place:

    cos(k·(p - drift) + φ)  =  cos(k·p + φ) cos(k·drift) + sin(k·p + φ) sin(k·drift)

so that all sensors at all seconds are one product of two matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import numpy as np

from reparto.bench._midc import DAY_S, Readings

_Floats = np.ndarray[Any, np.dtype[np.float64]]

NUM_SENSORS = 50
FIELD_M = 1000.0  # side of the square in which sensors stand
FIRST_DAY = (date(2010, 6, 1) - date(1970, 1, 1)).days
LIGHT_S = 36_000  # of a day, around noon, are computed: ten hours

_NUM_WAVES = 128
_SHORTEST_M, _LONGEST_M = 400.0, 5000.0
_CHANGE_S = 900.0  # in which a wave has become another
_WIND_M_PER_S = 10.0  # trade wind, from the north-east
_WIND_FROM = np.deg2rad(45.0)
_LATITUDE = np.deg2rad(21.3)
_NOISE_W = 1.5  # of a sensor
_CHUNK = 4_000_000  # numbers at a time


class Sky:
    """One day's clouds, by a seed of its own."""

    def __init__(self, random: np.random.Generator) -> None:
        lengths = np.exp(random.uniform(np.log(_SHORTEST_M), np.log(_LONGEST_M), _NUM_WAVES))
        directions = random.uniform(0, 2 * np.pi, _NUM_WAVES)
        heights = np.sqrt(lengths)
        self._heights = heights * np.sqrt(2 / np.sum(heights**2))  # their sum varies by 1
        self._waves = 2 * np.pi / lengths * _unit(directions)
        self._phases = random.uniform(0, 2 * np.pi, _NUM_WAVES)
        self._changes = random.normal(0, 2 * np.pi / _CHANGE_S, _NUM_WAVES)
        self._cover = random.uniform(-0.2, 0.5)
        self._speed = _WIND_M_PER_S * random.uniform(0.85, 1.15)
        self._from = _WIND_FROM + random.normal(0, np.deg2rad(8))
        self._gusts = random.uniform(0, 2 * np.pi, 2)

    def clearness(self, seconds: _Floats, places: _Floats) -> _Floats:
        """What of a clear sky's light arrives: a row a second, a column a place (in metres)."""
        here = places @ self._waves + self._phases
        then = self._drift(seconds) @ self._waves + np.outer(seconds, self._changes)
        field = np.cos(then) @ (self._heights * np.cos(here)).T
        field += np.sin(then) @ (self._heights * np.sin(here)).T
        field -= self._cover
        cloud = 0.5 + 0.5 * np.tanh(field / 0.4)
        edge = np.exp(-(((field + 0.45) / 0.35) ** 2))  # light from the cloud's side, added
        clear: _Floats = 1 - 0.7 * cloud + 0.12 * edge
        return clear

    def _drift(self, seconds: _Floats) -> _Floats:
        """How far, to the east and to the north, the wind has carried the clouds."""
        steady = -self._speed * np.outer(seconds, _unit(self._from)[:, 0])
        gusts = np.sin(2 * np.pi * seconds[:, None] / (1500.0, 2300.0) + self._gusts)
        drift: _Floats = steady + 250.0 * gusts  # wind that turns and swells by 1 m/s
        return drift


def clear_sky(seconds: _Floats) -> _Floats:
    """W/m² on the horizontal plane without clouds, after Haurwitz; of seconds since 1970."""
    days, rest = np.divmod(seconds, DAY_S)
    season = 2 * np.pi * (days % 365.25 + 10) / 365.25
    declination = -np.deg2rad(23.44) * np.cos(season)
    hour = 2 * np.pi * (rest / DAY_S - 0.5)
    height = np.sin(_LATITUDE) * np.sin(declination)
    height = height + np.cos(_LATITUDE) * np.cos(declination) * np.cos(hour)
    up = np.maximum(height, 1e-3)
    clear: _Floats = np.where(height > 0, 1098 * up * np.exp(-0.057 / up), 0.0)
    return clear


def hours_of_light(num_seconds: int) -> _Floats:
    """So many seconds since 1970: around noon, and of as many days as it takes."""
    rows = np.arange(num_seconds)
    days, within = np.divmod(rows, LIGHT_S)
    lengths = np.minimum(LIGHT_S, num_seconds - days * LIGHT_S)
    seconds: _Floats = (FIRST_DAY + days + 0.5) * DAY_S - lengths // 2 + within
    return seconds


def light(seconds: _Floats, places: _Floats, seed: int) -> Iterator[tuple[slice, _Floats]]:
    """Rows of W/m² at places, some seconds at a time, and which of the seconds these are."""
    most = max(1, _CHUNK // len(places))
    for day, start in enumerate(range(0, len(seconds), LIGHT_S)):
        sky = Sky(np.random.default_rng([seed, day]))
        end = min(start + LIGHT_S, len(seconds))
        for low in range(start, end, most):
            part = slice(low, min(low + most, end))
            within = np.arange(part.start, part.stop, dtype=np.float64) - start
            watts = clear_sky(seconds[part])[:, None] * sky.clearness(within, places)
            # rounded, so that what the last bit of a sum depends on (threads) is not seen
            yield part, np.round(watts, 2)


def sensor_places(num_sensors: int, seed: int) -> _Floats:
    """Where sensors stand: in rows and columns, each a little off, in metres."""
    columns = int(np.ceil(np.sqrt(2 * num_sensors)))
    rows = -(-num_sensors // columns)
    cell = np.array([FIELD_M / columns, FIELD_M / rows])
    off = np.random.default_rng([seed, 1 << 20]).uniform(-0.25, 0.25, (num_sensors, 2))
    index = np.arange(num_sensors)
    places: _Floats = (np.stack([index % columns, index // columns], axis=1) + 0.5 + off) * cell
    return places


def generate(num_seconds: int, seed: int = 0, num_sensors: int = NUM_SENSORS) -> Readings:
    """Readings of a sensor grid under moving clouds, as a station would publish them.

    Args:
        num_seconds: Rows. They lie around noon, and beyond ten hours on further days.
        seed: Of the places, the clouds and the noise.
        num_sensors: Columns.

    Returns:
        The same for the same arguments; to 0.01 W/m², nothing missing.
    """
    seconds = hours_of_light(num_seconds)
    places = sensor_places(num_sensors, seed)
    watts = np.concatenate([part for _, part in light(seconds, places, seed)])
    noise = np.random.default_rng([seed, 1 << 21]).standard_normal(watts.shape, np.float32)
    return Readings(
        sensors=tuple(f"S{index + 1:02}" for index in range(num_sensors)),
        seconds=seconds.astype(np.int64),
        watts=np.round(watts + _NOISE_W * noise, 2),
    )


def _unit(direction: Any) -> _Floats:
    """East and north of a direction, clockwise from the north, one below the other."""
    return np.atleast_2d(np.array([np.sin(direction), np.cos(direction)]).reshape(2, -1))
