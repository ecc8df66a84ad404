"""Workers as threads."""

import threading

import pytest

from reparto.search._crew import RungReached, WorkerDied
from reparto.search._threads import ThreadCrew
from tests.search.crew_contract import CrewContract, events, next_event, silence, start
from tests.search.errands import Errands, task, until


@pytest.fixture
def make_crew():
    made = []

    def make(work, max_workers):
        works = iter([work, *(Errands(work.fails) for _ in range(20))])
        made.append(ThreadCrew(lambda: next(works), max_workers=max_workers))
        return made[-1]

    yield make
    for crew in made:
        crew.close()
    assert not [it for it in threading.enumerate() if it.name.startswith("reparto-search")]


class TestThreadCrew(CrewContract):
    pass


def test_each_worker_has_a_work_of_its_own(tmp_path):
    made = []

    def make():
        made.append(Errands())
        return made[-1]

    crew = ThreadCrew(make, max_workers=2, threads=3, host="cluster")
    one, two = start(crew, 2)
    crew.give(one, task("hang", begun=str(tmp_path / "begun")))
    until((tmp_path / "begun").exists)
    crew.kill(one, "was ended")
    assert made[0].stopped.is_set() and not made[1].stopped.is_set()
    assert isinstance(next_event(crew), WorkerDied)
    crew.give(two, task())
    assert isinstance(next_event(crew), RungReached)
    assert [work.threads for work in made] == [3, 3]
    crew.close()


class Deaf(Errands):
    """Is slow to stop, and has much to tell afterwards."""

    def stop(self):
        threading.Timer(0.1, self.stopped.set).start()


def test_what_a_killed_thread_tells_later_is_not_heard(tmp_path):
    crew = ThreadCrew(Deaf, max_workers=1)
    worker = start(crew)
    crew.give(worker, task("hang", begun=str(tmp_path / "begun")))
    until((tmp_path / "begun").exists)
    crew.kill(worker, "was ended")
    assert isinstance(next_event(crew), WorkerDied)
    other = crew.acquire()
    assert [event.worker for event in events(crew, 1)] == [other]
    silence(crew, 0.3)
    crew.close()
