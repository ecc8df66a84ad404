"""Limits: when a search ends, and a candidate, by what the request says and what it leaves out."""

from __future__ import annotations

import math

from reparto.search._conduct import Limits
from reparto.search._setup import Setup
from reparto.search._suggest import grid_size
from reparto.spec import SearchRequest

#: A candidate may take this part of the time if the request does not say how long.
CANDIDATE_SHARE = 0.5
#: And if it does not say either how long all of it may take.
CANDIDATE_S = 600.0
#: Whoever asks for a grid of more points is told how to end it.
LONG_GRID = 100


def limits_of(request: SearchRequest, setup: Setup, used_s: float) -> tuple[Limits, list[str]]:
    """When it ends, and notes for people on what they have not said.

    Args:
        request: What is asked.
        setup: What will be searched.
        used_s: By earlier parts of the same search.
    """
    notes: list[str] = []
    time_s = request.time_s
    is_open = request.trials is None and request.cost is None and not request.candidates
    if time_s is None and is_open and request.search != "grid":
        time_s = setup.default_time_s + used_s
        notes.append(
            f"no limit was given, so it ends after {time_s:.0f} s: --time 10m sets another"
        )
    if request.search == "grid" and not request.candidates:
        count = grid_size(setup.grounds)
        is_long = is_open and time_s is None and count > LONG_GRID
        endless = "; --time 10m ends it sooner" if is_long else ""
        notes.append(f"the grid has {count} candidate{'s' if count != 1 else ''}{endless}")
    candidate_s = request.candidate_s
    if candidate_s is None:
        # How long a run of a script takes is its author's affair.
        candidate_s = CANDIDATE_S if setup.facts is not None else math.inf
        if time_s is not None:
            candidate_s = max(5.0, CANDIDATE_SHARE * time_s)
    limits = Limits(
        time_s=math.inf if time_s is None else time_s,
        cost=math.inf if request.cost is None else request.cost,
        trials=math.inf if request.trials is None else request.trials,
        candidate_s=candidate_s,
    )
    return limits, notes
