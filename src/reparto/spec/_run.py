"""Options, Assignment, StepRecord, Failure and RunResult: a run, before and after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from reparto.spec._plan import Plan
from reparto.spec._program import Program
from reparto.spec._survey import SurveyRequest


@dataclass(frozen=True, kw_only=True)
class Options:
    """How workers run the program, the same on every worker.

    Attributes:
        steps: Leave after that many steps of the optimizer that steps most often.
        samples: Leave after the step with which that many samples have been used.
        target: Leave when the training loss, smoothed over some twenty steps, is as low as that.
        patience: Leave when it has not become lower for so many steps.
        losses: Tell of every step, on every worker, and of its loss, which is asked for where it
            is not known yet (``compare``); else worker 0 tells now and then what it knows.
        paces: Every worker tells of its steps, now and then; else worker 0 alone.
        seed: Seed shared by all workers; scripts that seed themselves override it.
        shared_draws: Every random draw is the sequential one (``verify``): draws that follow
            the batch are made for the global batch and sliced.
        precision: For ``verify``: ``float64`` promotes the model and floating inputs, ``float32``
            leaves out autocast.
        record: Folder into which worker 0 writes what ``verify`` compares; empty for none.
        discard_writes: Keep all file writes in a scratch folder (``verify``, shadow runs).
        write_to: Worker 0 writes below this folder instead, by the absolute path of each file, and
            reads that back (trials of a search, which must not overwrite each other's files);
            empty to write where the script says. Absolute.
        nudge: Move each parameter by one ulp before the first step, with the signs of that trial
            (noise floor); 0 moves nothing.
        seeds: What the script's n-th call of ``manual_seed`` and the like takes, whatever it says:
            those of the sequential side (``verify``), since a seed may come from the clock.
        usage_every_s: The first worker of each host tells that often what the host has used
            (CPU, memory, GPU, network); 0 for never.
        survey: What to measure instead of training, and leave.
        batch_rows: Rows of each batch that a training loader yields, whatever the script says;
            None leaves them alone. Only memory can then be compared (``fit-batch``).
        memory_bytes: End the worker, in an orderly way, before it takes more than that of its
            device (0: than there is), and tell what memory was there; None lets it take what it
            wants.
        sabotage: Break the run on purpose, by name; only tests of ``verify`` set it.
    """

    steps: int | None = None
    samples: int | None = None
    losses: bool = False
    paces: bool = False
    target: float | None = None
    patience: int | None = None
    seed: int = 0
    shared_draws: bool = False
    precision: Literal["native", "float32", "float64"] = "native"
    record: str = ""
    discard_writes: bool = False
    write_to: str = ""
    nudge: int = 0
    seeds: tuple[int, ...] = ()
    usage_every_s: float = 0.0
    survey: SurveyRequest | None = None
    batch_rows: int | None = None
    memory_bytes: int | None = None
    sabotage: str = ""

    @property
    def stops_early(self) -> bool:
        """Whether the loss decides when to leave."""
        return self.target is not None or self.patience is not None


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """All that one set of workers needs to know; written as JSON, read by each worker."""

    program: Program
    plan: Plan
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One optimizer step, as a worker saw it.

    Attributes:
        step: Counts from 1.
        time_s: Seconds since the script began.
        samples: Samples of the global batch that the step used; 0 if unknown.
        loss: Global loss of the last backward pass, where replicas are apart this worker's
            estimate of it; None where it is not known.
        waited_s: Seconds since the step before that the worker spent exchanging and waiting:
            inside the strategy's moments, less the optimizer's own step, and in sums and gathers
            over workers. What travels while the backward pass goes on is not waited for.
        wire_bytes: Bytes that the worker has put on the wire since the step before, by the
            algorithms that gloo uses; through shared memory they would have been as many.
    """

    step: int
    time_s: float
    samples: int
    loss: float | None = None
    waited_s: float = 0.0
    wire_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a worker failed: the first failure of a run is the one that is shown.

    Attributes:
        rank: The worker.
        host: Where it ran.
        error: Class name of the exception, or ``Signal``, ``Exit``.
        message: Its message.
        traceback: With the user's own files and lines.
        file: The user's file of the innermost frame of theirs; empty if none.
        line: Its line; 0 if none.
        step: The step at which it happened.
        time_s: Seconds since the epoch, to find the first of several.
    """

    rank: int
    host: str
    error: str
    message: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    step: int = 0
    time_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes:
        status: ``done``, ``failed`` or ``stopped``.
        exit_code: The script's own exit code where it left by ``SystemExit``.
        num_workers: Workers that ran.
        num_steps: Optimizer steps.
        num_samples: Samples over all steps.
        train_s: Seconds from the first step's end to the last step's end.
        total_s: Seconds from launch to end.
        startup_s: Seconds from launch to the moment the script began.
        final_loss: Loss of the last step.
        bytes_sent: Bytes that worker 0 handed to its group.
        wire_bytes: Bytes that a worker put on the wire, see `StepRecord`; mean over workers.
        waited_s: Seconds that a worker spent exchanging and waiting; mean over workers.
        failure: The first failure.
        peak_bytes: The most memory that a worker had since the script began: that of tensors and
            libraries on the GPU where it computed on one, else resident; the most of all workers.
        idle_bytes: What that worker had when the script began.
        free_bytes: What that worker could have had in all, when the script began; 0 where nobody
            asked, see `Options.memory_bytes`.
        memory_device: Where that was: ``cpu``, or a GPU's name; empty if unknown.
        batch_rows: The most rows of a batch that a training loader has yielded; 0 where none did,
            or nobody asked.
        notes: What the runtime has to tell (order of random draws, operations gathered, ...).
        outputs: Files that the script wrote, relative to its folder where they lie in it.
    """

    status: Literal["done", "failed", "stopped"]
    exit_code: int = 0
    num_workers: int = 1
    num_steps: int = 0
    num_samples: int = 0
    train_s: float = 0.0
    total_s: float = 0.0
    startup_s: float = 0.0
    final_loss: float | None = None
    bytes_sent: int = 0
    wire_bytes: float = 0.0
    waited_s: float = 0.0
    peak_bytes: int = 0
    idle_bytes: int = 0
    free_bytes: int = 0
    memory_device: str = ""
    batch_rows: int = 0
    predicted_step_s: float | None = None
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def step_s(self) -> float | None:
        """Seconds a step, after the first; None where there is none."""
        return self.train_s / (self.num_steps - 1) if self.num_steps > 1 else None

    @property
    def samples_per_s(self) -> float:
        """Throughput after the first step."""
        if self.num_steps < 2 or self.train_s <= 0:
            return 0.0
        return self.num_samples * (self.num_steps - 1) / self.num_steps / self.train_s
