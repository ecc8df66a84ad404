"""What is told of steps that were timed."""

import pytest

from reparto.runtime._survey import _median
from reparto.spec import SliceTime


def _timed(forward_s, backward_s, update_s):
    return SliceTime(
        rows=8, forward_s=forward_s, backward_s=backward_s, update_s=update_s, cpu_s=0.1
    )


def test_no_part_of_a_step_is_lost_where_others_are_disturbed_in_turn():
    """The medians of forward and backward are as long as the median of the step."""
    found = _median([_timed(5.0, 1.0, 1.0), _timed(5.0, 5.0, 1.0), _timed(1.0, 5.0, 1.0)])
    assert found.step_s == pytest.approx(7.0)
    assert found.forward_s == found.backward_s == pytest.approx(5 * found.update_s)
