"""Raw data frames of files that the cluster reads: Parquet, CSV, libsvm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reparto.errors import UsageError
from reparto.search._tables._dialect import BLANKS, sniff

Frame = Any  # pyspark.sql.DataFrame: pyspark is imported on use, and follows no imports in mypy

#: Lines that are looked at to know a file's form.
NUM_LINES = 200
_BY_NAME = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".libsvm": "libsvm", ".svm": "libsvm", ".svmlight": "libsvm",
}  # fmt: skip
_ELSEWHERE = {".arff": "ARFF", ".npy": "NumPy", ".npz": "NumPy"}
_LIBSVM = re.compile(r"[-+.\deE]+(\s+\d+:\S+)+\s*(#.*)?$")


@dataclass(frozen=True)
class Raw:
    """What Spark reads, before anybody knows what it means.

    Attributes:
        frame: Its rows. Of a CSV all columns are text; of libsvm they are ``label``, ``features``.
        format: ``csv``, ``parquet``, ``libsvm``.
        names: Of the columns, as the file has them; the frame calls them ``r0``, ``r1``, …
        notes: What was inferred, for people.
    """

    frame: Frame
    format: str
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_raw(spark: Any, path: str, *, target: str = "", like: Raw | None = None) -> Raw:
    """Let Spark read a path.

    Args:
        spark: The session.
        path: Of a file or a folder of them; a scheme such as ``hdfs://`` is the cluster's.
        target: A column that there should be; tells a header from a first row.
        like: Data of the same form, already read.

    Raises:
        UsageError: If it is of no such form.
    """
    place = _place(path)
    kind = _kind(spark, path, place)
    if kind == "libsvm":
        return _libsvm(spark, place, like)
    if kind == "parquet":
        frame = spark.read.parquet(place)
        names = tuple(frame.columns)
        return Raw(frame.toDF(*_numbered(names)), "parquet", names)
    return _csv(spark, path, place, target)


def _place(path: str) -> str:
    """A local path is one also where the cluster's own default is another file system."""
    if re.match(r"[a-z][a-z0-9+.-]*:/", path, re.IGNORECASE):
        return path
    local = Path(path)
    return local.absolute().as_uri() if local.exists() else path


def _kind(spark: Any, path: str, place: str) -> str:
    name = path.rstrip("/").lower()
    name = re.sub(r"\.(gz|bz2|zst|snappy)$", "", name)
    suffix = "." + name.rpartition(".")[2] if "." in name.rpartition("/")[2] else ""
    if suffix in _ELSEWHERE:
        raise UsageError(
            f"Spark does not read {_ELSEWHERE[suffix]} ({path})",
            remedy="leave --engine spark out, or save it as Parquet, CSV or libsvm",
        )
    if suffix in _BY_NAME:
        return _BY_NAME[suffix]
    if Path(path).is_dir() and any(Path(path).glob("*.parquet")):
        return "parquet"
    lines = _lines(spark, place, path)
    if lines[0].startswith("PAR1"):
        return "parquet"
    return "libsvm" if all(_LIBSVM.match(line) for line in lines[:20]) else "csv"


def _lines(spark: Any, place: str, path: str) -> list[str]:
    found = [row[0] for row in spark.read.text(place).limit(NUM_LINES).collect()]
    found = [line for line in found if line.strip()]
    if not found:
        raise UsageError(f"{path} is empty", remedy="name a file that holds rows")
    return found


def _libsvm(spark: Any, place: str, like: Raw | None) -> Raw:
    reader = spark.read.format("libsvm")
    if like is not None:
        reader = reader.option("numFeatures", len(like.names))
    frame = reader.load(place)
    size = int(frame.schema["features"].metadata.get("numFeatures", 0)) or (
        len(like.names) if like is not None else _num_features(frame)
    )
    return Raw(frame, "libsvm", tuple(f"c{place}" for place in range(1, size + 1)))


def _num_features(frame: Frame) -> int:
    first = frame.select("features").head()
    return 0 if first is None else int(first[0].size)


def _csv(spark: Any, path: str, place: str, target: str) -> Raw:
    sample = "\n".join(_lines(spark, place, path)) + "\n"
    dialect = sniff(sample, (target,) if target else ())
    dialect = dialect if dialect.names else sniff(sample)
    is_above = dialect.num_skipped or (dialect.names and not dialect.has_names)
    if is_above or dialect.delimiter == BLANKS:
        what = "lines above its rows" if is_above else "columns parted by blanks"
        raise UsageError(
            f"{path} has {what}, which Spark does not read",
            remedy="save it as Parquet, or as CSV with commas and a first line of names",
        )
    has_names = bool(dialect.names)
    names = dialect.names or tuple(f"c{i}" for i in range(dialect.width))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{path} has several columns {twice[0]}", remedy="name them apart")
    schema = ", ".join(f"`{name}` string" for name in _numbered(names))
    frame = spark.read.csv(
        place, schema=schema, sep=dialect.delimiter, header=has_names, quote=dialect.quote,
        escape=dialect.quote, ignoreLeadingWhiteSpace=True, ignoreTrailingWhiteSpace=True,
        enforceSchema=True,
    )  # fmt: skip
    if dialect.decimal == ",":
        frame = _with_points(frame)
    return Raw(frame, "csv", names, (dialect.told,))


def _with_points(frame: Frame) -> Frame:
    """Fractions with a point, which is what Spark reads."""
    from pyspark.sql import functions as f

    return frame.select(
        *[
            f.when(f.col(name).rlike(r"^\s*[-+]?\d*,\d+\s*$"), f.translate(name, ",", "."))
            .otherwise(f.col(name))
            .alias(name)
            for name in frame.columns
        ]
    )


def _numbered(names: Sequence[str]) -> list[str]:
    """Names without dots, quotes and capitals, on which Spark has opinions."""
    return [f"r{place}" for place in range(len(names))]
