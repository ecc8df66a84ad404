"""Setup: all that a search needs to begin, made from a request: data, folds, techniques, crew."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reparto.errors import UsageError
from reparto.search._crew import Crew
from reparto.search._ground import Ground
from reparto.search._memory import free_bytes
from reparto.search._rows import Layout, Rows, Vector
from reparto.spec import Rung, SearchRequest, TableFacts

if TYPE_CHECKING:
    from reparto.search._board import Seen
    from reparto.search._local_process import KeeperProcess
    from reparto.search._tables import Table
    from reparto.search.techniques._base import Technique

#: Workers may take this part of the memory that is free when a search begins.
MEMORY_SHARE = 0.7
#: Without any limit a small table is searched for so long, a large one for up to so long.
LEAST_S, MOST_S = 20.0, 300.0
_SMALL_VALUES = 60_000
#: From so long a search on, torch is imported once for all workers, before they begin.
EARLY_S = 60.0


@dataclass
class Setup:
    """A search that can begin.

    Attributes:
        grounds: What is searched, by technique.
        crew: Makes the workers, of which there may be so many; called once.
        max_workers: At most.
        metric: By which candidates are ranked.
        higher_is_better: Of that metric.
        facts: Of the table; None for a script or a function.
        num_folds: Of cross-validation; 1 for a single split.
        asked_folds: As many were asked for, or there is time for; None for as many as usual.
        asked_rows: As many were asked for, or fit; None for all.
        split: How rows are shared out, for people.
        truths: Of each fold's tested rows.
        test: Rows that nobody sees before the end.
        seen: The table, for the search itself; None where it is elsewhere.
        baseline: Score of the best constant answer.
        default_time_s: If nothing else limits the search.
        notes: For people.
        closing: What is let go of at the end.
    """

    grounds: Sequence[Ground]
    crew: Callable[[], Crew]
    max_workers: int
    metric: str
    higher_is_better: bool
    facts: TableFacts | None = None
    num_folds: int = 1
    asked_folds: int | None = None
    asked_rows: int | None = None
    split: str = ""
    truths: Sequence[Vector] = ()
    test: Rows | None = None
    seen: Seen | None = None
    baseline: float | None = None
    default_time_s: float = MOST_S
    notes: list[str] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)

    def rungs(self, search: str, kind: str) -> tuple[Rung, ...]:
        """Of a technique's candidates."""
        from reparto.search._rungs import rungs_of

        ground = next(one for one in self.grounds if one.kind == kind)
        return rungs_of(search, self.num_folds, ground.resource, self.facts)  # type: ignore[arg-type]


def table_setup(request: SearchRequest) -> Setup:
    """For a table that fits this machine.

    Raises:
        UsageError: If the request or the table cannot be.
    """
    with ExitStack() as made:
        keeper = None
        if request.engine != "ray":
            from reparto.search._local_process import KeeperProcess
            from reparto.search._table_work import modules_for

            # It imports libraries while the table is read.
            keeper = KeeperProcess(request.threads, modules_for(_early(request)))
            made.callback(keeper.close)
        setup = _laid_out(request, made, keeper)
        setup.closing = made.pop_all()
    return setup


def _early(request: SearchRequest) -> tuple[str, ...]:
    """Techniques whose libraries are imported once for all workers, before any begins."""
    asked = tuple(_kind_of(name) for name in asked_for(request))
    is_short = request.time_s is not None and request.time_s < EARLY_S
    # torch takes a second or two: in a short search each worker imports it when it is its turn.
    return asked or (("lightgbm",) if is_short else ("lightgbm", "network"))


