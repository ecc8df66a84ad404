"""Work for tests of crews: a candidate's technique says what is done, its settings how."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from reparto.search._crew import FitTask, Task
from reparto.search._rows import Answer
from reparto.search._work import Attempt, Fitted, Reached, Work
from reparto.spec import Candidate, Rung, RungScore

LIMIT_S = 30.0


def task(what="score", number=7, rungs=2, seed=0, **settings):
    """A task of so many rungs."""
    candidate = Candidate(number=number, technique=what, settings=settings)
    return Task(candidate, tuple(Rung(fold=0, share=(n + 1) / rungs) for n in range(rungs)), seed)


def fit(folder, what="score", number=7, **settings):
    return FitTask(Candidate(number=number, technique=what, settings=settings), str(folder))


def until(condition):
    """Wait for something outside."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


class Errands(Work):
    """Does what it is told.

    Args:
        fails: What it says when it is opened.
        data: That it carries.
    """

    def __init__(self, fails="", data=None):
        self.fails, self.data = fails, data

    def load(self):
        self.loaded_by = os.getpid()

    def open(self, threads):
        if self.fails:
            raise ValueError(self.fails)
        self.threads = threads
        self.stopped = threading.Event()

    def attempt(self, candidate, seed):
        return _Attempt(self, candidate, seed)

    def fit(self, candidate, seed, folder):
        deed = _DEEDS[candidate.technique]
        note = str(deed(self, None, **candidate.settings))
        (Path(folder) / "deep").mkdir()
        (Path(folder) / "deep" / "model.txt").write_text(note)
        return Fitted(folder, fit_s=0.5, size_bytes=len(note), test_answer=Answer(np.arange(3.0)))

    def stop(self):
        self.stopped.set()


class _Attempt(Attempt):
    def __init__(self, work, candidate, seed):
        self.work, self.candidate, self.seed = work, candidate, seed

    def reach(self, rung):
        found = _DEEDS[self.candidate.technique](self.work, rung, **self.candidate.settings)
        answer = found if isinstance(found, Answer) else None
        score = RungScore(rung=rung, score=rung.share)
        return Reached(score, answer, notes=() if answer else (str(found),))

    def close(self):
        note = self.candidate.settings.get("closed")
        if note:
            Path(note).write_text("closed")


def _score(work, rung, **_):
    return "scored"


def _raise(work, rung, said="on purpose"):
    print("before it failed")
    raise ValueError(said)


def _leave(work, rung):
    sys.exit(3)


def _hang(work, rung, begun="", pid=""):
    if pid:
        Path(pid).write_text(str(os.getpid()))
    if begun:
        Path(begun).write_text("begun")
    if work.stopped.wait(LIMIT_S):
        raise InterruptedError("stopped")


def _meet(work, rung, mine, theirs):
    Path(mine).write_text("here")
    until(Path(theirs).exists)


def _answer(work, rung, size):
    return Answer(np.arange(size, dtype=np.float64))


def _sleep(work, rung, seconds):
    time.sleep(seconds)


def _tell(work, rung):
    return f"{work.loaded_by} {os.getpid()} {os.environ.get('OMP_NUM_THREADS')} {work.threads}"


def _draw(work, rung):
    return np.random.random()


def _unpicklable(work, rung, **_):
    answer = Answer(np.zeros(1))
    object.__setattr__(answer, "values", threading.Lock())
    return answer


def _print(work, rung, text, times=1):
    for _ in range(times):
        print(text)
        os.write(2, (text + "\n").encode())


def _exit(work, rung, status=3, text=""):
    print(text, flush=True)
    os._exit(status)


def _abort(work, rung):
    ctypes.string_at(0)


def _eat(work, rung, total, step):
    """Memory, so much at a time, all of it written to."""
    kept = []
    for _ in range(total // step):
        kept.append(np.ones(step // 8))
        time.sleep(0.001)
    return len(kept)


def _reserve(work, rung, size):
    np.empty(size, dtype=np.uint8)


def _read(work, rung):
    """Of the shared data, all."""
    work.kept = work.data.array  # as long as the worker is there
    return float(np.asarray(work.kept).sum())


def _leave_child(work, rung, pid):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path(pid).write_text(str(child.pid))
    if rung is None or rung.share < 1:
        return
    time.sleep(LIMIT_S)


_DEEDS = {
    "score": _score,
    "raise": _raise,
    "leave": _leave,
    "hang": _hang,
    "meet": _meet,
    "answer": _answer,
    "sleep": _sleep,
    "tell": _tell,
    "draw": _draw,
    "unpicklable": _unpicklable,
    "print": _print,
    "exit": _exit,
    "abort": _abort,
    "eat": _eat,
    "reserve": _reserve,
    "read": _read,
    "leave-child": _leave_child,
}
