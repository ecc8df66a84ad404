"""Survey: what was measured of a script and of the hosts that are to train it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reparto.spec._cluster import Cluster, Link
from reparto.spec._plan import Pattern, Profile, StrategyConfig


@dataclass(frozen=True, kw_only=True)
class SliceTime:
    """A step on one worker, by how many rows of the batch it computes with; medians.

    Attributes:
        rows: Of the batch.
        forward_s: From the end of the step before to the backward pass: loading, forward, loss.
        backward_s: The backward pass.
        update_s: The optimizer's step.
        cpu_s: Processor time of all that, over all threads.
        apart: Whether replicas were apart, so that nothing but gradients would be agreed on.
        num_meetings: How often workers would have met, besides for gradients: for the statistics
            of a batch, for numbers that are read.
    """

    rows: int
    forward_s: float
    backward_s: float
    update_s: float
    cpu_s: float
    apart: bool = False
    num_meetings: float = 0.0

    @property
    def step_s(self) -> float:
        """The whole step."""
        return self.forward_s + self.backward_s + self.update_s


@dataclass(frozen=True, kw_only=True)
class WorkerProfile:
    """How fast one worker computes while others do, too.

    Attributes:
        rank: The worker.
        host: Where it stands.
        num_workers: How many computed at the same time, this one among them.
        slices: By number of rows, the fewest first; those of replicas apart before the others.
    """

    rank: int
    host: str
    num_workers: int
    slices: tuple[SliceTime, ...]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """An operation over workers, timed.

    Attributes:
        pattern: Who talks to whom.
        num_workers: How many took part.
        size_bytes: Payload that one worker hands over.
        seconds: Until it is over, the slowest worker's.
        cpu_s: Processor time that a worker spends on it; the mean.
    """

    pattern: Pattern
    num_workers: int
    size_bytes: int
    seconds: float
    cpu_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LocalCost:
    """What a strategy costs a worker besides computing and talking: packing, compressing, adding.

    Attributes:
        strategy: With its settings.
        num_workers: How many take part; more of them send more to be unpacked.
        step_s: Seconds a step, rounds shared out over the steps between them.
        cpu_s: Processor seconds of these, of the thread that trains; 0 where that is not known.
        aside_s: Processor seconds a step of a thread that packs while the script computes.
    """

    strategy: StrategyConfig
    num_workers: int
    step_s: float
    cpu_s: float = 0.0
    aside_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A candidate whose steps were played: other work that takes as long, and its own talking.

    Attributes:
        strategy: With its settings.
        num_workers: How many.
        step_s: Seconds a step.
        num_steps: That were timed.
    """

    strategy: StrategyConfig
    num_workers: int
    step_s: float
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate that was run for a few steps, to see what it really takes.

    Attributes:
        strategy: With its settings.
        num_workers: How many.
        step_s: Seconds a step.
        num_steps: After the first, which sets up everything.
    """

    strategy: StrategyConfig
    num_workers: int
    step_s: float
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Workers that compute, or talk, at the same time while the others wait.

    Attributes:
        members: Their ranks.
        threads: Of each; 0 for whatever plain Python would take.
    """

    members: tuple[int, ...]
    threads: int = 0


@dataclass(frozen=True, kw_only=True)
class SurveyRequest:
    """What workers are to measure instead of training.

    Attributes:
        phases: One after the other; with none, a single worker times the script as it is.
        candidates: Strategies whose own costs are wanted.
        seconds: About how long a phase may take.
        total_s: About how long all of it may take; as much of it as the rest leaves is for
            playing candidates. 0 for none of that.
        weighs: Whether the memory that steps take is wanted.
    """

    phases: tuple[Phase, ...] = ()
    candidates: tuple[StrategyConfig, ...] = ()
    seconds: float = 6.0
    total_s: float = 0.0
    weighs: bool = True


@dataclass(frozen=True, kw_only=True)
class WorkerSurvey:
    """What one worker has measured; what all of them found together is told by the first.

    Attributes:
        rank: The worker.
        profile: Of the script, as this worker sees it.
        alone: A step of the plain script; None where others take part.
        workers: How fast it computes.
        links: Between hosts.
        exchanges: What talking costs.
        costs: What strategies cost besides.
        rehearsals: What they took when they were played.
        num_steps: Of the whole script; None where that cannot be told.
        startup_s: From the start of the script to the first step.
    """

    rank: int
    profile: Profile
    alone: SliceTime | None = None
    workers: tuple[WorkerProfile, ...] = ()
    links: tuple[Link, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    costs: tuple[LocalCost, ...] = ()
    rehearsals: tuple[Rehearsal, ...] = ()
    num_steps: int | None = None
    startup_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was measured of a script and of the hosts that are to train it.

    All that the planner knows; with it, planning is pure.

    Attributes:
        script: Path of the script.
        args: Its own arguments.
        device: What workers compute on.
        cluster: The hosts, and the links between them as they were measured.
        placement: For each rank the name of its host; the first ones are taken for fewer workers.
        profile: Of the script.
        alone: A step of the plain script in one process, of a whole batch.
        alone_host: Where that was.
        workers: How fast workers compute, by how many do so at the same time.
        exchanges: What talking costs.
        costs: What strategies cost besides.
        rehearsals: What they took when they were played.
        trials: Candidates that were run.
        startup_s: From the start to the first step.
        num_steps: Steps of the whole script, alone; None where that cannot be told.
        took_s: Seconds that all this took.
        notes: What should be known about it, in words.
        environment: Where it was measured, in words.
    """

    script: str
    args: tuple[str, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    cluster: Cluster
    placement: tuple[str, ...]
    profile: Profile
    alone: SliceTime
    alone_host: str = ""
    workers: tuple[WorkerProfile, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    costs: tuple[LocalCost, ...] = ()
    rehearsals: tuple[Rehearsal, ...] = ()
    trials: tuple[Trial, ...] = ()
    startup_s: float = 0.0
    num_steps: int | None = None
    took_s: float = 0.0
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
