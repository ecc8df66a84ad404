"""Request and Cell: what is to be measured, and the list of it. Pure.

A cell is one measurement: a model, doing one thing, in one way, on one device. Cells of one model
and device follow one another, so that the process that measures them makes it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from reparto.bench import _grid
from reparto.errors import UsageError
from reparto.spec import Measurement, StrategyConfig

Mode = Literal["train", "infer"]
DType = Literal["f32", "tf32", "bf16"]
Source = Literal["grid", "cnn", "model", "script"]

DTYPES: tuple[DType, ...] = ("f32", "tf32", "bf16")
BATCHES = (2, 8, 32, 128, 512, 1024)
CALLS = (1, 2, 64, 512, 1024)
PLAIN, CAPTURED, ACCELERATED = "plain", "captured", "accelerated"
LOOPS = (PLAIN, CAPTURED)
FORMS = ("eager", "compiled", "exported", "onnx")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A strategy to be timed: how it is named, and what it is."""

    label: str
    strategy: StrategyConfig


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be evaluated.

    Attributes:
        targets: ``grid``, ``cnn``, or one script or ``module:Model``.
        args: The script's own arguments.
        devices: As torch names them.
        batches: Samples of a training step.
        calls: Samples of an inference call.
        dtypes: Precisions.
        modes: Training, inference, or both.
        forms: Of inference.
        cpu_only: Of these, those that are left out on a GPU.
        loops: Of training; a captured step needs a GPU.
        models: Of the grid, only these; empty for all.
        entries: Strategies beside one plain worker.
        workers: Of those strategies.
        relaxed: Whether they may change the mathematics.
        accelerate: Whether a script is also timed as ``reparto run --accelerate`` runs it.
        limit: At most so many cells are measured by this call.
        deadline_s: For inference; None for none.
        input_shape: Of one sample, for ``module:Model``.
        steps: Of a script; None for as many as give a good time.
    """

    targets: tuple[str, ...] = ("grid", "cnn")
    args: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    batches: tuple[int, ...] = BATCHES
    calls: tuple[int, ...] = CALLS
    dtypes: tuple[DType, ...] = ("f32",)
    modes: tuple[Mode, ...] = ("train", "infer")
    forms: tuple[str, ...] = FORMS[:3]
    cpu_only: tuple[str, ...] = ()
    loops: tuple[str, ...] = LOOPS
    models: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    workers: tuple[int, ...] = (2,)
    relaxed: bool = False
    accelerate: bool = False
    limit: int | None = None
    deadline_s: float | None = None
    input_shape: tuple[int, ...] = ()
    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measurement that is to be made.

    Attributes:
        source: What kind of thing is measured.
        suite: As of `spec.Work`.
        model: As of `spec.Work`; for ``module:Model`` its name, for a script its arguments.
        batch_rows: Samples of a step or call; 0 for a script, which has its own, and for the
            largest call that meets the deadline.
        deadline_s: Of that call.
        input_shape: Of one sample, where that is asked for.
        where: The script, or ``module:Model`` as it was given.
        args: The script's own arguments.
        settings: Of the strategy.
    """

    source: Source
    suite: str
    model: str
    mode: Mode = "train"
    form: str = PLAIN
    device: str = "cpu"
    dtype: DType = "f32"
    batch_rows: int = 0
    strategy: str = "single"
    num_workers: int = 1
    deadline_s: float | None = None
    input_shape: tuple[int, ...] = ()
    where: str = ""
    args: tuple[str, ...] = ()
    config: StrategyConfig = field(default_factory=lambda: StrategyConfig(kind="single"))
    relaxed: bool = False
    steps: int | None = None

    @property
    def by_script(self) -> bool:
        """Whether it is measured by running a script, not within a process of ours."""
        return self.source == "script" or self.strategy != "single"

    @property
    def key(self) -> str:
        """What tells this cell from others."""
        rows = f"deadline {self.deadline_s:g}s" if self.deadline_s else f"b{self.batch_rows}"
        parts = (self.suite, self.model, self.mode, self.form, self.device, self.dtype, rows)
        return "|".join((*parts, self.strategy, f"w{self.num_workers}"))

    @property
    def title(self) -> str:
        """The cell, as people are told of it."""
        rows = f"within {self.deadline_s:g} s" if self.deadline_s else f"{self.batch_rows} rows"
        what = "training" if self.mode == "train" else "inference"
        what += "" if self.form == PLAIN else f", {self.form}"
        is_told = self.suite.endswith(self.model)
        name = self.suite if is_told else f"{self.suite} {self.model}"
        parts = [name, what, self.device, self.dtype]
        parts += [rows] if self.batch_rows or self.deadline_s else []
        if self.strategy != "single":
            parts.append(f"{self.strategy} on {self.num_workers}")
        return " · ".join(parts)


