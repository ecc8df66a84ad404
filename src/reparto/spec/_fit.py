"""FitPoint, DeviceFit and FitResult: how large a batch may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class FitPoint:
    """A short run of the script with batches of some size.

    Attributes:
        rows: Of each batch.
        peak_bytes: The most memory that it had; 0 where it did not fit.
        fits: Whether it came to its end within the memory that it was given.
        predicted_bytes: What was expected of it, from the runs before; 0 where nothing was.
        scale: Of the heap's thresholds, which small runs make as much smaller as their tensors
            are, see `plan._fit`; 1 where it is as it will be.
        took_s: Seconds, with start-up.
    """

    rows: int
    peak_bytes: int = 0
    fits: bool = True
    predicted_bytes: int = 0
    scale: float = 1.0
    took_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DeviceFit:
    """The largest batch for one device.

    Attributes:
        host: Where the device is.
        device: ``cpu``, or the GPU's name.
        limit_bytes: Memory that one worker may have there in all.
        idle_bytes: What a worker has before the script begins.
        rows_now: Of the script's own batches; 0 where that is not known.
        peak_now_bytes: The most memory with these, without what a heap keeps; 0 where they do not
            fit.
        base_bytes: Memory that does not depend on the batch, as fitted; that of an idle worker
            is part of it.
        row_bytes: Memory that each row adds, as fitted.
        rows: The largest batch that is recommended: it was tried, and a margin is left.
        rows_at_limit: The batch that would fill the limit to the last byte, as fitted.
        predicted_bytes: Memory that the first runs had predicted for ``rows``.
        peak_bytes: Memory that it had when it was tried; 0 where it was not.
        status: ``confirmed``: tried, and found to fill the device; ``unlimited``: tried, and
            memory is not what limits the batch; ``unconfirmed``: a prediction.
        points: Every run, in order.
        notes: What should be known about it, in words.
    """

    host: str
    device: str
    limit_bytes: int
    idle_bytes: int
    rows_now: int
    peak_now_bytes: int
    base_bytes: int
    row_bytes: float
    rows: int
    rows_at_limit: int
    predicted_bytes: int
    peak_bytes: int
    status: Literal["confirmed", "unlimited", "unconfirmed"]
    points: tuple[FitPoint, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """The largest batch for each device.

    Attributes:
        script: Path of the script.
        args: Its own arguments.
        vary: The script's option that set the batch; empty where its loaders were told.
        margin: Share of the memory that is left free.
        devices: One answer each.
    """

    script: str
    args: tuple[str, ...] = ()
    vary: str = ""
    margin: float
    devices: tuple[DeviceFit, ...]
