"""Which failure is shown, and how a run's end is put together."""

import signal

import pytest

from reparto.engines._verdict import conclude, death, first_failure, is_echo
from reparto.spec import Failure, StepRecord


def failure(rank=0, error="ValueError", message="", time_s=0.0, line=0):
    return Failure(
        rank=rank, host="h", error=error, message=message, time_s=time_s, file="t.py", line=line
    )


ECHO = failure(
    rank=0,
    error="RuntimeError",
    message="[gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:1234",
    time_s=1.0,
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (ECHO, True),
        (failure(error="DistNetworkError"), True),
        (failure(error="WorkerError"), True),
        (failure(error="RuntimeError", message="mat1 and mat2 cannot be multiplied"), False),
        (failure(error="ValueError", message="connection closed by peer"), False),
        (death(1, "h", -signal.SIGKILL, step=0, time_s=0.0, log=""), False),
    ],
)
def test_echo_is_told_from_cause(found, expected):
    assert is_echo(found) is expected


def test_cause_is_shown_even_if_an_echo_was_seen_before_it():
    cause = failure(rank=1, time_s=2.0)
    assert first_failure([ECHO, cause]) is cause


def test_earliest_of_two_causes_is_shown():
    early, late = failure(rank=2, time_s=1.0, line=3), failure(rank=0, time_s=2.0, line=9)
    assert first_failure([late, early]) is early


def test_same_mistake_on_all_workers_is_told_of_worker_zero():
    other, main = failure(rank=1, time_s=1.0, line=3), failure(rank=0, time_s=2.0, line=3)
    assert first_failure([other, main]) is main


def test_no_failure_is_none():
    assert first_failure([]) is None


def test_death_by_signal_names_the_signal_and_the_usual_cause():
    found = death(1, "h", -signal.SIGKILL, step=3, time_s=0.0, log="tail")
    assert (found.error, found.traceback) == ("Signal", "tail")
    assert "SIGKILL" in found.message and "memory" in found.message


def ended(**changes):
    told = {
        "num_workers": 2,
        "failure": None,
        "stopped": False,
        "exit_code": 0,
        "summary": {"num_steps": 4, "num_samples": 32, "train_s": 1.5, "notes": ["b", "a"]},
        "last_step": StepRecord(step=3, time_s=1.0, samples=8, loss=0.5),
        "total_s": 2.0,
        "startup_s": 0.5,
        "notes": ("a",),
    }
    return conclude(**{**told, **changes})


def test_summary_of_the_main_worker_wins_over_the_last_step_told():
    result = ended()
    assert (result.status, result.num_steps, result.num_samples) == ("done", 4, 32)
    assert result.notes == ("a", "b")


def test_costs_of_talking_are_means_over_the_workers_that_told():
    summary = {"wire_bytes": 10.0, "waited_s": 1.0, "bytes_sent": 7}
    result = ended(summary=summary, others=[{"wire_bytes": 20.0, "waited_s": 2.0}, {}])
    assert (result.wire_bytes, result.waited_s, result.bytes_sent) == (15.0, 1.5, 7)


def test_last_step_stands_in_for_a_summary_that_never_came():
    result = ended(summary=None, failure=failure())
    assert (result.status, result.num_steps, result.final_loss) == ("failed", 3, 0.5)


def test_request_to_stop_is_no_failure():
    result = ended(stopped=True, failure=failure())
    assert (result.status, result.failure) == ("stopped", None)