def key_of(row: Measurement) -> str:
    """The key of the cell that a row is of; not for rows of a deadline, nor of scripts."""
    return Cell(
        source="grid",
        suite=row.work.suite,
        model=row.work.model,
        mode=row.mode,
        form=row.form,
        device=row.device,
        dtype=row.dtype,
        batch_rows=row.work.batch_rows,
        strategy=row.strategy,
        num_workers=row.num_workers,
    ).key


def is_script(suite: str) -> bool:
    """Whether rows of that suite are of a script."""
    return suite.endswith(".py")


def source_of(target: str) -> Source:
    """What kind of thing a target is.

    Raises:
        UsageError: If it is none.
    """
    if target in ("grid", "cnn"):
        return "cnn" if target == "cnn" else "grid"
    if is_script(target):
        return "script"
    module, colon, name = target.rpartition(":")
    if colon and module and name.isidentifier():
        return "model"
    raise UsageError(
        f"{target} is nothing that can be timed",
        remedy="give grid, cnn, a script train.py, or a model as package.module:Model or "
        "path/to/file.py:Model",
    )


def planned_cells(request: Request) -> tuple[Cell, ...]:
    """Every cell of a request, in the order in which they are measured.

    Raises:
        UsageError: If the request contradicts itself.
    """
    cells: list[Cell] = []
    for target in request.targets:
        source = source_of(target)
        if source == "model" and not request.input_shape:
            raise UsageError(
                f"{target}: nobody knows what a sample looks like",
                remedy="give the shape of one, such as --input 3,32,32",
            )
        for device in request.devices:
            cells += _of_script(request, target, device) if source == "script" else ()
            for model in _models(request, target, source):
                cells += _of_model(request, target, source, model, device)
    if not cells:
        raise UsageError(
            "there is nothing to measure",
            remedy="see --models, --devices, --train, --infer, and --forms (captured wants a GPU)",
        )
    return tuple(cells)


def _models(request: Request, target: str, source: Source) -> tuple[str, ...]:
    if source == "script":
        return ()
    if source == "model":
        return (target.rpartition(":")[2],)
    if source == "cnn":
        return () if request.models and _grid.CNN not in request.models else (_grid.CNN,)
    every = [_grid.name_of(hidden) for hidden in _grid.perceptrons()]
    unknown = set(request.models) - {*every, _grid.CNN}
    if unknown:
        raise UsageError(
            f"--models: the grid has no {', '.join(sorted(unknown))}",
            remedy=f"take some of {', '.join(every[:3])}, …, {every[-1]}",
        )
    return tuple(name for name in every if not request.models or name in request.models)


def _of_model(
    request: Request, target: str, source: Source, model: str, device: str
) -> Iterator[Cell]:
    first = Cell(
        source=source,
        suite=target if source == "model" else source,
        model=model,
        device=device,
        input_shape=request.input_shape,
        where=target,
        relaxed=request.relaxed,
    )
    cell = partial(replace, first)
    for dtype in request.dtypes:
        if dtype == "tf32" and device == "cpu":  # has none
            continue
        if "train" in request.modes:
            for rows in request.batches:
                for form in request.loops:
                    if form == PLAIN or device.startswith("cuda"):
                        yield cell(form=form, dtype=dtype, batch_rows=rows)
        if "infer" in request.modes:
            for form in request.forms:
                if form in request.cpu_only and device.startswith("cuda"):
                    continue
                for rows in request.calls:
                    yield cell(mode="infer", form=form, dtype=dtype, batch_rows=rows)
            if request.deadline_s is not None:
                limit = request.deadline_s
                yield cell(mode="infer", form="eager", dtype=dtype, deadline_s=limit)
    if "train" not in request.modes or source == "model":
        return
    for entry, workers in _shared_out(request):
        for rows in request.batches:
            yield cell(
                batch_rows=rows,
                strategy=entry.label,
                config=entry.strategy,
                num_workers=workers,
            )


def _of_script(request: Request, target: str, device: str) -> Iterator[Cell]:
    alone = Cell(
        source="script",
        suite=target,
        model=" ".join(request.args),
        where=target,
        args=request.args,
        device=device,
        steps=request.steps,
        relaxed=request.relaxed,
    )
    yield alone
    if request.accelerate:
        yield replace(alone, form=ACCELERATED)
    for entry, workers in _shared_out(request):
        yield replace(alone, strategy=entry.label, config=entry.strategy, num_workers=workers)


def _shared_out(request: Request) -> Iterator[tuple[Entry, int]]:
    for entry in request.entries:
        if entry.strategy.kind != "single":  # that one is always timed
            for workers in request.workers:
                yield entry, workers
