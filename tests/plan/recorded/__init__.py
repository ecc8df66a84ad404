"""Surveys as they were measured, for all that is pure given these.

digits                examples/digits.py, four workers on one machine of two cores
captioning-100mbit    examples/captioning/train.py --scenes 200 --dimension 64, a lab of four hosts
                      with 100 Mbit/s each way and 0.45 of a core (a machine that others used, too)
"""

from functools import cache
from pathlib import Path

from reparto.spec import Survey, from_json

FOLDER = Path(__file__).parent
NAMES = ("digits", "captioning-100mbit")


@cache
def recorded(name):
    """One of them."""
    return from_json(Survey, (FOLDER / f"{name}.json").read_text())
