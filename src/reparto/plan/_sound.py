"""Whether a survey can have been measured at all: one from a file may be damaged. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reparto.spec import Rehearsal, SliceTime, Survey, Trial


def flaw_of(survey: Survey) -> str:
    """What cannot have been measured, in words; empty where there is nothing of the kind."""
    return next(_flaws(survey), "")


def _flaws(survey: Survey) -> Iterator[str]:
    if not survey.placement:
        yield "placement: no host"
    if survey.num_steps is not None and survey.num_steps < 1:
        yield f"num_steps: {survey.num_steps}"
    for name in ("num_parameters", "gradient_bytes", "batch_rows", "base_bytes", "row_bytes"):
        if not _is_amount(getattr(survey.profile, name)):
            yield f"profile.{name}: {getattr(survey.profile, name)}"
    if not _is_amount(survey.startup_s):
        yield f"startup_s: {survey.startup_s}"
    if not _is_step(survey.alone):
        yield "alone: it took no time, or less"
    for worker in survey.workers:
        kinds = {(one.apart, one.rows) for one in worker.slices}
        is_good = all(map(_is_step, worker.slices)) and len(kinds) == len(worker.slices) > 0
        if not is_good or worker.rank not in range(len(survey.placement)):
            yield f"workers: rank {worker.rank} of {worker.num_workers}"
    if any(worker.num_workers > 1 for worker in survey.workers) and not survey.exchanges:
        yield "exchanges: none, of several workers"
    for exchange in survey.exchanges:
        is_good = _is_amount(exchange.seconds) and _is_amount(exchange.cpu_s)
        if not is_good or exchange.num_workers < 2 or exchange.size_bytes < 1:
            yield f"exchanges: {exchange.pattern} of {exchange.num_workers}"
    for cost in survey.costs:
        if not all(map(_is_amount, (cost.step_s, cost.cpu_s, cost.aside_s))):
            yield f"costs: {cost.strategy.kind}"
    seen: list[Rehearsal | Trial] = [*survey.rehearsals, *survey.trials]
    for made in seen:
        if not (_is_amount(made.step_s) and made.step_s > 0):
            yield f"rehearsals or trials: {made.strategy.kind}"
    for link in survey.cluster.links:
        is_good = _is_amount(link.rate_bits_per_s) and link.rate_bits_per_s > 0
        if not is_good or not _is_amount(link.latency_s):
            yield f"cluster.links: {link.source} to {link.target}"


def _is_step(one: SliceTime) -> bool:
    parts = (one.rows, one.forward_s, one.backward_s, one.update_s, one.cpu_s, one.num_meetings)
    return all(map(_is_amount, parts)) and one.step_s > 0


def _is_amount(number: float) -> bool:
    return 0 <= number < math.inf
