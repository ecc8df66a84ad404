import math

import pytest

from reparto.errors import EngineError
from reparto.search._conduct import Limits
from reparto.search._ground import Ground
from reparto.search._prune import Pruner
from reparto.search._space import Choice, Float
from reparto.search._suggest import Suggester
from reparto.spec import Candidate
from tests.search.scripted import Lines, Played, ScriptedCrew, conducted


def suggester(kind="random", count=None):
    space = {"x": Float(0, 1)} if count is None else {"x": Choice(tuple(range(count)))}
    return Suggester([Ground("one", space)], kind, higher_is_better=True)


def test_search_ends_when_its_time_is_over_less_what_finishing_takes():
    crew = ScriptedCrew(lambda candidate, _: Played(1.0))
    ended, conductor, _ = conducted(crew, suggester(), Limits(time_s=20.0), finish_s=lambda _: 5.0)
    assert ended == "time"
    assert crew.now_s == pytest.approx(15.0)
    assert [one.status for one in conductor.evaluations].count("done") == 28


def test_both_workers_are_busy_all_the_time():
    crew = ScriptedCrew(lambda candidate, _: Played(1.0 + candidate.number % 3))
    _, _, ledger = conducted(crew, suggester(), Limits(time_s=60.0))
    bill = ledger.bill(crew.now_s)
    assert len(bill.workers) == 2
    assert bill.busy_s / bill.paid_s > 0.97


def test_nobody_waits_for_a_straggler():
    crew = ScriptedCrew(lambda candidate, _: Played(50.0 if candidate.number == 0 else 1.0))
    _, conductor, _ = conducted(crew, suggester(), Limits(time_s=60.0))
    others = [one for one in conductor.evaluations if one.candidate.number]
    assert len([one for one in others if one.ended_s < 50.0]) >= 48


def test_search_ends_after_so_many_trials():
    crew = ScriptedCrew(lambda candidate, _: Played(1.0))
    ended, conductor, _ = conducted(crew, suggester(), Limits(trials=7))
    assert ended == "trials"
    assert [one.candidate.number for one in conductor.evaluations] == list(range(7))


def test_grid_ends_when_all_of_it_was_tried():
    crew = ScriptedCrew(lambda candidate, _: Played(1.0))
    ended, conductor, _ = conducted(crew, suggester("grid", 5))
    assert ended == "exhausted"
    assert {one.candidate.settings["x"] for one in conductor.evaluations} == set(range(5))


def test_cost_is_kept_with_what_finishing_costs():
    crew = ScriptedCrew(lambda candidate, _: Played(1.0))
    ended, _, ledger = conducted(
        crew, suggester(), Limits(cost=0.02), price=3.6, finish_s=lambda _: 2.0
    )
    assert ended == "cost"  # 0.001 a second and worker: ten seconds of two, two of them to finish
    assert crew.now_s == pytest.approx(8.0, abs=0.3)
    assert ledger.cost_at(crew.now_s) == pytest.approx(0.016, abs=0.001)


def test_workers_are_acquired_with_the_load_and_released_without():
    crew = ScriptedCrew(lambda c, _: Played(10.0 if c.number == 2 else 1.0), max_workers=3)
    _, _, ledger = conducted(crew, suggester("grid", 3), max_workers=3)
    lines = ledger.bill(crew.now_s).workers
    assert crew.most_held == 3
    released = sorted(line.released_s for line in lines)
    assert released[0] < 2.0  # and not ten seconds later
    assert released[1] < 2.0


def test_workers_start_together_as_many_as_work_already():
    crew = ScriptedCrew(lambda c, _: Played(100.0), max_workers=16, start_s=2.0)
    _, conductor, _ = conducted(crew, suggester(), Limits(time_s=60.0), max_workers=16)
    began = sorted(one.began_s for one in conductor.evaluations)
    assert began == pytest.approx([2.0] * 2 + [4.0] * 2 + [6.0] * 4 + [8.0] * 8, abs=0.3)


def test_no_more_workers_start_than_there_are_trials():
    crew = ScriptedCrew(lambda c, _: Played(100.0), max_workers=16, start_s=2.0)
    conducted(crew, suggester(), Limits(trials=3), max_workers=16)
    assert crew.most_held == 3


