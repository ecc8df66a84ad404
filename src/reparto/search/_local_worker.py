"""The process of one worker: a fork of the keeper, which does what comes in until it ends."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import resource
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from reparto.search._crew import FitTask, Ready, Task, TaskFailed
from reparto.search._doing import doing, told_of
from reparto.search._local_channel import Channel
from reparto.search._local_memory import Gauge, limit, sacrifice
from reparto.search._work import Work

_PR_SET_PDEATHSIG = 1
#: Begins what a task prints, so that only the last one's words are told when a worker dies.
MARK = b"\0task\0"


@dataclass(frozen=True)
class Stillborn:
    """A worker could not begin."""

    failure: str
    traceback: str


def become_worker(
    number: int,
    work: Work,
    line: socket.socket,
    output_fd: int,
    gauge: Gauge,
    *,
    threads: int,
    memory_bytes: int | None,
) -> None:
    """Work until nobody is there any more. Called in a fork; does not return.

    Args:
        number: Of the worker.
        work: What it does; not yet open.
        line: To the crew.
        output_fd: Takes what libraries print.
        gauge: Of its memory.
        threads: That it may use.
        memory_bytes: That it may have beyond what it has when it is ready.
    """
    status = 1
    try:
        _settle(output_fd, keep=(line.fileno(),))
        _serve(number, work, Channel(line), gauge, threads, memory_bytes)
        status = 0
    except (EOFError, BrokenPipeError, ConnectionResetError):
        status = 0  # the crew is gone
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def _settle(output_fd: int, keep: tuple[int, ...]) -> None:
    """Be a process of its own, that ends with the keeper."""
    os.setsid()
    keeper = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, fd in ((0, null), (1, output_fd), (2, output_fd)):
        os.dup2(fd, target)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:  # that of the listing itself
                continue
    sys.stdout, sys.stderr = (
        os.fdopen(fd, "w", buffering=1, errors="backslashreplace", closefd=False) for fd in (1, 2)
    )
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable(sys.stderr)
    sacrifice()


def _serve(
    number: int,
    work: Work,
    channel: Channel,
    gauge: Gauge,
    threads: int,
    memory_bytes: int | None,
) -> None:
    try:
        work.open(threads)
    except BaseException as error:  # whatever it raises is told
        channel.send(Stillborn(*told_of(error)))
        return
    gauge.settle()
    gauge.ready()
    if memory_bytes is not None:
        limit(memory_bytes)
    channel.send(Ready(number, socket.gethostname()))
    while (task := channel.receive()) is not None:
        os.write(2, MARK)
        _seed(task.seed)
        gauge.begin()
        _do(number, work, task, channel, gauge)
        gauge.settle()
    work.close()


def _do(number: int, work: Work, task: Task | FitTask, channel: Channel, gauge: Gauge) -> None:
    steps = doing(number, work, task, gauge.peak)
    told: Any
    try:
        told = next(steps)
        while True:
            try:
                channel.send(told)
            except (EOFError, OSError):
                raise
            except Exception as error:  # of pickle: what it has found cannot be sent
                steps.close()
                told = _unsent(told, error)
                break
            told = steps.send(channel.receive())
    except StopIteration as ended:
        told = ended.value
    try:
        channel.send(told)
    except (EOFError, OSError):
        raise
    except Exception as error:
        channel.send(_unsent(told, error))


def _unsent(told: Any, error: Exception) -> TaskFailed:
    failure, text = told_of(error)
    return TaskFailed(
        told.worker,
        told.number,
        f"what it has found cannot be sent: {failure}",
        text,
        told.busy_s,
        told.peak_bytes,
    )


def _seed(seed: int) -> None:
    """What is random without a seed is the same in whichever worker."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
