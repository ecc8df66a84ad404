"""A run that was foretold is looked at, and planned again when it is not as foretold."""

import pytest

from reparto._execution import Watcher
from reparto._overseer import Overseer, adapted
from reparto._planning import predicted
from reparto.plan import choose
from reparto.spec import Note, Step, StepRecord, Wish
from tests.plan import made
from tests.plan.test_costs import exchanges


class Listener(Watcher):
    def __init__(self):
        self.events = []

    def event(self, event):
        self.events.append(event)

    @property
    def notes(self):
        return [event.text for event in self.events if isinstance(event, Note)]


@pytest.fixture
def forecast():
    """Four workers by all-reduce, over lines of 1 Gbit/s: the best by far."""
    survey = made.survey(4, step_s=2.0, exchanges=exchanges(rate=125e6))
    found = choose(survey, predicted(survey, [4]), Wish())
    assert (found.best.num_workers, found.best.strategy.kind) == (4, "all-reduce")
    return found


def steps(overseer, seconds, count, *, begin=1, at=0.0, waited=0.0):
    for number in range(count):
        at += seconds
        record = StepRecord(step=begin + number, time_s=at, samples=64, waited_s=waited)
        overseer.event(Step(rank=0, record=record))
    return begin + count, at


def test_steps_as_foretold_are_passed_on_and_nothing_is_said(forecast):
    listener = Listener()
    steps(Overseer(listener, forecast), 1.2 * forecast.best.step_s, 100)
    assert len(listener.events) == 100
    assert listener.notes == []


def test_a_moment_of_slowness_is_not_enough(forecast):
    listener, normal = Listener(), forecast.best.step_s
    overseer = Overseer(listener, forecast)
    begin, at = steps(overseer, normal, 20)
    begin, at = steps(overseer, 3 * normal, 3, begin=begin, at=at)
    steps(overseer, normal, 30, begin=begin, at=at)
    assert listener.notes == []


def test_a_link_that_has_become_slow_makes_one_machine_the_best(forecast):
    listener = Listener()
    best = forecast.best
    slow = 5.0
    steps(Overseer(listener, forecast), slow, 40, waited=slow - best.compute_s - best.pack_s)
    assert len(listener.notes) == 1  # then it is as it was foretold anew
    (note,) = listener.notes
    assert f"{slow / best.step_s:.1f} × as long as predicted" in note
    assert "plain script on 1" in note
    assert "reparto stop" in note


def test_hosts_that_have_become_slow_leave_the_plan_as_it_is(forecast):
    listener = Listener()
    best = forecast.best
    waited = best.exchange_s
    steps(Overseer(listener, forecast), 2 * best.step_s, 40, waited=waited)
    assert len(listener.notes) == 1
    assert "still the best" in listener.notes[0]


def test_what_was_seen_takes_the_place_of_what_was_predicted(forecast):
    best = forecast.best
    computed = 3 * (best.compute_s + best.pack_s)
    waited = 2 * best.exchange_s
    survey = adapted(forecast.survey, best, computed + waited, waited)
    again = next(
        one
        for one in predicted(survey, [4])
        if (one.label, one.num_workers) == (best.label, best.num_workers)
    )
    assert again.compute_s == pytest.approx(3 * best.compute_s)
    assert again.exchange_s == pytest.approx(2 * best.exchange_s, rel=0.01)
