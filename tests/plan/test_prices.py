"""Times and prices as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reparto.errors import UsageError
from reparto.plan import (
    duration_text,
    hosts_of,
    parse_duration,
    parse_prices,
    price_of,
    price_text,
)
from tests.plan.made import alone, survey, way


def test_prices_are_of_a_host_or_of_all_others():
    assert parse_prices([]) == {}
    assert parse_prices(["gpu-1=0.40/h", "0.5/h"]) == {"gpu-1": 0.4, "*": 0.5}
    assert parse_prices(["a=0/h", "*=2 / H"]) == {"a": 0.0, "*": 2.0}


@pytest.mark.parametrize(
    "text", ["", "a=", "a=0.40", "0.4", "a=-1/h", "=1/h", "a=1/m", "a=$1/h", "a=b=1/h", "9" * 400]
)
def test_what_is_no_price_is_told_with_how_to_write_one(text):
    with pytest.raises(UsageError, match="is no price") as caught:
        parse_prices([text])
    assert "HOST=0.40/h" in caught.value.remedy


def test_a_price_that_is_too_large_for_a_number_is_refused():
    with pytest.raises(UsageError, match="is no price"):
        parse_prices(["a=" + "9" * 400 + "/h"])


@pytest.mark.parametrize(
    ("texts", "who"),
    [(["a=1/h", "a=2/h"], "a has"), (["1/h", "2/h"], "hosts that are not named have")],
)
def test_two_prices_of_one_host_are_refused(texts, who):
    with pytest.raises(UsageError, match=f"{who} two prices"):
        parse_prices(texts)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), ("1H 30 m", 5400),
     ("1d1h1m1s", 90061), ("0.5s", 0.5)],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "2", "h", "30m1h", "1h1h", "-1h", "0s", "2 hours", "1e3s", "inf", "9" * 400 + "h"]
)
def test_what_is_no_duration_is_told_with_the_option(text):
    with pytest.raises(UsageError, match=r"--deadline: .* is no time") as caught:
        parse_duration(text)
    assert "1h30m" in caught.value.remedy


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m"), (61, "1m01s"),
     (3599.7, "1h"), (5400, "1h30m"), (86399, "1d"), (90000, "1d01h"), (float("inf"), "forever")],
)  # fmt: skip
def test_durations_are_told_in_their_two_largest_units(seconds, text):
    assert duration_text(seconds) == text


@given(st.floats(min_value=0.1, max_value=1e8))
def test_a_duration_that_is_told_reads_as_about_the_same(seconds):
    assert parse_duration(duration_text(seconds)) == pytest.approx(seconds, rel=0.06, abs=0.06)


def test_small_amounts_are_not_told_as_nothing():
    told = [price_text(amount) for amount in (0.0, 0.0042, 0.4, 12.3)]
    assert told == ["0.00", "0.0042", "0.40", "12.30"]


def test_one_machine_is_where_the_script_was_measured():
    there = survey(alone_host="d")
    assert hosts_of(alone(), there) == ("d",)
    assert hosts_of(way(num_workers=2), there) == ("a", "b")
    assert hosts_of(alone(), survey(alone_host="")) == ("a",)


def test_price_is_hosts_in_use_times_hours():
    here = survey(placement=("a", "a", "b", "b"))
    prices = {"a": 1.0, "*": 0.25}
    hour = {"total_s": 3600.0}
    assert price_of(alone(**hour), here, prices) == 1.0
    assert price_of(way(num_workers=2, **hour), here, prices) == 1.0  # both on a
    assert price_of(way(num_workers=4, **hour), here, prices) == 1.25
    assert price_of(way(num_workers=4, total_s=1800.0), here, prices) == 0.625


def test_price_is_not_known_without_prices_or_time():
    assert price_of(way(), survey(), {}) is None
    assert price_of(way(total_s=None), survey(), {"*": 1.0}) is None


def test_a_host_without_a_price_is_told_only_where_it_is_used():
    assert price_of(way(num_workers=2), survey(), {"a": 1.0, "b": 1.0}) is not None
    with pytest.raises(UsageError, match="no price for c") as caught:
        price_of(way(num_workers=4), survey(), {"a": 1.0, "b": 1.0})
    assert "--price c=0.40/h" in caught.value.remedy
