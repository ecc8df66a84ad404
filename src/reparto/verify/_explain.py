"""Where the two runs first part, and what such a difference usually means, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reparto.runtime._record import Entry, Record
from reparto.spec import Divergence
from reparto.verify._compare import difference, gradient_entries, gradient_pairs
from reparto.verify._judge import Excess, summarised

#: So close must a gradient come to a multiple of the other for the factor to be worth telling.
_PROPORTIONAL = 1e-3
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def explain(
    excesses: Sequence[Excess], sequential: Record, shared: Record, num_workers: int
) -> Divergence:
    """Say what went wrong first.

    Args:
        excesses: Not empty; the first in time first.
        sequential: The record that is right.
        shared: The record that differs.
        num_workers: Of the shared-out side.
    """
    first = excesses[0]
    if first.kind == "gradient":
        return _of_gradient(first, sequential, shared, num_workers)
    if first.kind == "tensor":
        return _of_tensors(excesses)
    return _of_scalar(first, excesses, sequential, num_workers)


def _of_scalar(
    first: Excess, excesses: Sequence[Excess], sequential: Record, num_workers: int
) -> Divergence:
    gap = first.gap
    noun = "loss" if first.kind == "loss" else "number read from a tensor"
    place = f"{noun} {first.key}, {_after(gap.order, sequential)}"
    if gap.problem:
        what = f"{_number(gap.sequential)} sequentially, {_number(gap.shared)} shared out"
        return Divergence(
            place=place,
            what=f"{gap.problem} ({what})",
            hint="a decision (early stopping, the length of a loop) came out otherwise"
            if gap.sequential is None or gap.shared is None
            else "",
        )
    assert gap.sequential is not None and gap.shared is not None
    what = (
        f"{gap.sequential:.9g} sequentially, {gap.shared:.9g} shared out: apart by "
        f"{gap.distance:.1e}, allowed are {first.limit:.1e}"
    )
    factor = gap.shared / gap.sequential if gap.sequential else math.nan
    hint = _factor_hint(factor, num_workers, noun="a sum over workers")
    if not hint and first.kind == "loss" and _steps_before(gap.order, sequential) == 0:
        hint = "the first loss differs already: the batch or the initial parameters are not alike"
        if any(str(excess.key).endswith(_STATISTICS) for excess in excesses):
            hint += ", or BatchNorm takes the statistics of one slice"
    elif not hint and first.kind == "loss":
        hint = (
            "the gradients up to here agree: the batch is not the same, or a buffer or "
            "parameter is changed by other means than the optimizer"
        )
    elif not hint:
        hint = "a metric of one worker's slice where that of the whole batch was meant?"
    return Divergence(place=place, what=what, hint=hint)


def _of_gradient(
    first: Excess, sequential: Record, shared: Record, num_workers: int
) -> Divergence:
    owner, step, _ = first.key
    place = f"gradient of {owner} at step {step}"
    ours = gradient_entries(sequential).get(first.key)
    theirs = gradient_entries(shared).get(first.key)
    if first.gap.problem or ours is None or theirs is None:
        return Divergence(place=place, what=first.gap.problem, hint=_step_hint(ours, theirs))
    fit = _fit(sequential, shared, ours, theirs, first.limit)
    what = f"‖Δg‖/‖g‖ is {first.gap.distance:.1e}, allowed are {first.limit:.1e}"
    if fit.residual <= _PROPORTIONAL:
        what += f"; the gradient is {fit.factor:.4f} × the sequential one"
    # Whatever came before agrees: this is the first excess.
    losses_agree = any(entry.order < first.gap.order for entry in sequential.of_kind("loss"))
    hint = ""
    if fit.residual <= _PROPORTIONAL:
        hint = _factor_hint(fit.factor, num_workers, noun="a sum")
        hint = hint or "the loss is divided by something else than the whole batch's divisor?"
    elif len(fit.differing) < fit.num_tensors:
        what += f"; only in {summarised(fit.differing)}, {fit.num_tensors} parameters in all"
        hint = "these parameters miss the reduction over workers, or take part in another loss?"
    elif losses_agree:
        hint = (
            "the losses agree, so the forward pass does: gradients are not reduced over all "
            "workers, or samples are not weighted alike"
        )
    else:
        hint = "a sample is counted twice or left out, or the gradient is not reduced?"
    return Divergence(place=place, what=what, hint=hint)


def _of_tensors(excesses: Sequence[Excess]) -> Divergence:
    worst = max(excesses, key=lambda excess: excess.gap.distance)
    names = [str(excess.key) for excess in excesses]
    problem = worst.gap.problem or (
        f"max|Δ|/max|b| is {worst.gap.distance:.1e}, allowed are {worst.limit:.1e}"
    )
    what = f"{worst.key} {list(worst.gap.shape)}: {problem}"
    if len(names) > 1:
        what += f"; {len(names)} tensors differ: {summarised(names)}"
    if all(name.endswith(_STATISTICS) for name in names):
        hint = "only BatchNorm's running statistics differ: they are not those of the whole batch"
    else:
        hint = (
            "all gradients agree: the update itself differs (learning rate, clipping, weight "
            "decay, an average of the weights), or the tensor is changed without a gradient"
        )
    return Divergence(place="parameters and buffers at the end", what=what, hint=hint)


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """The shared-out gradient as a multiple of the sequential one."""

    factor: float
    residual: float
    differing: tuple[str, ...]
    num_tensors: int


def _fit(sequential: Record, shared: Record, ours: Entry, theirs: Entry, limit: float) -> _Fit:
    pairs = [
        (index, a.double().flatten(), b.double().flatten())
        for index, (a, b) in enumerate(gradient_pairs(sequential, shared, ours, theirs))
        if a is not None and b is not None
    ]
    squares = sum(float(a.dot(a)) for _, a, _ in pairs)
    factor = sum(float(a.dot(b)) for _, a, b in pairs) / (squares or 1.0)
    rest = sum(float((b - factor * a).square().sum()) for _, a, b in pairs)
    size = sum(float(b.dot(b)) for _, _, b in pairs)
    names = ours.data["names"]
    differing = [
        f"{names[index] if names else f'parameter {index}'} {ours.data['shapes'][index]}"
        for index, a, b in pairs
        if float(difference(a, b).norm()) > limit * math.sqrt(squares)
    ]
    return _Fit(
        factor=factor,
        residual=math.sqrt(rest / size) if size else math.inf,
        differing=tuple(differing),
        num_tensors=len(pairs),
    )


def _factor_hint(factor: float, num_workers: int, *, noun: str) -> str:
    if not math.isfinite(factor) or abs(factor - 1) < _PROPORTIONAL:
        return ""
    if num_workers > 1 and math.isclose(factor, num_workers, rel_tol=_PROPORTIONAL):
        return f"{num_workers} × with {num_workers} workers: {noun} where a mean was meant?"
    if num_workers > 1 and math.isclose(factor, 1 / num_workers, rel_tol=_PROPORTIONAL):
        return f"1/{num_workers} with {num_workers} workers: divided once too often?"
    if factor > 1 and math.isclose(factor, round(factor), rel_tol=_PROPORTIONAL):
        return f"{round(factor)} ×: {noun} where a mean was meant?"
    return ""


def _step_hint(ours: Entry | None, theirs: Entry | None) -> str:
    if ours is None or theirs is None:
        return "a decision (early stopping, the length of a loop, a skipped step) differs"
    return "a parameter without gradient is skipped by the optimizer, one with zeros is not"


def _steps_before(order: float, record: Record) -> int:
    return sum(1 for entry in record.of_kind("gradient") if entry.order < order)


def _after(order: float, record: Record) -> str:
    steps = _steps_before(order, record)
    return f"after {steps} steps" if steps else "before the first step"


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.9g}"
