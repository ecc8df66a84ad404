"""A run that was foretold is looked at, and planned again when it is not as foretold."""

import dataclasses

import pytest

from reparto._execution import Watcher
from reparto._overseer import Overseer, adapted
from reparto._planning import predicted
from reparto.plan import choose
from reparto.spec import Note, Rehearsal, Step, StepRecord, StrategyConfig, Wish
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


def _played(kind, step_s):
    strategy = StrategyConfig(kind=kind)
    return Rehearsal(strategy=strategy, num_workers=4, step_s=step_s, num_steps=4)


def test_what_was_played_otherwise_than_added_up_is_foretold_anew_as_it_was_seen():
    bare = made.survey(4, step_s=2.0, exchanges=exchanges(rate=125e6))
    plain = predicted(bare, [4])[1]
    assert plain.strategy.kind == "all-reduce"
    played = (_played("all-reduce", plain.step_s + 5 * plain.exchange_s),)
    survey = dataclasses.replace(bare, rehearsals=played)
    running = predicted(survey, [4])[1]
    waited = 2 * running.exchange_s
    seen = running.compute_s + waited
    assert predicted(adapted(survey, running, seen, waited), [4])[1].step_s == pytest.approx(seen)


def test_computing_that_was_calibrated_is_foretold_anew_as_it_was_seen():
    bare = made.survey(4, step_s=2.0, exchanges=exchanges(rate=125e6))
    ways = {one.strategy.kind: one for one in predicted(bare, [4]) if one.exact}
    played = (_played("sharded", 1.5 * ways["sharded"].step_s),)
    survey = dataclasses.replace(bare, rehearsals=played)
    running = predicted(survey, [4])[1]
    assert running.compute_s > 1.2 * ways["all-reduce"].compute_s
    now = adapted(survey, running, 2 * running.compute_s + running.exchange_s, running.exchange_s)
    assert predicted(now, [4])[1].compute_s == pytest.approx(2 * running.compute_s)
    assert now.alone.step_s == pytest.approx(2 * survey.alone.step_s)  # twice as slow, no more


def test_one_machine_is_not_advised_where_the_run_is_faster_than_that(forecast):
    """Predictions are doubted by more than this; what runs is measured."""
    listener, best = Listener(), forecast.best
    alone_s = forecast.survey.alone.step_s
    seen = alone_s / 1.1
    steps(Overseer(listener, forecast), seen, 40, waited=seen - best.compute_s - best.pack_s)
    (note,) = listener.notes
    assert "still the best" in note
