"""Doing: one task, step by step, wherever the worker is: a process, a thread, an actor.

doing(…) ─► RungReached ─► go on? ─► RungReached ─► … ─► TaskDone or TaskFailed
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator

from reparto.errors import RepartoError
from reparto.search._busy import Busy
from reparto.search._crew import FitTask, RungReached, Task, TaskDone, TaskFailed
from reparto.search._work import Work

#: A failure in one line is no longer than this.
MOST_LETTERS = 400

Doing = Generator[RungReached, bool, TaskDone | TaskFailed]


def _nothing() -> int:
    return 0


def doing(
    worker: int, work: Work, task: Task | FitTask, peak: Callable[[], int] = _nothing
) -> Doing:
    """Do a task; yields at each rung, is sent whether to go on, returns how it ended.

    Args:
        worker: Its number.
        work: What it does; open.
        task: What it was given.
        peak: The most memory of its own since the task began.
    """
    number, busy = task.candidate.number, Busy()
    busy.begin()
    try:
        if isinstance(task, FitTask):
            fitted = work.fit(task.candidate, task.seed, task.folder)
            return TaskDone(worker, number, fitted, busy.seconds(), peak())
        attempt = work.attempt(task.candidate, task.seed)
        try:
            for rung in task.rungs:
                reached = attempt.reach(rung)
                told = RungReached(worker, number, reached, busy.seconds(), peak())
                busy.pause()
                goes_on = yield told
                busy.resume()
                if not goes_on:
                    break
        finally:
            attempt.close()
        return TaskDone(worker, number, None, busy.seconds(), peak())
    except GeneratorExit:
        raise
    except BaseException as error:  # whatever a candidate raises: the top of a worker
        failure, text = told_of(error)
        return TaskFailed(worker, number, failure, text, busy.seconds(), peak())


def told_of(error: BaseException) -> tuple[str, str]:
    """An exception in one line, and where it was raised."""
    said = " ".join(str(error).split())
    if isinstance(error, RepartoError):
        line = error.message
    elif isinstance(error, MemoryError):
        line = f"there was not enough memory: {said}" if said else "there was not enough memory"
    else:
        line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if len(line) > MOST_LETTERS:
        line = line[:MOST_LETTERS] + "…"
    return line, "".join(traceback.format_exception(error))
