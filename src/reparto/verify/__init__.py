"""The proof: a script runs alone and shared out from the same seed, and every step is compared.

    train.py ──────────────► one worker   ──► record A ─┐
       └── convert ────────► N workers    ──► record B ─┼─ _compare ─► _judge ─► VerifyResult
       (only if in doubt)    one worker,                │              _explain
                             moved by 1 ulp ─► noise ───┘

Both sides run in float64, where rounding is far below any mistake. A script that cannot run so is
compared in its own precision, against what rounding alone does to it. Each side has a scratch copy
of the script's folder of its own.

For tests only: ``REPARTO_SABOTAGE`` in the environment breaks the shared-out side on purpose
(``sum-for-mean``, ``doubled-sample``, ``dropped-sample``, ``missing-reduction``,
``stale-batchnorm``), to see that each is caught.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reparto import api, engines
from reparto.convert import Refused, Unchanged
from reparto.convert import accelerate as accelerated
from reparto.engines import Engine
from reparto.errors import RefusedError, UsageError
from reparto.spec import Divergence, Job, Options, Program, StrategyConfig, VerifyResult
from reparto.verify._sides import Progress, Side, run_side

if TYPE_CHECKING:
    from reparto.runtime._record import Record
    from reparto.verify._compare import Distances, Gap
    from reparto.verify._judge import Judgement

__all__ = ["verify"]

FLOAT32_TOLERANCE = 1e-5
#: GPUs add up in other orders than CPUs.
ACCELERATED_TOLERANCE = 1e-4
#: How often the noise floor is taken before an excess over it counts.
MAX_NOISES = 3
SABOTAGE_VARIABLE = "REPARTO_SABOTAGE"

Precision = Literal["float64", "float32"]


def verify(
    script: str | Path,
    args: Sequence[str] = (),
    *,
    workers: int = 2,
    steps: int = 20,
    tolerance: float = 1e-7,
    precision: Precision | None = None,
    seed: int = 0,
    strategy: StrategyConfig | None = None,
    keep: str | Path | None = None,
    engine: Engine | None = None,
    on_progress: Progress | None = None,
    accelerate: bool = False,
) -> VerifyResult:
    """Compare a script with itself shared out, at every step.

    Args:
        script: The script.
        args: The script's own arguments.
        workers: Of the shared-out side. With one, the two have to agree to the last bit.
        steps: Compare so many steps.
        tolerance: The largest distance of two equal runs in float64; in float32 at least 1e-5.
        precision: None for float64 where the script can, float32 (its own) where it cannot.
        seed: Of both sides; a script that seeds itself overrides it.
        strategy: How workers agree; all-reduce if not given. A relaxed one is likely unequal.
        keep: Keep records, outputs and copies in this folder, which must be new or empty.
        engine: Where the shared-out side runs; this machine if not given. The caller closes it.
        on_progress: Is told the side and its step.
        accelerate: Hold the script, as it runs on the CPU, against one accelerated worker.

    Returns:
        The distances, and where they are too large what that may mean.

    Raises:
        UsageError: If there is no such script, or an argument makes no sense.
        RefusedError: If the script cannot be shared out exactly.
        ScriptError: If the script fails, on either side.

    Example:
        >>> verify("train.py", ["--epochs", "1"]).verdict  # doctest: +SKIP
        'equal'
    """
    if workers < 1 or steps < 1 or tolerance < 0:
        raise UsageError("at least one worker and one step are needed, and no tolerance below 0")
    found = api.convert(script, args)
    if isinstance(found, Refused) and not accelerate:
        raise refusal(found.program)
    # A script that calls reparto by itself is left as it is, too; but there is much to compare.
    if isinstance(found, Unchanged) and found.program.launch != "reparto":
        return VerifyResult(
            script=found.program.script,
            verdict="unchanged",
            num_workers=workers,
            seed=seed,
            notes=(found.reason,),
        )
    with ExitStack() as stack:
        folder = Path(keep) if keep is not None else Path(tempfile.mkdtemp(prefix="reparto-"))
        if keep is None:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is not an empty folder", remedy="name another for --keep")
        proof = _Proof(
            program=accelerated(Path(script), args) if accelerate else found.program,
            workers=1 if accelerate else workers,
            accelerate=accelerate,
            options=Options(steps=steps, seed=seed, shared_draws=True),
            tolerance=tolerance,
            folder=folder.absolute(),
            engine=engine or engines.build("local"),
            strategy=strategy or StrategyConfig(kind="all-reduce"),
            on_progress=on_progress or (lambda side, step: None),
        )
        return proof.run(precision)


def refusal(program: Program) -> RefusedError:
    """The error for a script that cannot be shared out, with every reason."""
    reasons = [
        f"{found.place}: {found.code} {found.reason}"
        + (f"\n    → {found.remedy}" if found.remedy else "")
        for found in program.diagnostics
        if found.severity == "error"
    ]
    return RefusedError("\n".join([f"{program.script} cannot be shared out exactly", *reasons]))


@dataclass(frozen=True, kw_only=True)
class _Proof:
    program: Program
    workers: int
    accelerate: bool
    options: Options
    tolerance: float
    folder: Path
    engine: Engine
    strategy: StrategyConfig
    on_progress: Progress

    def run(self, precision: Precision | None) -> VerifyResult:
        sequential, precision, notes = self._sequential(precision)
        shared = self._side(
            "accelerated"
            if self.accelerate
            else f"shared out over {self.workers} worker{'s' * (self.workers > 1)}",
            "shared",
            precision,
            workers=self.workers,
            seeds=_seeds(sequential),
            sabotage=os.environ.get(SABOTAGE_VARIABLE, ""),
            steps=_steps_of_optimizers(sequential) if self.accelerate else 0,
        )
        if shared.failed:
            how = "accelerated" if self.accelerate else "shared out"
            raise shared.error(f"the script runs alone, but fails when {how}")
        return self._result(sequential, shared, precision, notes)

    def _sequential(self, precision: Precision | None) -> tuple[Side, Precision, list[str]]:
        side = self._side("sequential", "sequential", precision or "float64")
        if not side.failed:
            return side, precision or "float64", []
        if precision is not None:
            raise side.error("the script fails by itself")
        native = self._side("sequential, in its own precision", "native", "float32")
        if native.failed:
            raise native.error("the script fails by itself")
        note = f"compared in the script's own precision: in float64 it fails ({side.reason()})"
        return native, "float32", [note]

    def _result(
        self, sequential: Side, shared: Side, precision: Precision, notes: list[str]
    ) -> VerifyResult:
        from reparto.verify._compare import compare  # brings torch
        from reparto.verify._explain import explain
        from reparto.verify._judge import judge

        ours, theirs = sequential.record(), shared.record()
        distances = compare(ours, theirs, precision)
        if self.accelerate:  # gradients that no optimizer owns are not followed there
            distances = _without_loose(distances)
            if 0 < _steps_of_optimizers(sequential) < sequential.result.num_steps:
                # The sequential side went on behind its last step to its last gradient.
                distances = _up_to_the_end_of(theirs, distances)
        if self.accelerate and not theirs.of_kind("gradient"):
            return self._nothing_accelerated(sequential, shared, precision)
        is_alike = self.workers == 1 and not self.accelerate  # to the last bit
        tolerance = 0.0 if is_alike else self.tolerance
        if precision == "float32" and not is_alike:
            least = ACCELERATED_TOLERANCE if self.accelerate else FLOAT32_TOLERANCE
            tolerance = max(tolerance, least)
        judgement = judge(distances, tolerance)
        noises: list[Distances] = []
        while (
            len(noises) < (1 if is_alike else MAX_NOISES)
            and judgement.may_be_noise(precision)
            and (noise := self._noise(sequential, precision, len(noises) + 1)) is not None
        ):
            noises.append(noise)
            if is_alike and any(gap.distance > 0 for gap in noise.all_gaps()):
                tolerance = self.tolerance  # the script does not repeat itself to the bit
            judgement = judge(distances, tolerance, noises)
        is_unsteady = is_alike and tolerance > 0
        divergence: Divergence | None = None
        verdict: Literal["equal", "unequal", "unproven"] = "equal"
        if judgement.excesses:
            verdict, divergence = (
                "unequal",
                explain(judgement.excesses, ours, theirs, self.workers),
            )
        elif not judgement.gradients:
            verdict = "unproven"
            divergence = Divergence(
                place="the whole script", what="it made no optimizer step", hint=""
            )
        return VerifyResult(
            script=self.program.script,
            verdict=verdict,
            num_workers=self.workers,
            num_steps=sequential.result.num_steps,
            precision=precision,
            tolerance=tolerance,
            seed=self.options.seed,
            gradients=judgement.gradients,
            losses=judgement.losses,
            values=judgement.values,
            tensors=judgement.tensors,
            divergence=divergence,
            notes=(
                *notes,
                *_notes(judgement, distances, is_unsteady),
                *shared.result.notes,
                *shared.linked,
            ),
            sequential_s=sequential.result.total_s,
            shared_s=shared.result.total_s,
        )

    def _nothing_accelerated(
        self, sequential: Side, shared: Side, precision: Precision
    ) -> VerifyResult:
        return VerifyResult(
            script=self.program.script,
            verdict="unproven",
            num_workers=1,
            num_steps=sequential.result.num_steps,
            precision=precision,
            seed=self.options.seed,
            divergence=Divergence(
                place="the whole script",
                what="it steps no optimizer of torch's, so nothing of it was accelerated",
                hint="",
            ),
            notes=shared.result.notes,
            sequential_s=sequential.result.total_s,
            shared_s=shared.result.total_s,
        )

    def _noise(self, sequential: Side, precision: Precision, trial: int) -> Distances | None:
        from reparto.verify._compare import compare

        name = "sequential, moved by one ulp" + (f", trial {trial}" if trial > 1 else "")
        if (
            self.workers == 1 and not self.accelerate
        ):  # must be equal to the bit, if the script is equal to itself
            name, trial = "sequential, once more", 0
        moved = self._side(name, f"moved{trial}", precision, nudge=trial, seeds=_seeds(sequential))
        return None if moved.failed else compare(sequential.record(), moved.record(), precision)

    def _side(
        self,
        name: str,
        folder: str,
        precision: Precision,
        *,
        workers: int | None = None,
        nudge: int = 0,
        seeds: tuple[int, ...] = (),
        sabotage: str = "",
        steps: int = 0,
    ) -> Side:
        program = self.program if workers is not None else _unconverted(self.program)
        is_alike = self.workers == 1 and not self.accelerate
        most = self.options.steps
        options = replace(
            self.options,
            steps=min(steps, most) if steps and most else most,
            precision="native" if precision == "float32" and is_alike else precision,
            nudge=nudge,
            seeds=seeds,
            sabotage=sabotage,
        )
        place = self.folder / folder
        place.mkdir(parents=True)
        with _gpus_hidden(self.accelerate and workers is None):
            return self._ran(name, program, options, place, workers)

    def _ran(
        self, name: str, program: Program, options: Options, place: Path, workers: int | None
    ) -> Side:
        kind, settings = self.strategy.kind, self.strategy.settings
        job = Job(
            script=program.script,
            workers=workers or 1,
            strategy=kind,
            settings=settings,
            accelerate="on" if self.accelerate and workers is not None else "off",
        )
        engine = self.engine if workers is not None else engines.build("local")
        cluster = engine.cluster()
        plan = api.planned(job, cluster, program, exact=True)
        return run_side(
            name,
            program,
            plan,
            options,
            place,
            self.on_progress,
            engine=engine,
            cluster=cluster,
        )


@contextmanager
def _gpus_hidden(are_hidden: bool) -> Iterator[None]:
    """What is started inside finds no GPU, if so: a script may take one by itself."""
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    if are_hidden:
        os.environ[name] = ""
    try:
        yield
    finally:
        if are_hidden:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


def _seeds(side: Side) -> tuple[int, ...]:
    """What the script has seeded generators with; it may have asked the clock."""
    return tuple(entry.data["value"] for entry in side.record().of_kind("seed"))


def _without_loose(distances: Distances) -> Distances:
    """Without what belongs to no optimizer."""
    gradients = {key: gap for key, gap in distances.gradients.items() if not _is_loose(key[0])}
    tensors = {name: gap for name, gap in distances.tensors.items() if not _is_loose(name)}
    return replace(distances, gradients=gradients, tensors=tensors)


def _is_loose(name: str) -> bool:
    """Whether it is the name of what owns gradients of no optimizer, or of a tensor of its."""
    return name.partition(".")[0].rstrip("0123456789") == "loose"


def _up_to_the_end_of(record: Record, distances: Distances) -> Distances:
    """Without losses and numbers read that only the other record has, behind its end."""
    found: dict[str, dict[int, Gap]] = {}
    for kind, gaps in (("loss", distances.losses), ("value", distances.values)):
        last = len(record.of_kind(kind))
        found[kind] = {number: gap for number, gap in gaps.items() if number <= last}
    return replace(distances, losses=found["loss"], values=found["value"])


def _steps_of_optimizers(side: Side) -> int:
    """How often the optimizer that stepped most often did; 0 if none did.

    A sequential run also counts what reads gradients without one, an attack on inputs say; an
    accelerated one counts steps of optimizers alone, and is to end where the other ended.
    """
    owners = [entry.data["owner"] for entry in side.record().of_kind("gradient")]
    counts = Counter(owner for owner in owners if not _is_loose(owner))
    return max(counts.values(), default=0)


def _unconverted(program: Program) -> Program:
    files = tuple(replace(file, converted=file.original) for file in program.files)
    return replace(program, files=files)


def _notes(judgement: Judgement, distances: Distances, is_unsteady: bool) -> list[str]:
    from reparto.verify._judge import NOISE_FACTOR, summarised

    notes = []
    if is_unsteady:
        notes.append(
            "the sequential script does not repeat itself to the bit (on GPUs the order of sums "
            f"may change): held against the tolerance, or {NOISE_FACTOR:.0f} × that"
        )
    elif judgement.excused:
        notes.append(
            f"rounding alone moves {summarised(judgement.excused)} beyond the tolerance (seen in "
            "the sequential script with every parameter moved by one ulp): "
            f"held against {NOISE_FACTOR:.0f} × that"
        )
    if distances.nan_at is not None:
        notes.append("both sides turn to NaN alike: what follows proves little")
    return notes