def _laid_out(request: SearchRequest, closing: ExitStack, keeper: KeeperProcess | None) -> Setup:
    from reparto.search._board import Board
    from reparto.search._folds import folds_in, lay_out
    from reparto.search._tables import read_rows, read_table
    from reparto.search.metrics import default_metric, metric_named
    from reparto.search.techniques import techniques_for

    table = read_table(request)
    facts = table.facts
    metric = metric_named(request.metric or default_metric(facts.domain), facts.domain)
    grounds = grounds_of(techniques_for(facts, asked_for(request)), facts, request)
    test = read_rows(request.test, facts) if request.test else None
    folds, notes = request.folds, list[str]()
    if folds is None and request.time_s is not None:
        folds = folds_in(table, request.time_s)
        if folds is not None:
            few = "a single split" if folds == 1 else f"{folds} folds"
            notes.append(f"{few}, since the time is short for such a table: --folds 5 for more")
    layout = lay_out(table, folds=folds, split=request.split, seed=request.seed)
    baseline = _baseline(table, layout, metric.name)
    board = Board.put(table, layout, test)
    closing.callback(board.close)
    del table
    seen = board.seen()
    tested = [seen.tested(fold).y for fold in range(len(layout.folds))]
    truths = [one for one in tested if one is not None]
    workers = request.max_workers or max(1, num_cores() // max(1, request.threads))
    if request.engine == "ray":
        from reparto.engines.ray_actors import RayActors

        actors = RayActors(request.address, board.num_bytes)
        closing.callback(actors.close)
        workers = request.max_workers or max(1, actors.num_cpus() // max(1, request.threads))

    kinds = {one.kind for one in grounds}
    early = [kind for kind in _early(request) if kind in kinds]

    def crew() -> Crew:
        from reparto.search._table_work import TableWork

        work = TableWork(board, metric.name, early)
        if request.engine == "ray":
            from reparto.search._remote import RayCrew

            return RayCrew(
                work,
                actors=actors,
                max_workers=workers,
                threads=request.threads,
                memory_bytes=request.memory_bytes,
            )
        from reparto.search._local import LocalCrew

        memory = request.memory_bytes or int(free_bytes() * MEMORY_SHARE / workers)
        return LocalCrew(
            work,
            max_workers=workers,
            threads=request.threads,
            memory_bytes=memory,
            keeper=keeper,
        )

    return Setup(
        grounds=grounds,
        crew=crew,
        max_workers=workers,
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        facts=facts,
        num_folds=len(layout.folds),
        split=layout.how,
        truths=truths,
        test=test,
        seen=seen,
        baseline=baseline,
        default_time_s=time_for(facts),
        notes=[*notes, *layout.notes],
        asked_folds=folds,
        asked_rows=facts.num_rows if facts.num_rows < facts.num_rows_in_file else request.rows,
    )


def asked_for(request: SearchRequest) -> tuple[str, ...]:
    """Techniques that the request names, those of its candidates and spaces among them."""
    named = [*request.techniques, *(one.technique for one in request.candidates)]
    return tuple(dict.fromkeys(named or request.spaces))


def grounds_of(
    techniques: Sequence[Technique], facts: TableFacts, request: SearchRequest
) -> tuple[Ground, ...]:
    """What of each technique is searched.

    Raises:
        UsageError: If the request gives values that cannot be, or speaks of other techniques.
    """
    by_kind = {one.kind: one for one in techniques}
    found = []
    spaces = _by_kind(request.spaces, by_kind)
    for kind, technique in by_kind.items():
        ground = Ground(
            kind,
            technique.space(facts),
            tuple(technique.portfolio(facts)),
            resource=technique.resource,
        )
        asked = _by_our_names(spaces.get(kind, {}), technique, facts)
        if asked or request.only_asked:
            ground = ground.narrowed(asked, only=request.only_asked)
        for name, values in ground.axes() if asked else ():
            for value in values:
                technique.check({name: value}, facts)
        found.append(ground)
    for one in request.candidates:
        by_kind[_kind_of(one.technique)].check(one.settings, facts)
    return tuple(found)


def _by_our_names(
    asked: Mapping[str, Any], technique: Technique, facts: TableFacts
) -> dict[str, Any]:
    """What is asked of a technique's settings, which a request may call otherwise: `maxDepth`."""
    found: dict[str, Any] = {}
    for name, values in asked.items():
        own = technique.setting_named(name, facts)
        if own in found:
            raise UsageError(
                f"{technique.kind}: {own} is given twice, once as {name}",
                remedy="leave one of them out",
            )
        found[own] = values
    return found


def _by_kind(
    spaces: Mapping[str, Mapping[str, Any]], known: Mapping[str, Technique]
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for name, asked in spaces.items():
        kind = _kind_of(name)
        if kind not in known:
            raise UsageError(
                f"values are given for {name}, which is not searched",
                remedy=f"searched are {', '.join(known)}",
            )
        if kind in found:
            raise UsageError(
                f"values are given for {kind} twice, once as {name}", remedy="put them together"
            )
        found[kind] = asked
    return found


def _kind_of(name: str) -> str:
    from reparto.search.techniques import technique_named

    return technique_named(name).kind


def _baseline(table: Table, layout: Layout, metric: str) -> float | None:
    """What the best constant answer scores on the same folds."""
    from reparto.search.metrics import constant_answer, scores_of

    if table.y is None:
        return None
    found = []
    for fold in layout.folds:
        trained = table.y[layout.order[fold.train.start : fold.train.stop]]
        tested = table.y[layout.order[fold.test.start : fold.test.stop]]
        answer = constant_answer(table.facts, trained, len(tested), metric)
        found.append(scores_of(table.facts, answer, tested).get(metric, math.nan))
    mean = statistics.fmean(found)
    return mean if math.isfinite(mean) else None


def num_cores() -> int:
    """Of this machine, as far as this process may use them."""
    return len(os.sched_getaffinity(0))


def time_for(facts: TableFacts) -> float:
    """How long a table is searched for if nobody says."""
    values = max(1, facts.num_rows * max(1, facts.num_columns))
    return min(MOST_S, max(LEAST_S, LEAST_S * math.sqrt(values / _SMALL_VALUES)))