@pytest.mark.parametrize("count", [1, 3])
def test_no_more_workers_start_than_there_are_candidates_in_a_list(count):
    crew = ScriptedCrew(lambda c, _: Played(100.0), max_workers=16, start_s=2.0)
    conducted(crew, suggester("grid", count), max_workers=16)
    assert crew.most_held == count
    listed = [Candidate(number=n, technique="one", settings={"x": n}) for n in range(count)]
    ground = Ground("one", {"x": Float(0, 1)})
    exact = Suggester([ground], "random", higher_is_better=True, candidates=listed)
    crew = ScriptedCrew(lambda c, _: Played(100.0), max_workers=16, start_s=2.0)
    conducted(crew, exact, max_workers=16)
    assert crew.most_held == count


def test_fewest_workers_are_kept_without_load():
    crew = ScriptedCrew(lambda c, _: Played(10.0 if c.number == 2 else 1.0), max_workers=3)
    conducted(crew, suggester("grid", 3), min_workers=2, max_workers=3)
    assert len(crew.held) == 2


def test_failed_candidate_has_no_score_and_the_search_goes_on():
    crew = ScriptedCrew(lambda c, _: Played(1.0, fails="no good" if c.number == 1 else ""))
    _, conductor, _ = conducted(crew, suggester(), Limits(trials=4))
    failed = next(one for one in conductor.evaluations if one.candidate.number == 1)
    assert (failed.status, failed.score, failed.failure) == ("failed", None, "no good")
    assert sum(one.status == "done" for one in conductor.evaluations) == 3


def test_score_that_is_no_number_is_a_failure():
    crew = ScriptedCrew(lambda c, _: Played(1.0, scores=(math.nan if c.number == 0 else 0.1,)))
    _, conductor, _ = conducted(crew, suggester(), Limits(trials=2))
    assert {one.candidate.number: one.status for one in conductor.evaluations} == {
        0: "failed",
        1: "done",
    }
    assert conductor.best.candidate.number == 1


def test_candidate_whose_worker_was_killed_by_others_is_tried_once_more():
    watcher = Lines()
    crew = ScriptedCrew(lambda c, nth: Played(1.0, dies="killed by signal 9" if nth == 1 else ""))
    _, conductor, ledger = conducted(crew, suggester(), Limits(trials=2), watcher=watcher)
    assert [one.status for one in conductor.evaluations] == ["done", "done"]
    assert "is tried again" in watcher.notes[0]
    assert [line.ended for line in ledger.bill(9.0).workers].count("died") == 1


def test_candidate_that_kills_its_workers_fails_in_the_end():
    crew = ScriptedCrew(lambda c, _: Played(1.0, dies="ended by itself" if c.number == 0 else ""))
    _, conductor, _ = conducted(crew, suggester(), Limits(trials=3))
    failed = next(one for one in conductor.evaluations if one.status == "failed")
    assert failed.failure == "its worker ended by itself"
    assert sum(one.candidate.number == 0 for one in conductor.evaluations) == 1


def test_candidate_that_never_ends_is_ended_and_the_search_goes_on():
    crew = ScriptedCrew(lambda c, _: Played(1.0, hangs=c.number == 0))
    _, conductor, _ = conducted(crew, suggester(), Limits(trials=5, candidate_s=3.0))
    failed = next(one for one in conductor.evaluations if one.status == "failed")
    assert "longer than 3 s" in failed.failure
    assert sum(one.status == "done" for one in conductor.evaluations) == 4


def test_workers_that_cannot_begin_are_told_and_not_started_for_ever():
    with pytest.raises(EngineError, match="could not begin"):
        conducted(ScriptedCrew(lambda *_: Played(), stillborn=True), suggester())


def test_candidate_whose_other_folds_would_not_end_in_time_is_not_gone_on_with():
    crew = ScriptedCrew(lambda c, _: Played(6.0))
    _, conductor, _ = conducted(crew, suggester(), Limits(time_s=20.0), folds=5, max_workers=1)
    assert crew.now_s == pytest.approx(20.0)
    assert conductor.evaluations[0].notes == ("its other folds would not have ended in time",)


