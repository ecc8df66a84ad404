"""Decides how a job is shared out. Reads what was measured, predicts, never starts a process."""

from reparto.plan._choose import check_prices, choose, time_measure
from reparto.plan._everything import place, plan_run
from reparto.plan._fit import (
    MARGIN,
    MAX_ROWS,
    SMALLEST,
    Attempt,
    MemoryLine,
    fit_line,
    friendly,
    is_measured,
    next_attempt,
    predicted_rows,
    recommended,
    usable_bytes,
)
from reparto.plan._prices import (
    duration_text,
    hosts_of,
    parse_duration,
    parse_prices,
    price_of,
    price_text,
)
from reparto.plan._sound import flaw_of
from reparto.plan._what_if import imagine, parse_changes
from reparto.plan._why import rate_in_words, times

__all__ = [
    "MARGIN",
    "MAX_ROWS",
    "SMALLEST",
    "Attempt",
    "MemoryLine",
    "check_prices",
    "choose",
    "duration_text",
    "fit_line",
    "flaw_of",
    "friendly",
    "hosts_of",
    "imagine",
    "is_measured",
    "next_attempt",
    "parse_changes",
    "parse_duration",
    "parse_prices",
    "place",
    "plan_run",
    "predicted_rows",
    "price_of",
    "price_text",
    "rate_in_words",
    "recommended",
    "time_measure",
    "times",
    "usable_bytes",
]
