"""Workers as actors of a Ray that is started once, on this machine."""

import os
import signal

import numpy as np
import pytest

from reparto.errors import EngineError
from reparto.search._crew import RungReached, TaskFailed, WorkerDied
from tests.search.crew_contract import CrewContract, events, next_event, start
from tests.search.errands import Errands, fit, task, until

pytestmark = [
    pytest.mark.xdist_group("ray"),  # one Ray at a time, also that of other tests
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def ray():
    pytest.importorskip("ray")
    from reparto.engines.ray_actors import RayActors

    before = dict(os.environ)
    os.environ.pop("RAY_ADDRESS", None)
    actors = RayActors()
    yield actors
    actors.close()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def make_crew(ray):
    from reparto.engines.ray_actors import RayActors
    from reparto.search._remote import RayCrew

    made = []

    def make(work, max_workers, memory_bytes=10**9):
        actors = RayActors()  # it joins the one that is there, and leaves it running
        made.append(
            RayCrew(
                work,
                actors=actors,
                max_workers=max_workers,
                threads=1,
                memory_bytes=memory_bytes,
            )
        )
        return made[-1]

    yield make
    for crew in made:
        crew.close()


@pytest.fixture
def crew(make_crew):
    return make_crew(Errands(), 1)


class TestRayCrew(CrewContract):
    pass


class Table(Errands):
    """Has data that are not pickled with it."""

    def packed(self):
        return Table(), {"x": np.arange(1e6), "y": np.ones(3)}

    def unpack(self, arrays):
        self.array = arrays["x"] * arrays["y"][0]
        self.data, self.is_writeable = self, arrays["x"].flags.writeable

    def open(self, threads):
        super().open(threads)
        assert not self.is_writeable


def test_data_are_put_where_all_workers_of_a_node_read_them(make_crew):
    crew = make_crew(Table(), 2)
    for number, worker in enumerate(start(crew, 2)):
        crew.give(worker, task("read", number=number))
    for reached in events(crew, 2):
        assert isinstance(reached, RungReached), reached
        assert reached.reached.notes == (f"{np.arange(1e6).sum()}",)


def test_worker_that_others_kill_is_told(crew, tmp_path):
    worker = start(crew)
    crew.give(worker, task("hang", pid=str(tmp_path / "pid"), begun=str(tmp_path / "begun")))
    until((tmp_path / "begun").exists)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    died = next_event(crew)
    assert isinstance(died, WorkerDied) and not died.is_ours
    assert (died.worker, died.number) == (worker, 7) and died.why.startswith("was lost: ")
    assert start(crew) != worker


def test_memory_that_is_far_too_much_is_refused_and_what_cannot_be_sent_has_failed(crew):
    worker = start(crew)
    crew.give(worker, task("reserve", size=50_000_000_000))
    assert next_event(crew).failure.startswith("there was not enough memory: Unable to allocate")
    crew.give(worker, task("unpicklable", number=8))
    failed = next_event(crew)
    assert isinstance(failed, TaskFailed) and failed.number == 8
    assert failed.failure.startswith("what it has found cannot be sent: ")
    crew.give(worker, task("eat", number=9, rungs=1, total=100_000_000, step=10_000_000))
    assert 90_000_000 < next_event(crew).peak_bytes < 150_000_000


def test_worker_may_want_no_more_cpus_than_there_are(ray):
    from reparto.search._remote import RayCrew

    with pytest.raises(EngineError, match="a worker wants 10000"):
        RayCrew(Errands(), actors=ray, max_workers=1, threads=10_000, memory_bytes=None)


def test_model_on_another_host_comes_back_as_files(crew, tmp_path):
    folder = tmp_path / "not there" / "5"
    worker = start(crew)
    crew.give(worker, fit(folder))
    assert next_event(crew).fitted.folder == str(folder)
    assert (folder / "deep" / "model.txt").read_text() == "scored"