def test_hopeless_candidates_are_given_up_early():
    crew = ScriptedCrew(lambda c, _: Played(1.0, scores=(0.9 if c.number < 3 else 0.1,)))
    pruner = Pruner(higher_is_better=True)
    _, conductor, _ = conducted(crew, suggester(), Limits(trials=20), folds=5, pruner=pruner)
    statuses = [one.status for one in conductor.evaluations]
    assert statuses.count("pruned") == 20 - 3
    assert crew.now_s < 30.0  # all folds of all of them would take 50 seconds


def test_what_ran_at_the_end_is_stopped_and_paid():
    crew = ScriptedCrew(lambda c, _: Played(100.0))
    _, conductor, ledger = conducted(crew, suggester(), Limits(time_s=30.0))
    assert [one.status for one in conductor.evaluations] == ["stopped", "stopped"]
    assert ledger.bill(crew.now_s).busy_s == pytest.approx(60.0)


def test_a_steady_candidate_that_would_take_too_long_is_stopped_and_not_failed():
    crew = ScriptedCrew(lambda candidate, turn: Played(seconds=3.0), max_workers=1)
    limits = Limits(candidate_s=10.0, trials=1)
    _, conductor, _ = conducted(crew, suggester(), limits, folds=8, max_workers=1)
    (only,) = conductor.evaluations
    assert (only.status, only.busy_s) == ("stopped", 3.0)
    assert "would not have ended in time" in only.notes[0]


def training_of(evaluations):
    """What finishing takes: nothing while nothing is known, else to train once more."""
    fits = [rung.fit_s for one in evaluations for rung in one.rungs]
    return 1.3 * max(fits) if fits else 0.0


def test_time_is_left_to_train_what_was_tested_on_some_folds_only():
    crew = ScriptedCrew(lambda c, _: Played(8.0))
    _, conductor, _ = conducted(
        crew, suggester(), Limits(time_s=20.0), folds=2, max_workers=1, finish_s=training_of
    )
    only = conductor.evaluations[0]
    assert (only.status, len(only.rungs)) == ("stopped", 1)
    assert crew.now_s <= 20.0 - 1.3 * 8.0


def test_search_goes_on_with_the_workers_it_has_where_others_cannot_begin():
    crew, watcher = ScriptedCrew(lambda c, _: Played(1.0)), Lines()
    acquire = crew.acquire

    def only_the_first():
        worker = acquire()
        crew.stillborn = True
        return worker

    crew.acquire = only_the_first
    ended, conductor, _ = conducted(crew, suggester(), Limits(trials=5), watcher=watcher)
    assert ended == "trials"
    assert [one.status for one in conductor.evaluations] == ["done"] * 5
    assert any("no more than 1 worker can be had" in note for note in watcher.notes)


def test_no_more_workers_are_kept_than_there_can_be():
    crew, watcher = ScriptedCrew(lambda c, _: Played(1.0)), Lines()
    conducted(crew, suggester(), Limits(trials=2), min_workers=5, watcher=watcher)
    assert crew.most_held == 2
    assert watcher.notes == ["5 workers are asked for; there can be 2"]


def test_seconds_of_a_worker_that_died_are_billed_once_and_count_for_the_candidate():
    crew = ScriptedCrew(
        lambda c, nth: Played(9.0, dies="killed") if nth == 1 else Played(2.0), max_workers=1
    )
    _, conductor, ledger = conducted(crew, suggester(), Limits(trials=1), max_workers=1)
    assert conductor.evaluations[0].busy_s == pytest.approx(11.0)
    assert [line.busy_s for line in ledger.bill(crew.now_s).workers] == pytest.approx([9.0, 2.0])


def test_it_is_the_time_that_ends_a_search_where_nothing_more_fits_into_it():
    crew = ScriptedCrew(lambda candidate, turn: Played(1.0 if turn == 4 else 3.0), max_workers=1)
    ended, _, _ = conducted(crew, suggester(), Limits(time_s=11.0), max_workers=1)
    assert (ended, crew.now_s) == ("time", 10.0)  # a fifth one of 3 s would be too long
    ended, _, _ = conducted(crew, suggester(count=2), Limits(time_s=99.0), max_workers=1)
    assert ended == "exhausted"
