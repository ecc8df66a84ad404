"""What may be wrong with a row, as pure functions of what was measured.

did-not-learn    the loss is no better than a constant answer's: nothing was learned, however fast
not-like-for-like  the row did other work than the rows it stands beside
noisy            its times are spread too widely, or others used the device meanwhile
throttled        the device was slower than it can be
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from reparto.bench._cells import is_script
from reparto.spec import Flag, Measurement, Work

#: Of the loss of the best constant: one that is not lower has not learned.
LEARNED = 0.98
#: Of the first loss, where no constant is known.
LOWERED = 0.99
#: Width of the 95 % interval, as a part of the median.
NOISY = 0.10
#: A device that is this much slower after the work than before it.
SLOWED = 1.15


def learned(first: float | None, last: float | None, constant: float | None) -> bool | None:
    """Whether a network has learned.

    A dead one (all units off, or a rate of zero) answers with a constant, at best the best one.

    Args:
        first: Its loss before the first step.
        last: Its loss after the last one.
        constant: The loss of the best constant on the same data.

    Returns:
        None where losses are not known.
    """
    if last is None:
        return None
    if not math.isfinite(last):
        return False
    if constant is not None:
        return last < LEARNED * constant
    return None if first is None else last < LOWERED * first


def noisy(low_s: float, high_s: float, step_s: float) -> bool:
    """Whether the median is known too badly."""
    return high_s - low_s > NOISY * step_s


def slowed(before_s: float, after_s: float) -> bool:
    """Whether the same piece of work took longer after the measurement than before it."""
    return after_s > SLOWED * before_s


def unlike(work: Work, reference: Work) -> tuple[str, ...]:
    """In words, what one row did otherwise than another that it stands beside."""
    told = {
        "num_parameters": "parameters",
        "num_samples": "samples of data",
        "batch_rows": "samples a step",
        "target_steps": "steps",
    }
    found = [
        f"{getattr(work, name)} {what} instead of {getattr(reference, name)}"
        for name, what in told.items()
        if getattr(work, name) != getattr(reference, name)
        and (getattr(work, name) and getattr(reference, name))  # 0: nobody knows
    ]
    if work.data != reference.data:
        found.append("other data")
    if (work.suite, work.model) != (reference.suite, reference.model):
        found.append(f"{work.model} instead of {reference.model}")
    return tuple(found)


def guarded(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """All rows, with every flag that they deserve; those that they have stay.

    Whether work is alike is seen only beside others: rows of one model, mode and batch are held
    against the first of them that ran plainly in one worker.
    """
    references: dict[tuple[object, ...], Work] = {}
    for row in sorted(rows, key=lambda row: (row.num_workers > 1, row.form not in _BASES)):
        if not row.failure:
            references.setdefault(_beside(row), row.work)
    return tuple(_flagged(row, references.get(_beside(row), row.work)) for row in rows)


_BASES = ("plain", "eager")


def _beside(row: Measurement) -> tuple[object, ...]:
    """Which rows a table or a plot sets side by side."""
    rows = 0 if is_script(row.work.suite) else row.work.batch_rows  # a script has one batch only
    return row.work.suite, row.work.model, row.mode, rows


def _flagged(row: Measurement, reference: Work) -> Measurement:
    flags: list[Flag] = [flag for flag in row.flags if flag in ("throttled", "noisy")]
    notes = [note for note in row.notes if not note.startswith(_UNLIKE)]
    if row.failure:
        flags.append("failed")
    else:
        different = unlike(row.work, reference)
        if different:
            flags.append("not-like-for-like")
            notes.append(_UNLIKE + ", ".join(different))
        if row.mode == "train" and learned(*_losses(row)) is False:
            flags.append("did-not-learn")
        if row.step_s and row.low_s is not None and row.high_s is not None:
            is_noisy = noisy(row.low_s, row.high_s, row.step_s) and "noisy" not in flags
            flags += ["noisy"] if is_noisy else []
    return dataclasses.replace(row, flags=tuple(flags), notes=tuple(notes))


_UNLIKE = "not like for like: "


def _losses(row: Measurement) -> tuple[float | None, float | None, float | None]:
    return row.loss_first, row.loss_last, row.loss_constant
