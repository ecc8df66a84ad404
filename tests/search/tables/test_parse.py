"""Many texts at once give the same as one by one."""

import math

import numpy as np
import pytest

from reparto.search._tables import _parse
from reparto.search._tables._forms import COMMA_FORM, ISO_FORM, POINT_FORM
from reparto.search._tables._parse import numbers_of, seconds_of

NUMBERS = {
    "": ["1", "-2.5", "+3e4", ".5", "7.", "x", "", "1,5", "inf", "0x1F", "1e400"],
    POINT_FORM: ["1,234.5", "1,2,3", "12", "-1,000", "$5", "1 000", "5 %", "1e5", "1234.5", "+2"],
    COMMA_FORM: ["1.234,5", "1.2.3", "12", "-1.000", "5 €", "0,5", "+2,5", "1234,5", "x"],
    f"{POINT_FORM} kg": ["1,234.5 kg", "3kg", "4", "5 g"],
}
DATES = {
    ISO_FORM: ["2020-01-02", "2020-01-02 03:04", "2020-01-02T03:04:05.25", "2020-01-02 03:04:05Z",
               "2020-01", "1950-06-07", "x", ""],
    "%d/%m/%Y": ["31/12/2020", "1/2/1960", "32/1/2020", "x"],
    "%m/%d/%Y %I:%M %p": ["12/31/2020 1:05 PM", "1/2/2020 12:00 AM", "1/2/2020"],
    "%d.%m.%y": ["31.12.99", "1.2.03"],
    "%b %d, %Y": ["Jan 02, 2020", "Feb 3, 1969"],
}  # fmt: skip


@pytest.mark.parametrize(("form", "texts"), [*NUMBERS.items()])
def test_numbers_at_once_are_as_one_by_one(monkeypatch, form, texts):
    slow = numbers_of(texts, form)
    monkeypatch.setattr(_parse, "_FEW", 0)
    np.testing.assert_array_equal(numbers_of(texts, form), slow)
    assert any(map(math.isfinite, slow))


@pytest.mark.parametrize(("form", "texts"), [*DATES.items()])
@pytest.mark.parametrize("also", [[], ["2021-02-31"]])
def test_dates_at_once_are_as_one_by_one(monkeypatch, form, texts, also):
    slow = seconds_of([*texts, *also], form)
    monkeypatch.setattr(_parse, "_FEW", 0)
    np.testing.assert_array_equal(seconds_of([*texts, *also], form), slow)
    assert math.isfinite(slow[0]) and (not also or math.isnan(slow[-1]))
