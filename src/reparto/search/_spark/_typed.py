"""The typed frame: what candidates see of a table on a cluster, all of it numbers.

row │ x0 x1 …  or  features │ label │ group │ time
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reparto.errors import UsageError
from reparto.search._rows import Rows
from reparto.search._spark._look import Seen, cell, class_of, number, seconds, word
from reparto.search._spark._read import Frame, Raw
from reparto.spec import SearchColumn, TableFacts

LABEL, ROW, FEATURES, GROUP, TIME = "label", "row", "features", "grp", "time"


def is_vector(facts: TableFacts) -> bool:
    """Whether rows are vectors already, as in a libsvm file, and not columns."""
    return facts.format == "libsvm"


def typed(raw: Raw, facts: TableFacts, seen: Sequence[Seen], *, with_target: bool = True) -> Frame:
    """Numbers of a raw frame: a category is the place of its level, null where it is missing.

    Args:
        raw: As it is read.
        facts: Of the table.
        seen: Of each column of the facts, then of the target; unused for vectors.
        with_target: Whether rows need one.
    """
    from pyspark.sql import functions as f

    frame = raw.frame.withColumn(ROW, f.monotonically_increasing_id())
    if is_vector(facts):
        frame = frame.withColumnRenamed("label", "told").select(ROW, FEATURES, "told")
        label = f.col("told")
        if facts.classes:
            label = _place_in(word(label, is_number=True), facts.classes)
        return _labelled(frame.withColumn(LABEL, label).drop("told"), facts, with_target)
    by_name = {one.name: one for one in seen}
    wanted = [f.col(ROW)]
    for place, column in enumerate(facts.columns):
        wanted.append(_value(by_name[column.name], column).alias(f"x{place}"))
    for option, name in ((facts.groups, GROUP), (facts.time, TIME)):
        if option in by_name:
            wanted.append(_other(by_name[option], name).alias(name))
    if facts.target and with_target:
        about = by_name[facts.target]
        if facts.classes:
            wanted.append(_place_in(class_of(about), facts.classes).alias(LABEL))
        else:
            own = SearchColumn(name=about.name, kind=about.kind)
            wanted.append(_value(about, own).alias(LABEL))
    return _labelled(frame.select(*wanted), facts, with_target)


def _labelled(frame: Frame, facts: TableFacts, with_target: bool) -> Frame:
    """Rows with a target, which says how many classes there are even where some are missing."""
    from pyspark.sql import functions as f

    if not facts.target or not with_target:
        return frame.drop(LABEL)
    frame = frame.where(f.col(LABEL).isNotNull())
    if not facts.classes:
        return frame
    kinds = {"ml_attr": {"type": "nominal", "name": LABEL, "vals": list(facts.classes)}}
    return frame.withColumn(LABEL, f.col(LABEL).alias(LABEL, metadata=kinds))


def _value(about: Seen, column: SearchColumn) -> Any:
    if column.kind == "category":
        return _place_in(class_of(about), column.levels)
    if column.kind == "date":
        return seconds(about.place, about.type)
    return number(about.place, about.type)


def _place_in(text: Any, levels: Sequence[str]) -> Any:
    """The place of a level; null for others."""
    from pyspark.sql import functions as f

    known = f.create_map(*[f.lit(it) for pair in zip(levels, range(len(levels)), strict=True)
                           for it in pair])  # fmt: skip
    return f.try_element_at(known, text).cast("double")


def _other(about: Seen, name: str) -> Any:
    if name == GROUP:
        return cell(about.place, about.type).cast("string")
    return seconds(about.place, about.type) if about.kind == "date" else number(
        about.place, about.type
    )  # fmt: skip


def rows_of(frame: Frame, facts: TableFacts) -> Rows:
    """Some rows of a typed frame, few of them, brought here, in order."""
    has_label = LABEL in frame.columns
    names = [FEATURES] if is_vector(facts) else [f"x{i}" for i in range(facts.num_columns)]
    wanted = [ROW, *names, *([LABEL] if has_label else [])]
    found = sorted(frame.select(*wanted).collect(), key=lambda row: int(row[0]))
    y = None
    if has_label:
        type_ = np.int32 if facts.classes else np.float64
        y = np.array([row[-1] for row in found], dtype=np.float64).astype(type_)
    if is_vector(facts):
        return Rows(_matrix([row[1] for row in found], facts), y)
    x = np.array(
        [[np.nan if it is None else it for it in row[1 : 1 + len(names)]] for row in found],
        dtype=np.float64,
    )
    return Rows(x.reshape(len(found), len(names)), y)


def _matrix(vectors: Sequence[Any], facts: TableFacts) -> Any:
    if not facts.is_sparse:
        return np.array([one.toArray() for one in vectors]).reshape(len(vectors), -1)
    from scipy.sparse import csr_matrix

    starts, places, values = [0], [], []
    for one in vectors:
        if not hasattr(one, "indices"):
            dense = one.toArray()
            kept = np.flatnonzero(dense)
            places.append(kept)
            values.append(dense[kept])
        else:
            places.append(one.indices)
            values.append(one.values)
        starts.append(starts[-1] + len(places[-1]))
    return csr_matrix(
        (np.concatenate(values), np.concatenate(places), starts),
        shape=(len(vectors), facts.num_columns),
    )


def refuse_strangers(frame: Frame, facts: TableFacts, path: str, num_rows: int) -> None:
    """Refuse a test table of which some rows have no class that is known.

    Raises:
        UsageError: If so.
    """
    known = int(frame.count())
    if known < num_rows:
        raise UsageError(
            f"{num_rows - known} of {num_rows} rows of {path} have no {facts.target} that the "
            "table knows",
            remedy="leave them out, or search with data that have all classes",
        )
