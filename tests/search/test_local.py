"""Workers as processes: they share, they are watched, and nothing of them is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from reparto.search._crew import RungReached, TaskDone, TaskFailed, WorkerDied
from reparto.search._local import LocalCrew
from tests.search.crew_contract import CrewContract, events, next_event, start
from tests.search.errands import Errands, task, until

MB = 1_000_000


def crew_of(work=None, *, max_workers=1, memory_bytes=None):
    return LocalCrew(
        work or Errands(), max_workers=max_workers, threads=1, memory_bytes=memory_bytes
    )


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid):
    try:
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for one in map(int, own) for each in (one, *descendants(one))]


@pytest.fixture
def make_crew():
    made, before = [], set(descendants(os.getpid()))

    def make(work, max_workers, memory_bytes=None):
        made.append(crew_of(work, max_workers=max_workers, memory_bytes=memory_bytes))
        return made[-1]

    yield make
    for crew in made:
        crew.close()
    assert set(descendants(os.getpid())) <= before


@pytest.fixture
def crew(make_crew):
    return make_crew(Errands(), 1)


def did(crew, given):
    """What comes of a task of one rung, on a worker that is started for it."""
    worker = start(crew)
    crew.give(worker, given)
    return worker, next_event(crew)


def noted(crew, worker, given):
    """What a task of one rung notes."""
    crew.give(worker, given)
    (note,) = next_event(crew).reached.notes
    crew.reply(worker, False)
    assert isinstance(next_event(crew), TaskDone)
    return note


class TestLocalCrew(CrewContract):
    pass


def test_workers_are_forks_of_what_was_loaded_once_with_threads_as_asked(make_crew):
    crew = make_crew(Errands(), 2)
    told = [noted(crew, worker, task("tell", rungs=1)).split() for worker in start(crew, 2)]
    loaded, pids = {one[0] for one in told}, {one[1] for one in told}
    assert len(loaded) == 1 and len(pids) == 2 and not loaded & pids
    assert {tuple(one[2:]) for one in told} == {("1", "1")}


def test_chance_is_that_of_the_task_in_whichever_worker(make_crew):
    crew = make_crew(Errands(), 2)
    one, two = start(crew, 2)
    first = noted(crew, one, task("draw", rungs=1, seed=5))
    assert noted(crew, one, task("draw", rungs=1, seed=6)) != first
    assert noted(crew, two, task("draw", rungs=1, seed=5)) == first


def test_worker_that_others_kill_is_told_with_the_signal(crew, tmp_path):
    worker = start(crew)
    crew.give(worker, task("hang", pid=str(tmp_path / "pid"), begun=str(tmp_path / "begun")))
    until((tmp_path / "begun").exists)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    died = next_event(crew)
    assert isinstance(died, WorkerDied) and (died.worker, died.number) == (worker, 7)
    assert died.why.startswith("was killed by SIGKILL") and not died.is_ours
    assert died.busy_s > 0
    assert start(crew) != worker


def test_worker_that_others_kill_while_it_is_idle_is_told(crew, tmp_path):
    worker = start(crew)
    pid = int(noted(crew, worker, task("tell", rungs=1)).split()[1])
    os.kill(pid, signal.SIGTERM)
    died = next_event(crew)
    assert (died.number, died.why) == (None, "was killed by SIGTERM")


def test_crash_is_told_with_the_line_that_crashed(crew):
    _, died = did(crew, task("abort"))
    assert (died.why, died.is_ours) == ("was killed by SIGSEGV", False)
    assert "Segmentation fault" in died.traceback and "in _abort" in died.traceback


def test_worker_that_leaves_is_told_with_its_status_and_last_words(crew):
    worker = start(crew)
    noted(crew, worker, task("print", rungs=1, text="of another candidate"))
    crew.give(worker, task("exit", status=4, text="I am leaving"))
    died = next_event(crew)
    assert (died.why, died.traceback) == ("left with status 4", "I am leaving")


def test_what_libraries_print_is_not_on_the_screen_and_holds_nobody_up(crew, capfd):
    _, reached = did(crew, task("print", text="x" * 1000, times=2000))
    assert isinstance(reached, RungReached)
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_sent_has_failed_and_the_worker_goes_on(crew):
    worker, failed = did(crew, task("unpicklable"))
    assert isinstance(failed, TaskFailed)
    assert failed.failure.startswith("what it has found cannot be sent: TypeError")
    crew.give(worker, task(number=8))
    assert isinstance(next_event(crew), RungReached)


# ------------------------------------------------------------------------------------ memory


def test_worker_that_takes_too_much_memory_is_ended_and_told_as_ours(make_crew):
    crew = make_crew(Errands(), 1, memory_bytes=200 * MB)
    _, died = did(crew, task("eat", total=2000 * MB, step=4 * MB))
    assert isinstance(died, WorkerDied) and died.is_ours
    assert died.why == "took more than 0.2 GB of memory"
    assert 200 * MB < died.peak_bytes < 400 * MB


def test_memory_that_is_far_too_much_is_refused_at_once_and_the_worker_goes_on(make_crew):
    crew = make_crew(Errands(), 1, memory_bytes=200 * MB)
    worker, failed = did(crew, task("reserve", size=50_000 * MB))
    assert isinstance(failed, TaskFailed)
    assert failed.failure.startswith("there was not enough memory: Unable to allocate")
    crew.give(worker, task("eat", rungs=1, number=8, total=100 * MB, step=4 * MB))
    assert isinstance(next_event(crew), RungReached)


def test_peak_is_the_most_of_this_task_beyond_what_was_there_before(crew):
    worker, reached = did(crew, task("eat", rungs=1, total=300 * MB, step=300 * MB))
    assert 290 * MB < reached.peak_bytes < 330 * MB
    crew.reply(worker, False)
    assert 290 * MB < next_event(crew).peak_bytes < 330 * MB
    crew.give(worker, task("eat", rungs=1, total=20 * MB, step=4 * MB))
    assert 15 * MB < next_event(crew).peak_bytes < 40 * MB


class Shared:
    """A table that all workers see."""

    def __init__(self, path):
        self.path = path

    @property
    def array(self):
        return np.load(self.path, mmap_mode="r")


def test_shared_data_are_not_a_workers_own(make_crew, tmp_path):
    np.save(tmp_path / "table.npy", np.ones(50 * MB))
    crew = make_crew(Errands(data=Shared(tmp_path / "table.npy")), 2, memory_bytes=100 * MB)
    one, two = start(crew, 2)
    crew.give(one, task("read", number=1))
    crew.give(two, task("read", number=2))
    for reached in events(crew, 2):
        assert isinstance(reached, RungReached), reached
        assert reached.reached.notes == ("50000000.0",)
        assert reached.peak_bytes < 30 * MB


# ------------------------------------------------------------------- what is left behind


def test_children_of_a_killed_worker_end_with_it_wherever_they_hide(crew, tmp_path):
    pid = tmp_path / "pid"
    worker = start(crew)
    crew.give(worker, task("leave-child", rungs=1, pid=str(pid)))
    until(lambda: pid.exists() and pid.read_text())
    assert is_running(int(pid.read_text()))
    crew.kill(worker, "was ended")
    assert isinstance(next_event(crew), WorkerDied)
    until(lambda: not is_running(int(pid.read_text())))


def test_children_that_a_candidate_left_end_with_the_crew(crew, tmp_path):
    pid = tmp_path / "pid"
    did(crew, task("leave-child", rungs=2, pid=str(pid)))
    assert is_running(int(pid.read_text()))
    crew.close()
    assert not is_running(int(pid.read_text()))


def test_released_worker_ends(crew):
    worker = start(crew)
    pid = int(noted(crew, worker, task("tell", rungs=1)).split()[1])
    crew.release(worker)
    until(lambda: not is_running(pid))


def test_workers_end_with_the_process_that_keeps_them_and_others_can_be_had(make_crew, tmp_path):
    crew = make_crew(Errands(), 2)
    one, two = start(crew, 2)
    keeper, pid = map(int, noted(crew, one, task("tell", rungs=1)).split()[:2])
    crew.give(two, task("hang", begun=str(tmp_path / "begun")))
    until((tmp_path / "begun").exists)
    os.kill(keeper, signal.SIGKILL)
    died = events(crew, 2)
    assert {(event.worker, event.number) for event in died} == {(one, None), (two, 7)}
    assert {event.why for event in died} == {"ended with the process that keeps the workers"}
    until(lambda: not is_running(pid))
    assert start(crew) not in (one, two)


PARENT = """\
import signal, sys, time
from tests.search.crew_contract import start
from tests.search.errands import Errands, task
from reparto.search._local import LocalCrew

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
crew = LocalCrew(Errands(), max_workers=2, threads=1, memory_bytes=None)
one, two = start(crew, 2)
crew.give(one, task("hang", pid=sys.argv[1] + "/one", begun=sys.argv[1] + "/begun"))
crew.give(two, task("leave-child", rungs=1, pid=sys.argv[1] + "/two"))
while True:
    try:
        crew.wait(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.fixture
def parent(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(tmp_path)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    until(lambda: (tmp_path / "begun").exists() and (tmp_path / "two").exists())
    until((tmp_path / "two").read_text)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_all_end_with_the_process_that_wanted_them(parent, tmp_path):
    pids = [*descendants(parent.pid), int((tmp_path / "two").read_text())]
    assert len(set(pids)) == 4  # a keeper, two workers, and what one of these has started
    parent.kill()
    until(lambda: not any(map(is_running, pids)))


def test_ctrl_c_is_for_the_process_that_wanted_them_alone(parent, tmp_path):
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    assert parent.stdout.readline() == "interrupted\n"
    os.kill(int((tmp_path / "one").read_text()), signal.SIGINT)
    assert len(descendants(parent.pid)) == 4
    assert all(map(is_running, descendants(parent.pid)))
