"""What the models are trained on: irradiance for the grid and the CNN, random numbers for others.

Rows are shuffled once, with the seed, so that a batch is no minute of successive seconds.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Samples of a data set: nine hours of seconds, and as many maps as fit any GPU.
GRID_SAMPLES, CNN_SAMPLES, RANDOM_SAMPLES = 32_768, 4096, 4096
#: Samples on which a loss is taken, before and after.
HELD = 512
_MAX_RANDOM = 1 << 26  # numbers of a random data set, at most


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Samples, and what is known of them.

    Attributes:
        x: Inputs, float32.
        y: What a model is to say; None where that follows from the model's output.
        digest: Of both.
        loss_constant: Of the best constant on the held samples; None where there is no target.
    """

    x: Array
    y: Array | None
    digest: str
    loss_constant: float | None


def grid_data(num_samples: int = GRID_SAMPLES, seed: int = 0) -> DataSet:
    """All sensors now, and one of them ten seconds later."""
    from reparto.bench import _irradiance  # takes a moment, needed by workers only

    return _shuffled(*_irradiance.supervised(num_samples, seed), seed)


def cnn_data(num_samples: int = CNN_SAMPLES, seed: int = 0) -> DataSet:
    """The same as maps."""
    from reparto.bench import _irradiance

    return _shuffled(*_irradiance.maps(num_samples, seed), seed)


def random_data(shape: tuple[int, ...], seed: int = 0) -> DataSet:
    """Normal numbers of that shape; as many samples as are wanted, or as 256 MiB hold."""
    count = max(1, min(RANDOM_SAMPLES, _MAX_RANDOM // max(1, int(np.prod(shape)))))
    x = np.random.default_rng(seed).standard_normal((count, *shape), dtype=np.float32)
    return DataSet(x=x, y=None, digest=digest(x), loss_constant=None)


def digest(*arrays: Array) -> str:
    """A short name for these numbers."""
    value = 0
    for array in arrays:
        value = zlib.crc32(np.ascontiguousarray(array).tobytes(), value)
    return f"{value:08x}"


def constant_loss(y: Array) -> float:
    """The mean squared error of the best constant: the variance."""
    return float(np.mean(np.var(y.astype(np.float64), axis=0)))


def _shuffled(x: Array, y: Array, seed: int) -> DataSet:
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = np.ascontiguousarray(x[order]), np.ascontiguousarray(y[order])
    return DataSet(x=x, y=y, digest=digest(x, y), loss_constant=constant_loss(y[:HELD]))
