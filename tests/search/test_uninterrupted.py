import os
import signal
import threading

import pytest

from reparto.search._conduct import Limits
from reparto.search._uninterrupted import uninterrupted
from tests.search.scripted import Lines, Played, ScriptedCrew, conducted
from tests.search.test_conduct import suggester


@pytest.fixture(autouse=True)
def interruptible():
    """A shell's background ignores Ctrl-C; and libraries have threads that may take a signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    yield
    ended.set()
    other.join()
    signal.signal(signal.SIGINT, before)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(0.05)


def test_ctrl_c_waits_until_what_is_half_done_is_whole():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        interrupt()
        done.append("whole")
    assert done == ["whole"]


def test_candidate_that_ends_at_ctrl_c_is_kept_wholly():
    thinks, watcher = suggester(), Lines()
    thinks.told = lambda evaluation, loss: interrupt()
    crew = ScriptedCrew(lambda candidate, _: Played(1.0))
    ended, conductor, _ = conducted(crew, thinks, Limits(trials=5), max_workers=1, watcher=watcher)
    assert ended == "interrupted"
    assert [one.status for one in watcher.evaluations] == ["done"]
    assert conductor.evaluations == watcher.evaluations
