"""SearchRequest, Candidate, Evaluation and SearchResult: a search over techniques and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: What is to be found out; ``function`` has no data, such as Branin's test function.
Domain = Literal["regression", "binary", "multiclass", "clustering", "function", "script"]
#: What a user may say of it; ``classification`` leaves it to the data how many classes there are.
AskedDomain = Domain | Literal["classification"]
ColumnKind = Literal["number", "category", "date", "text"]
SearchKind = Literal["grid", "random", "bayes", "asha"]
Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SearchColumn:
    """One column of a table.

    Attributes:
        name: As the file has it, or ``c0``, ``c1``, … where it has no names.
        kind: Numbers as they are; a category as the place of its level; a date as seconds since
            1970; text is known and left out.
        levels: Of a category, in the order of their places.
        num_missing: Rows without a value.
        why: What made us think so, for people.
        form: How it is written in files, where that must be known to read more of them: of a
            date ``%d/%m/%Y``, of a number ``1.234,5``.
    """

    name: str
    kind: ColumnKind = "number"
    levels: tuple[str, ...] = ()
    num_missing: int = 0
    why: str = ""
    form: str = ""


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """What is known of a data set, before anything is trained.

    Attributes:
        path: Where it was read from.
        format: ``csv``, ``parquet``, ``libsvm``, ``arff``, ``numpy``.
        num_rows: That are used.
        num_rows_in_file: That there are.
        num_columns_in_file: Of all kinds, the target among them.
        columns: Those that techniques see, in order; not the target.
        target: The name of the column that is to be foretold; empty for clustering.
        target_form: How it is written in files, as `SearchColumn.form`.
        domain: What kind of question that is.
        classes: What a class is called, in the order of its number.
        class_counts: Rows of each class.
        groups: The column by which rows belong together; empty if none.
        time: The column by which rows follow each other; empty if none.
        is_sparse: Whether most entries are zero, and are not kept.
        digest: Of the values, to know the same data again.
        notes: All that was inferred and left out, for people.
    """

    path: str = ""
    format: str = ""
    num_rows: int = 0
    num_rows_in_file: int = 0
    num_columns_in_file: int = 0
    columns: tuple[SearchColumn, ...] = ()
    target: str = ""
    target_form: str = ""
    domain: Domain = "regression"
    classes: tuple[str, ...] = ()
    class_counts: tuple[int, ...] = ()
    groups: str = ""
    time: str = ""
    is_sparse: bool = False
    digest: str = ""
    notes: tuple[str, ...] = ()

    @property
    def num_columns(self) -> int:
        """Columns that techniques see."""
        return len(self.columns)

    @property
    def has_categories(self) -> bool:
        """Whether any column is a category."""
        return any(column.kind == "category" for column in self.columns)

    @property
    def is_classification(self) -> bool:
        """Whether classes are to be told apart."""
        return self.domain in ("binary", "multiclass")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A technique with settings.

    Attributes:
        number: Counts from 0, in the order in which they were thought of.
        technique: Its kind.
        settings: By name.
        origin: ``portfolio`` (known to be good elsewhere), ``sampled``, ``grid``, ``ensemble``.
    """

    number: int
    technique: str
    settings: Settings = field(default_factory=dict)
    origin: Literal["portfolio", "sampled", "grid", "ensemble"] = "sampled"


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What a user asks to be found.

    Attributes:
        data: Path of the table; empty where a script or a function is searched.
        test: Path of a table of the same form that nobody sees before the end; empty for none.
        target: Its column that is to be foretold; empty for clustering, or the last one.
        domain: None to infer it from the target.
        techniques: Their kinds; empty for all that suit the domain.
        spaces: By technique, by setting, the values to choose from; others keep their own space,
            or in a grid their defaults.
        only_asked: Whether settings that `spaces` does not name keep their defaults in any search.
        candidates: Exactly these are tried, and nothing else; empty to search.
        search: How settings are chosen; ``asha`` also gives up early what lags behind.
        metric: By which candidates are ranked; empty for the domain's own.
        time_s: Ends then, with the best so far; None for no limit.
        trials: Candidates at most; None for no limit.
        cost: In the unit of `price_per_hour`; None for no limit.
        price_per_hour: Of a worker.
        min_workers: That are kept, also while there is little to do.
        max_workers: At most; None for the cores of this machine.
        threads: Of each worker.
        candidate_s: A candidate may take so long; None for a share of the time.
        memory_bytes: A worker may take so much beyond the shared data; None for a share.
        folds: Of cross-validation; 1 for a single split; None to choose by the number of rows.
        split: How rows are shared out over folds; ``auto`` chooses by the data.
        groups: Column of what belongs together and is never split; empty for none.
        time: Column of when a row was; folds are then tested on what comes later.
        rows: Use at most so many rows, drawn at random; None for all.
        ensemble: Whether the best candidates may be combined at the end.
        seed: Of all that is random.
        engine: ``local``, ``ray`` or ``spark``.
        address: Of the engine's cluster.
        storage: URL of a database where candidates are kept; empty for a file in the folder.
        script: Path of a script whose runs are the candidates; empty for none.
        script_args: Its arguments that stay the same.
        objective: Of a script: a regular expression with one group, matched against what it
            prints; empty for the training loss.
        maximize: Of a script: whether a higher objective is better.
        script_workers: Of a script: workers of each of its runs.
        strategy: Of a script: how its workers agree.
        notify: An address to which the end of it is told; kept, and told by the job service.
        notes: What became of the user's own words when they were read; the search passes it on.
    """

    data: str = ""
    test: str = ""
    target: str = ""
    domain: AskedDomain | None = None
    techniques: tuple[str, ...] = ()
    spaces: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    only_asked: bool = False
    candidates: tuple[Candidate, ...] = ()
    search: SearchKind = "asha"
    metric: str = ""
    time_s: float | None = None
    trials: int | None = None
    cost: float | None = None
    price_per_hour: float = 0.0
    min_workers: int = 0
    max_workers: int | None = None
    threads: int = 1
    candidate_s: float | None = None
    memory_bytes: int | None = None
    folds: int | None = None
    split: Literal["auto", "plain", "stratified", "groups", "time"] = "auto"
    groups: str = ""
    time: str = ""
    rows: int | None = None
    ensemble: bool = True
    seed: int = 0
    engine: str = "local"
    address: str = ""
    storage: str = ""
    script: str = ""
    script_args: tuple[str, ...] = ()
    objective: str = ""
    maximize: bool = False
    script_workers: int = 1
    strategy: str = "all-reduce"
    notify: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A part of the work on a candidate, after which it may be given up.

    Attributes:
        fold: Which one is trained and tested.
        share: Of the whole training: of its iterations, or of the rows. 1.0 is all of it.
    """

    fold: int
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RungScore:
    """What came of a rung.

    Attributes:
        rung: Which one.
        score: By the metric of the search, as it is; the metric says which direction is better.
        scores: By every metric of the domain.
        fit_s: Seconds of training.
        predict_s: Seconds of predicting the fold's test rows.
        num_rows: That were predicted.
    """

    rung: Rung
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)
    fit_s: float = 0.0
    predict_s: float = 0.0
    num_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is known of a candidate.

    Attributes:
        candidate: Which one.
        status: ``done`` on all folds; ``pruned``: given up, since it lagged behind; ``failed``;
            ``stopped`` by the end of the search.
        rungs: In order.
        score: Mean over the folds, if it is done; else None. A failed candidate has none.
        spread: Standard deviation over the folds; None for a single one.
        scores: Means by every metric of the domain.
        failure: What went wrong, in a line.
        traceback: Of that.
        busy_s: Seconds that a worker was busy with it.
        began_s: Since the search began.
        ended_s: Since the search began.
        worker: That did it; -1 for the search itself.
        peak_bytes: The most memory that its worker had beyond what it had when it began.
        size_bytes: Of the trained model of a fold, saved.
        predict_row_s: Seconds of predicting one row, in the batch of a fold.
        notes: For people.
    """

    candidate: Candidate
    status: Literal["done", "pruned", "failed", "stopped"]
    rungs: tuple[RungScore, ...] = ()
    score: float | None = None
    spread: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""
    traceback: str = ""
    busy_s: float = 0.0
    began_s: float = 0.0
    ended_s: float = 0.0
    worker: int = -1
    peak_bytes: int = 0
    size_bytes: int = 0
    predict_row_s: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkerBill:
    """A worker from when it was acquired to when it was released.

    Attributes:
        worker: Its number.
        host: Where it was.
        acquired_s: Since the search began.
        released_s: Since the search began.
        busy_s: Of that time.
        num_candidates: That it worked on.
        ended: Why: ``released``, ``died``, ``killed``.
    """

    worker: int
    host: str = ""
    acquired_s: float = 0.0
    released_s: float = 0.0
    busy_s: float = 0.0
    num_candidates: int = 0
    ended: str = "released"

    @property
    def paid_s(self) -> float:
        """Seconds that are paid for."""
        return self.released_s - self.acquired_s


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a search has cost.

    Attributes:
        workers: Each one that was acquired.
        price_per_hour: Of a worker.
        busy_s: Seconds in which workers worked on candidates.
        paid_s: Seconds in which workers were held.
        cost: Of these.
    """

    workers: tuple[WorkerBill, ...] = ()
    price_per_hour: float = 0.0
    busy_s: float = 0.0
    paid_s: float = 0.0
    cost: float = 0.0

    @property
    def most_at_once(self) -> int:
        """Workers that were held at the same time, at most."""
        begins = [one.acquired_s for one in self.workers]
        held = [
            sum(one.acquired_s <= at < one.released_s for one in self.workers) for at in begins
        ]
        return max(held, default=0)


