"""Simulations as a table, the fastest first."""

from __future__ import annotations

from collections.abc import Sequence

from reparto.plan import duration_text
from reparto.spec import Simulation, Survey
from reparto.sweep._survey_table import brief
from reparto.sweep._table import NONE, aligned, count, figures

HEADER = (
    *("strategy", "step", "p95", "samples/s", "efficiency", "whole script"),
    *("waiting", "steps lost", "training"),
)
_WORDS = {0, 8}


def simulation_lines(survey: Survey, simulations: Sequence[Simulation]) -> list[str]:
    """What each strategy would take; the plain script on one host first.

    Args:
        survey: That they were made of, for the plain script.
        simulations: On the same number of hosts.
    """
    ranked = sorted(simulations, key=lambda one: one.mean_s / one.samples_a_step)
    return aligned([HEADER, _alone(survey), *map(_row, ranked)], _WORDS)


def _alone(survey: Survey) -> tuple[str, ...]:
    step_s, steps = survey.alone.step_s, survey.num_steps
    whole = NONE if steps is None else duration_text(survey.startup_s + steps * step_s)
    rate = figures(max(1, survey.profile.batch_rows) / step_s)
    return ("one host", brief(step_s), NONE, rate, "100 %", whole, NONE, NONE, "exact")


def _row(one: Simulation) -> tuple[str, ...]:
    training = "exact" if one.exact else "relaxed"
    lost = count(one.steps_lost)
    if not one.is_finished:
        return (one.label, *("never done",), *(NONE,) * 5, lost, training)
    return (
        one.label,
        brief(one.mean_s),
        brief(one.p95_s),
        figures(one.samples_per_s),
        _percent(one.efficiency),
        NONE if one.script_s is None else duration_text(one.script_s),
        _percent(one.waiting),
        lost,
        training,
    )


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "< 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"
