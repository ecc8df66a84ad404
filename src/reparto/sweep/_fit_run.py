"""One short run of a script with batches of some size: how they get it, and whether it fits."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reparto import api
from reparto.engines import Engine, Launch, Run
from reparto.errors import ScriptError, UsageError
from reparto.spec import Cluster, Event, Failure, Options, Plan, Program, RunResult

#: With the second step an optimizer has its state; the third shows what stays.
STEPS = 3
#: A run that takes longer is ended: memory is not what limits such a batch.
LIMIT_S = 300.0

#: Of the heap of glibc: what is larger is mapped by itself, once some such was freed; and of free
#: memory at its end, what is more than twice as much is given back.
MMAP_BYTES, LEAST_BYTES = 32 << 20, 64 << 10

_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc|ALLOC_FAILED"
    r"|unable to (allocate|mmap)|can't start new thread",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A device to be tried, and what is run there.

    Attributes:
        engine: Starts the worker.
        cluster: Its hosts.
        program: The script as it is.
        plan: One worker, on the host of the device.
        vary: The script's own option for the batch; empty where loaders are told.
        memory_bytes: What the worker may have; 0 for what there is.
    """

    engine: Engine
    cluster: Cluster
    program: Program
    plan: Plan
    vary: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        result: Of the run.
        fits: Whether there was memory enough.
        is_late: Whether it was ended because it took too long.
    """

    result: RunResult
    fits: bool
    is_late: bool


class SettledEngine(Engine):
    """Another engine, with more in the environment of its workers.

    Args:
        inner: The engine that starts them.
        env: What is added.
    """

    kind = "settled"

    def __init__(self, inner: Engine, env: Mapping[str, str]) -> None:
        super().__init__(address=inner.address, ship=inner.ship)
        self._inner, self._env = inner, env

    def cluster(self) -> Cluster:
        """The hosts of the other engine."""
        return self._inner.cluster()

    def prepare(
        self, program: Program | None, plan: Plan, cluster: Cluster, options: Options
    ) -> Launch:
        """Decide what the other engine would, and add to the environment."""
        launch = self._inner.prepare(program, plan, cluster, options)
        workers = tuple(
            dataclasses.replace(worker, env={**worker.env, **self._env})
            for worker in launch.workers
        )
        return dataclasses.replace(launch, workers=workers)

    def start(self, launch: Launch) -> Run:
        """Start them."""
        return self._inner.start(launch)


class _Patience(api.Watcher):
    """Passes on what happens, and ends a run that takes too long."""

    def __init__(self, watcher: api.Watcher) -> None:
        self._watcher = watcher
        self._until = time.monotonic() + LIMIT_S
        self.is_late = False

    def event(self, event: Event) -> None:
        self._watcher.event(event)

    def has_enough(self) -> bool:
        self.is_late = self.is_late or time.monotonic() > self._until
        return self.is_late or self._watcher.has_enough()


def run_with(spot: Spot, rows: int | None, watcher: api.Watcher, *, scale: float = 1.0) -> Outcome:
    """Run a few steps with batches of that many rows.

    Args:
        spot: What is run, and where.
        rows: Of each batch; None for the script's own.
        watcher: Is told what happens.
        scale: Of the heap's thresholds, see `plan._fit`.

    Raises:
        ScriptError: If the script fails, for another reason than memory.
        UsageError: If it makes no step.
        KeyboardInterrupt: If the user has stopped it.
    """
    program = spot.program
    if spot.vary and rows is not None:
        args = with_option(program.args, spot.vary, rows)
        program = dataclasses.replace(program, args=args)
    options = Options(
        steps=STEPS,
        discard_writes=True,
        batch_rows=None if spot.vary else rows,
        memory_bytes=spot.memory_bytes,
    )
    patience = _Patience(watcher)
    result = api.execute(
        program,
        spot.plan,
        options,
        engine=SettledEngine(spot.engine, heap(scale)) if scale < 1 else spot.engine,
        cluster=spot.cluster,
        watcher=patience,
    )
    if result.status == "stopped" and not patience.is_late:
        raise KeyboardInterrupt
    failure = result.failure
    if failure is not None and not is_lack_of_memory(failure):
        raise _failed(failure, rows, spot.vary)
    if result.status == "done" and result.num_steps == 0:
        raise UsageError(
            "the script made no optimizer step, so there is nothing to measure",
            remedy="give it arguments with which it trains",
        )
    return Outcome(result=result, fits=result.status == "done", is_late=patience.is_late)


def heap(scale: float) -> dict[str, str]:
    """The environment in which glibc's thresholds are that much smaller; others do not heed it."""
    threshold = max(LEAST_BYTES, int(MMAP_BYTES * scale))
    return {
        "MALLOC_MMAP_THRESHOLD_": str(threshold),
        "MALLOC_TRIM_THRESHOLD_": str(2 * threshold),
    }


def is_lack_of_memory(failure: Failure) -> bool:
    """Whether a worker ended for want of memory.

    By a signal too: where an allocation fails within a library, that may be all there is to see.
    """
    if failure.error in ("OutOfMemoryError", "MemoryError"):
        return True
    if failure.error == "Signal":
        return any(name in failure.message for name in ("SIGKILL", "SIGABRT", "SIGBUS"))
    return bool(_NO_MEMORY.search(failure.message))


def with_option(args: Sequence[str], option: str, rows: int) -> tuple[str, ...]:
    """The script's arguments with another number for an option; added where it is not given.

    Args:
        args: The script's own.
        option: ``--batch-size``, ``-b``, or ``batch_size=`` for scripts that take it so.
        rows: The number.

    Example:
        >>> with_option(("--lr", "0.1", "--batch-size=8"), "--batch-size", 64)
        ('--lr', '0.1', '--batch-size=64')
    """
    found, made, words = False, [], list(args)
    for index, word in enumerate(words):
        head = _head(word, option)
        if index and words[index - 1] == option:
            made.append(str(rows))
        elif head:
            made.append(f"{head}{rows}")
        else:
            made.append(word)
            continue
        found = True
    if found:
        return tuple(made)
    return (*args, f"{option}{rows}") if option.endswith("=") else (*args, option, str(rows))


def option_rows(args: Sequence[str], option: str) -> int:
    """The number that the arguments give for an option; 0 where they do not."""
    found = 0
    for before, word in zip(("", *args), args, strict=False):
        head = _head(word, option)
        value = word if before == option else word[len(head) :] if head else ""
        found = int(value) if value.isdigit() else found
    return found


def _head(word: str, option: str) -> str:
    """What of an argument stands before the option's number; empty if it is another argument."""
    if option.endswith("="):
        return option if word.startswith(option) else ""
    if word.startswith(f"{option}="):
        return f"{option}="
    is_short = len(option) == 2 and not option.startswith("--")
    return option if is_short and word.startswith(option) and word[2:].isdigit() else ""


def _failed(failure: Failure, rows: int | None, vary: str) -> ScriptError:
    with_rows = f" with batches of {rows} rows" if rows is not None else ""
    where = f" ({failure.file}:{failure.line})" if failure.file else ""
    said = failure.message.partition("\n")[0]
    if rows is None:
        remedy = "it has to train before its batch can be fitted; `reparto run` shows more"
    elif vary:
        remedy = f"does the script take {vary}, and train with any number?"
    else:
        remedy = (
            "if the script counts on its own batch size, name the option that sets it: "
            "--vary batch-size"
        )
    return ScriptError(
        f"the script fails{with_rows}: {failure.error}: {said}{where}", remedy=remedy
    )