@dataclass(frozen=True, kw_only=True)
class FoundModel:
    """The best model, trained on all rows and saved.

    Attributes:
        folder: Where it lies, relative to the search's folder.
        candidate: What it is.
        score: Foretold by cross-validation; None if unknown.
        test_score: On the table that nobody had seen; None if there is none.
        test_scores: By every metric.
        size_bytes: Of its files.
        predict_row_s: Seconds of predicting one row, in a batch.
    """

    folder: str
    candidate: Candidate
    score: float | None = None
    test_score: float | None = None
    test_scores: Mapping[str, float] = field(default_factory=dict)
    size_bytes: int = 0
    predict_row_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """A search, as far as it has come.

    Attributes:
        request: What was asked.
        metric: By which candidates are ranked.
        higher_is_better: Of that metric.
        facts: Of the data; None where there are none.
        num_folds: Of cross-validation; 1 for a single split.
        split: How rows were shared out, for people.
        evaluations: All candidates, in the order of their numbers.
        best: The number of the best one; None if none is done.
        model: The best one, saved; None for scripts and functions, or if none is done.
        baseline: Score of the best constant answer, on the same folds; None where there is none.
        bill: What it has cost.
        took_s: Seconds, from the call to the end.
        ended: Why: ``trials``, ``time``, ``cost``, ``exhausted`` (nothing was left to try),
            ``interrupted``.
        environment: Machine and versions.
        command: The exact command that repeats it.
        notes: For people.
    """

    request: SearchRequest
    metric: str
    higher_is_better: bool = True
    facts: TableFacts | None = None
    num_folds: int = 1
    split: str = ""
    evaluations: tuple[Evaluation, ...] = ()
    best: int | None = None
    model: FoundModel | None = None
    baseline: float | None = None
    bill: Bill = field(default_factory=Bill)
    took_s: float = 0.0
    ended: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    notes: tuple[str, ...] = ()

    @property
    def leaderboard(self) -> tuple[Evaluation, ...]:
        """Those that are done, the best first; a failed or pruned one has no place in it."""
        done = [one for one in self.evaluations if one.score is not None]
        sign = -1.0 if self.higher_is_better else 1.0
        return tuple(sorted(done, key=lambda one: (sign * (one.score or 0.0), one.busy_s)))
