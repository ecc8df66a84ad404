"""Of several times of an operation, one counts."""

import pytest

from reparto.measure.exchanges import typical_s


def test_the_first_time_sets_a_line_going_and_does_not_count():
    assert typical_s([0.0448, 0.0569, 0.0548, 0.0553]) == 0.0553


@pytest.mark.parametrize("walls", [[0.4956, 0.6289], [0.6289, 0.4956]])
def test_what_holds_up_a_long_one_once_is_not_taken_for_the_line(walls):
    """All-reduce of 512 KiB over 10 Mbit/s; 6.6 MB then took 6.4 s, thirteen times the first."""
    small_s, small, large, all_of_it = 0.0553, 65536, 524288, 6639764
    a_byte_s = (typical_s(walls) - small_s) / (large - small)
    assert small_s + a_byte_s * (all_of_it - small) == pytest.approx(6.37, rel=0.05)
