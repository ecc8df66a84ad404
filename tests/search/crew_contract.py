"""What every crew does, wherever its workers are: a suite to subclass."""

import time

import numpy as np
import pytest

from reparto.errors import EngineError
from reparto.search._crew import Ready, RungReached, TaskDone, TaskFailed, WorkerDied
from tests.search.errands import LIMIT_S, Errands, fit, task, until


def next_event(crew, limit_s=LIMIT_S):
    """The one that comes next, alone."""
    (event,) = events(crew, 1, limit_s)
    return event


def events(crew, count, limit_s=LIMIT_S):
    found, end = [], time.monotonic() + limit_s
    while len(found) < count:
        assert time.monotonic() < end, f"no more than {found}"
        found += crew.wait(0.1)
    assert len(found) == count
    return found


def silence(crew, seconds=0.15):
    assert not list(crew.wait(seconds))


def start(crew, count=1):
    """So many workers that are ready."""
    workers = [crew.acquire() for _ in range(count)]
    told = events(crew, count)
    assert {type(event) for event in told} == {Ready}, told
    assert {event.worker for event in told} == set(workers)
    return workers[0] if count == 1 else workers


class CrewContract:
    """Its module has a fixture `make_crew(work, max_workers)`, which closes them."""

    @pytest.fixture
    def crew(self, make_crew):
        return make_crew(Errands(), 2)

    def test_task_is_done_rung_by_rung_and_waits_for_a_reply_at_each(self, crew):
        worker = start(crew)
        crew.give(worker, task(rungs=2))
        first = next_event(crew)
        assert isinstance(first, RungReached)
        assert (first.worker, first.number, first.reached.score.score) == (worker, 7, 0.5)
        silence(crew)
        crew.reply(worker, True)
        second = next_event(crew)
        assert isinstance(second, RungReached) and second.reached.score.score == 1.0
        silence(crew)
        crew.reply(worker, False)
        done = next_event(crew)
        assert isinstance(done, TaskDone) and (done.worker, done.number) == (worker, 7)

    def test_candidate_that_is_given_up_is_closed_and_another_one_begins(self, crew, tmp_path):
        worker = start(crew)
        crew.give(worker, task(rungs=3, closed=str(tmp_path / "closed")))
        assert isinstance(next_event(crew), RungReached)
        crew.reply(worker, False)
        assert isinstance(next_event(crew), TaskDone)
        assert (tmp_path / "closed").read_text() == "closed"
        crew.give(worker, task(number=8))
        assert next_event(crew).number == 8

    def test_candidate_that_raises_has_failed_with_its_traceback_and_the_worker_goes_on(
        self, crew
    ):
        worker = start(crew)
        crew.give(worker, task("raise", said="on\npurpose"))
        failed = next_event(crew)
        assert isinstance(failed, TaskFailed) and failed.number == 7
        assert failed.failure == "ValueError: on purpose"
        assert 'errands.py", line' in failed.traceback and "raise ValueError" in failed.traceback
        crew.give(worker, task("leave", number=8))
        assert next_event(crew).failure == "SystemExit: 3"
        crew.give(worker, task(number=9))
        assert isinstance(next_event(crew), RungReached)

    def test_model_is_saved_in_the_folder(self, crew, tmp_path):
        worker = start(crew)
        folder = tmp_path / "3"
        folder.mkdir()
        crew.give(worker, fit(folder))
        done = next_event(crew)
        assert isinstance(done, TaskDone), done
        assert (folder / "deep" / "model.txt").read_text() == "scored"
        assert (done.fitted.folder, done.fitted.fit_s) == (str(folder), 0.5)
        assert list(done.fitted.test_answer.values) == [0.0, 1.0, 2.0]

    def test_model_that_cannot_be_trained_has_failed(self, crew, tmp_path):
        worker = start(crew)
        crew.give(worker, fit(tmp_path, "raise"))
        assert next_event(crew).failure == "ValueError: on purpose"

    def test_answers_come_whole(self, crew):
        worker = start(crew)
        crew.give(worker, task("answer", size=3_000_000))
        reached = next_event(crew).reached
        assert np.array_equal(reached.answer.values, np.arange(3_000_000))

    def test_workers_work_at_the_same_time(self, crew, tmp_path):
        one, two = start(crew, 2)
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        crew.give(one, task("meet", number=1, mine=a, theirs=b))
        crew.give(two, task("meet", number=2, mine=b, theirs=a))
        assert {event.number for event in events(crew, 2)} == {1, 2}

    def test_there_are_no_more_workers_than_there_may_be(self, crew):
        one, two = start(crew, 2)
        with pytest.raises(EngineError, match="2 workers"):
            crew.acquire()
        crew.release(one)
        silence(crew)
        three = start(crew)
        assert len({one, two, three}) == 3

    def test_killed_worker_is_told_as_ours_and_nothing_else_of_it(self, crew, tmp_path):
        worker = start(crew)
        crew.give(worker, task("hang", begun=str(tmp_path / "begun")))
        until((tmp_path / "begun").exists)
        crew.kill(worker, "was ended: it took too long")
        crew.kill(worker, "again")
        died = next_event(crew)
        assert isinstance(died, WorkerDied) and died.is_ours
        assert (died.worker, died.number) == (worker, 7)
        assert died.why == "was ended: it took too long" and died.busy_s > 0
        silence(crew)
        assert start(crew) != worker

    def test_another_worker_can_be_had_as_soon_as_one_is_killed(self, crew):
        one, two = start(crew, 2)
        crew.kill(one, "was ended")
        three = crew.acquire()
        with pytest.raises(EngineError, match="2 workers"):
            crew.acquire()
        died, ready = sorted(events(crew, 2), key=lambda event: event.worker)
        assert (type(died), died.worker) == (WorkerDied, one)
        assert (type(ready), ready.worker) == (Ready, three) and two not in (one, three)

    def test_idle_worker_can_be_killed(self, crew):
        worker = start(crew)
        crew.kill(worker, "was not needed")
        died = next_event(crew)
        assert (died.worker, died.number, died.is_ours) == (worker, None, True)

    def test_worker_that_waits_for_a_reply_can_be_killed(self, crew):
        worker = start(crew)
        crew.give(worker, task())
        assert isinstance(next_event(crew), RungReached)
        crew.kill(worker, "was ended")
        assert isinstance(next_event(crew), WorkerDied)
        crew.reply(worker, True)
        crew.release(worker)
        silence(crew)

    def test_worker_that_cannot_begin_says_why(self, make_crew):
        crew = make_crew(Errands(fails="there is no table"), 1)
        worker = crew.acquire()
        died = next_event(crew)
        assert isinstance(died, WorkerDied) and (died.worker, died.number) == (worker, None)
        assert died.why == "could not begin: ValueError: there is no table"
        assert not died.is_ours and "raise ValueError(self.fails)" in died.traceback

    def test_busy_seconds_are_those_of_work_not_those_of_waiting_for_a_reply(self, crew):
        worker = start(crew)
        crew.give(worker, task("sleep", seconds=0.1))
        first = next_event(crew)
        assert 0.1 <= first.busy_s < 0.5
        silence(crew, 0.8)
        crew.reply(worker, True)
        assert 0.2 <= next_event(crew).busy_s < 0.8
        silence(crew, 0.8)
        crew.kill(worker, "was ended")
        assert 0.2 <= next_event(crew).busy_s < 0.8

    def test_crew_can_be_closed_while_workers_work_and_twice(self, crew, tmp_path):
        one, _ = start(crew, 2)
        crew.give(one, task("hang", begun=str(tmp_path / "begun")))
        until((tmp_path / "begun").exists)
        began = time.monotonic()
        crew.close()
        crew.close()
        assert time.monotonic() - began < 5
