"""Source: a table on a Spark cluster, with its facts and its folds. Rows stay where they are."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import EngineError, UsageError
from reparto.search._board import Board, Plan
from reparto.search._board import Seen as BoardSeen
from reparto.search._crew import Crew
from reparto.search._rows import Rows, Vector, Window
from reparto.search._spark._facts import domain_of, table_facts
from reparto.search._spark._look import Seen, word
from reparto.search._spark._prepare import Prepared, Way, prepare
from reparto.search._spark._read import Frame, Raw, read_raw
from reparto.search._spark._session import Session, cause_of, told
from reparto.search._spark._share_out import DRAW, FOLD, share_out
from reparto.search._spark._typed import LABEL, ROW, refuse_strangers, rows_of, typed
from reparto.search._tables._columns import level_order
from reparto.search._tables._target import MOST_CLASSES
from reparto.spec import SearchColumn, SearchRequest, TableFacts

#: Of each fold's tested rows, so many are brought here, to draw them in the report.
MOST_TOLD = 5000
#: A clustering is judged by so many rows, each beside each.
MOST_JUDGED = 2000
#: By so many rows columns are weighed.
MOST_SHUFFLED = 500
#: A part of the table has about so many values, but no more of them than there is use for.
_CELLS, _WIDE = 100_000, 10_000
#: Vectors with fewer values than this share are kept sparse.
_SPARSE = 0.3


def open_spark(request: SearchRequest) -> SparkSource:
    """Connect to a cluster, and find out all about the table that lies there.

    Raises:
        UsageError: If the request or the table cannot be.
        MissingExtraError: If pyspark is not installed.
        EngineError: If the cluster cannot be reached.
    """
    session = Session(request.address, executor_bytes=request.memory_bytes)
    try:
        return SparkSource(session, request)
    except BaseException:
        session.close()
        raise


class SparkSource:
    """A table on a cluster.

    Attributes:
        session: The connection.
        facts: Of the table.
        split: Its folds.
        counts: Of each fold, how many rows are tested.
        test: Rows of the test table, of all or of a sample of them; None if there is none.
    """

    def __init__(self, session: Session, request: SearchRequest) -> None:
        self.session, self._request = session, request
        self._prepared: dict[tuple[int | None, Way], Prepared] = {}
        self._locks: dict[tuple[int | None, Way], threading.Lock] = {}
        self._lock = threading.Lock()
        self._rows_judged: dict[int, Rows] = {}
        with _explained(request.data), session.jobs("reading"):
            raw = read_raw(session.spark, request.data, target=request.target)
            self.facts, self._seen = self._facts(raw)
            frame = self._drawn(typed(raw, self.facts, self._seen))
            frame, self.split = share_out(frame, self.facts, request)
            # A job for a few rows is quickest as one task; for many rows, each core gets several.
            cells = self.facts.num_rows * min(self.facts.num_columns, _WIDE)
            parts = max(1, min(3 * session.parallelism, cells // _CELLS))
            self.frame: Frame = frame.repartition(parts, ROW).persist(_where_it_fits())
            self._count()
        self.test_frame: Frame | None = None
        self.test: Rows | None = None
        self.num_test = 0
        if request.test:
            with _explained(request.test), session.jobs("reading the test table"):
                self._read_test(raw)

    def _facts(self, raw: Raw) -> tuple[TableFacts, list[Seen]]:
        if raw.format == "libsvm":
            return _vector_facts(raw, self._request), []
        return table_facts(raw, self._request)

    def _drawn(self, frame: Frame) -> Frame:
        """So many rows as the request wants, drawn at random."""
        from pyspark.sql import functions as f

        most = self._request.rows
        if most is None or most >= self.facts.num_rows:
            return frame
        self.facts = dataclasses.replace(self.facts, num_rows=most)
        return frame.orderBy(f.xxhash64(f.lit(self._request.seed + 3), f.col(ROW))).limit(most)

    def _count(self) -> None:
        """Rows of each fold and class; the frame is then where it will stay."""
        from pyspark.sql import functions as f

        has_label = bool(self.facts.target)
        by = [FOLD, LABEL] if self.facts.is_classification else [FOLD]
        sums = [f.count(f.lit(1))]
        if has_label and not self.facts.is_classification:
            sums += [f.sum(LABEL), f.sum(f.col(LABEL) * f.col(LABEL))]
        self.table = [tuple(row) for row in self.frame.groupBy(*by).agg(*sums).collect()]
        num_rows = sum(int(row[len(by)]) for row in self.table)
        counts = [0] * len(self.facts.classes)
        if self.facts.is_classification:
            for row in self.table:
                counts[int(row[1])] += int(row[2])
        lost = self.facts.num_rows - num_rows
        if lost and self.split.by_time:
            note = f"{lost} rows without {self.facts.time} are left out"
            notes = (*self.facts.notes, note)
            self.facts = dataclasses.replace(self.facts, notes=notes)
        self.facts = dataclasses.replace(self.facts, num_rows=num_rows, class_counts=tuple(counts))
        offset = 1 if self.split.by_time else 0
        place = len(by)
        self.counts = [
            sum(int(row[place]) for row in self.table if row[0] == fold + offset)
            for fold in range(self.split.num_folds)
        ]

    def _read_test(self, raw: Raw) -> None:
        from pyspark.sql import functions as f

        path, facts = self._request.test, self.facts
        other = read_raw(self.session.spark, path, target=facts.target, like=raw)
        if raw.format != other.format or (raw.format != "libsvm" and set(raw.names) != set(
            other.names
        )):  # fmt: skip
            lost = [name for name in raw.names if name not in other.names]
            raise UsageError(
                f"{path} is not of the form of {self._request.data}: "
                + (f"it has no column {lost[0]}" if lost else f"it is {other.format}"),
                remedy="give one with the same columns",
            )
        types = {field.name: field.dataType.simpleString().partition("(")[0]
                 for field in other.frame.schema.fields}  # fmt: skip
        seen = [
            dataclasses.replace(one, place=place, type=types[f"r{place}"])
            for one in self._seen
            for place in [other.names.index(one.name)]
        ]
        frame = typed(other, facts, seen)
        self.num_test = int(other.frame.count())
        draw = f.pmod(f.xxhash64(f.lit(self._request.seed + 1), f.col(ROW)), f.lit(1 << 30))
        frame = frame.withColumn(DRAW, draw / (1 << 30)).persist(_where_it_fits())
        if facts.target:
            refuse_strangers(frame, facts, path, self.num_test)
        self.test_frame = frame
        self.test = rows_of(self.told(frame, self.num_test), facts)

    # What a search asks for.

    @property
    def num_folds(self) -> int:
        """Of cross-validation; 1 for a single split."""
        return self.split.num_folds

    def told_rate(self, num_rows: int) -> float:
        """Of so many tested rows, the share that is brought here."""
        most = MOST_JUDGED if self.facts.domain == "clustering" else MOST_TOLD
        return min(1.0, most / max(1, num_rows))

    def told(self, frame: Frame, num_rows: int) -> Frame:
        """The rows of these that are brought here; always the same."""
        from pyspark.sql import functions as f

        rate = self.told_rate(num_rows)
        return frame if rate >= 1.0 else frame.where(f.col(DRAW) < rate)

    def truths(self) -> list[Vector]:
        """Of each fold's tested rows, of all or of a sample; empty for clustering."""
        if not self.facts.target:
            return []
        from pyspark.sql import functions as f

        rates = [self.told_rate(count) for count in self.counts]
        offset = 1 if self.split.by_time else 0
        told = f.lit(False)
        for fold, rate in enumerate(rates):
            told = told | ((f.col(FOLD) == fold + offset) & (f.col(DRAW) < rate))
        with self.session.jobs("reading"):
            rows = self.frame.where(told).select(FOLD, ROW, LABEL).collect()
        rows = sorted((int(row[0]) - offset, int(row[1]), float(row[2])) for row in rows)
        kind = np.int32 if self.facts.classes else np.float64
        return [
            np.array([row[2] for row in rows if row[0] == fold], dtype=kind)
            for fold in range(self.num_folds)
        ]

    def judged(self, fold: int) -> Rows:
        """The rows by which a clustering is judged; brought here once."""
        with self._lock:
            if fold not in self._rows_judged:
                tested = self.split.tested(self.frame, fold)
                few = self.told(tested, self.counts[fold])
                self._rows_judged[fold] = rows_of(few, self.facts)
            return self._rows_judged[fold]

    def sample(self, num_rows: int) -> Rows:
        """Some rows of the table."""
        from pyspark.sql import functions as f

        rate = num_rows / max(1, self.facts.num_rows)
        with self.session.jobs("reading"):
            return rows_of(self.frame.where(f.col(DRAW) < rate), self.facts)

    def seen(self) -> BoardSeen:
        """A sample of the table, and of the test table, as techniques see a table."""
        few = self.sample(MOST_SHUFFLED)
        arrays = _arrays("", few) | ({} if self.test is None else _arrays("test_", self.test))
        plan = Plan(self.facts, (), Window(0, len(few)), self.facts.num_columns)
        return Board.of_arrays(plan, arrays).seen()

    def sums(self, fold: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of the rows that a fold is trained on, and of those that it is tested on.

        Of classes, how many rows are of each; else the number of rows, the sum of the target, and
        the sum of its squares.
        """
        of_classes = self.facts.is_classification
        found = np.zeros((2, len(self.facts.classes) if of_classes else 3))
        tested = fold + 1 if self.split.by_time else fold
        for row in self.table:
            is_tested = row[0] == tested
            if not is_tested and self.split.by_time and row[0] > fold:
                continue
            if of_classes:
                found[int(is_tested), int(row[1])] += row[2]
            else:
                found[int(is_tested)] += [float(it or 0.0) for it in (*row[1:], 0.0, 0.0)[:3]]
        return found[0], found[1]

    def notes(self) -> list[str]:
        """What people should know."""
        found = [f"data stay on the Spark cluster {self.session.address}; candidates are MLlib's"]
        if self.facts.target and any(self.told_rate(count) < 1.0 for count in self.counts):
            found.append(
                f"the report draws samples of about {MOST_TOLD} tested rows a fold; scores are "
                "of all of them"
            )
        return found

    def prepared(self, fold: int | None, way: Way) -> Prepared:
        """How rows become vectors, by what the rows say that a fold is trained on; kept."""
        key = (fold, way)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._prepared:
                rows = self.split.trained(self.frame, fold)
                self._prepared[key] = prepare(rows, self.facts, way)
            return self._prepared[key]

    def crew(self, workers: int, metric: str) -> Crew:
        """So many threads, each of which has a candidate trained by the cluster."""
        from reparto.search._spark._work import SparkWork
        from reparto.search._threads import ThreadCrew

        make = _numbered(lambda number: SparkWork(self, metric, number))
        return ThreadCrew(make, max_workers=workers, host=self.session.address)

    def close(self) -> None:
        """End the session."""
        self.session.close()


def _arrays(prefix: str, rows: Rows) -> dict[str, NDArray[Any]]:
    x = rows.x
    found = {"x": x} if isinstance(x, np.ndarray) else {
        "data": x.data, "indices": x.indices, "indptr": x.indptr
    }  # fmt: skip
    if rows.y is not None:
        found["y"] = rows.y
    return {prefix + name: value for name, value in found.items()}


def _numbered(make: Callable[[int], Any]) -> Callable[[], Any]:
    lock, count = threading.Lock(), iter(range(1 << 30))

    def made() -> Any:
        with lock:
            return make(next(count))

    return made


def _where_it_fits() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.MEMORY_AND_DISK


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Errors of Spark while a table is read, in words."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        known = told(error, path)
        if known is not None:
            raise known from error
        raise EngineError(
            f"Spark could not read {path}: {cause_of(error)[:400]}",
            remedy="look at the data, and at the logs of the cluster's workers",
        ) from error


def _vector_facts(raw: Raw, request: SearchRequest) -> TableFacts:
    from pyspark.ml.stat import Summarizer
    from pyspark.sql import functions as f

    if request.groups or request.time:
        raise UsageError(
            "a libsvm file has no named columns", remedy="leave --groups and --time-column out"
        )
    label = f.col("label")
    row = raw.frame.agg(
        f.count(f.lit(1)),
        f.approx_count_distinct(label),
        f.count(f.when(label == f.floor(label), 1)),
        f.sum(f.xxhash64(label, f.col("features").cast("string")).cast("decimal(38,0)")),
        Summarizer.numNonZeros(f.col("features")),
    ).collect()[0]
    num_rows, num_columns = int(row[0]), len(raw.names)
    if not num_rows or not num_columns:
        raise UsageError(f"{request.data} has no rows", remedy="give some")
    filled = float(np.sum(row[4].toArray())) / (num_rows * num_columns)
    facts = TableFacts(
        path=request.data, format="libsvm", num_rows=num_rows, num_rows_in_file=num_rows,
        columns=tuple(SearchColumn(name=name) for name in raw.names),
        domain="clustering", is_sparse=filled < _SPARSE and num_columns > 10,
        digest=f"{int(row[3] or 0) & (2**64 - 1):016x}", notes=raw.notes,
    )  # fmt: skip
    if request.domain == "clustering":
        return facts
    about = Seen(
        "label",
        -1,
        "double",
        num_rows,
        num_rows,
        num_rows,
        0,
        int(row[2]),
        int(row[1]),
        None,
        None,
    )
    names: tuple[str, ...] = ()
    if about.distinct <= 2 * MOST_CLASSES:
        found = raw.frame.select(word(label, is_number=True)).distinct().collect()
        names = tuple(sorted((one[0] for one in found), key=level_order))
    domain = domain_of(about, request.domain, names)
    classes = names if domain in ("binary", "multiclass") else ()
    return dataclasses.replace(facts, target="label", domain=domain, classes=classes)
