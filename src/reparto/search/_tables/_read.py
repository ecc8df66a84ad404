"""`read_table` and `read_rows`: a file to a table, and more rows of the same form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reparto.errors import UsageError
from reparto.search import _memory
from reparto.search._rows import Rows, Vector
from reparto.search._tables._dense import dense_rows, dense_table
from reparto.search._tables._source import ReadAgain, Source, SparseSource, listed
from reparto.search._tables._table import Table
from reparto.search._tables._text import is_readable_binary, open_text, settle_encoding
from reparto.spec import SearchRequest, TableFacts


def read_table(request: SearchRequest) -> Table:
    """Read the table of a request; all that is inferred and left out is told in its facts.

    Args:
        request: Its `data`, `target`, `domain`, `groups`, `time`, `rows` and `seed` are read.

    Returns:
        The table, of which as many rows are drawn as fit, or as the request says.

    Raises:
        UsageError: If there is no table that can be learned from; says where, and what to do.
        MissingExtraError: If pyarrow is not installed.

    Example:
        >>> read_table(SearchRequest(data="wine.csv", target="quality")).facts.domain
        'multiclass'
    """
    source = open_source(Path(request.data))
    if isinstance(source, SparseSource):
        from reparto.search._tables._sparse import sparse_table

        return sparse_table(source, request)
    return dense_table(source, request)


def read_rows(path: str | Path, facts: TableFacts, *, with_target: bool = True) -> Rows:
    """Read more rows of a table that is known, in the same form.

    Columns are found by their names, in any order; further ones are not looked at. A level that
    was not known is as if it was missing.

    Args:
        path: Of the file, of any format.
        facts: Of the table that is known.
        with_target: Whether the target is read too; else it need not be there.

    Raises:
        UsageError: If a column is missing, or with the target asked for, a row has none.
    """
    path = Path(path)
    with_target = with_target and bool(facts.target)
    source = open_source(path, (*(it.name for it in facts.columns), facts.target))
    if isinstance(source, SparseSource):
        from reparto.search._tables._sparse import sparse_rows

        return sparse_rows(source, facts, with_target=with_target)
    _find_columns(source, facts, with_target)
    for _ in range(len(source.names) + 20):
        try:
            return _dense_rows(source, facts, with_target)
        except ReadAgain as why:
            last = why.__cause__
    raise UsageError(f"{path}: {last}", remedy="save it anew, as CSV or Parquet")


def open_source(path: Path, known: tuple[str, ...] = ()) -> Source | SparseSource:
    """A file, read as what it is: its first bytes and lines say so, not its name.

    Raises:
        UsageError: If it is nothing that can be read.
    """
    from reparto.search._tables._arff import is_arff, open_arff
    from reparto.search._tables._csv import CsvSource
    from reparto.search._tables._libsvm import LibsvmSource, is_libsvm
    from reparto.search._tables._numpy import open_numpy
    from reparto.search._tables._parquet import ParquetSource

    text = open_text(path)
    if text.head.startswith(b"PAR1"):
        return ParquetSource(path)
    if is_readable_binary(text.head, path):
        return open_numpy(path)
    settle_encoding(text)
    if is_arff(text):
        return open_arff(text)
    if is_libsvm(text):
        return LibsvmSource(text)
    return CsvSource(text, known)


def _find_columns(source: Source, facts: TableFacts, with_target: bool) -> None:
    """Let the source give the columns that are needed, by the names that they have in the facts.

    Raises:
        UsageError: If one is missing.
    """
    # Numbers that are written in a form are read by it, not by how these few rows look.
    needed = {it.name: it.kind != "number" or bool(it.form) for it in facts.columns}
    if with_target:
        needed[facts.target] = facts.is_classification or bool(facts.target_form)
    if not source.has_names:
        _name_by_place(source, facts, with_target)
    lacking = [name for name in needed if name not in source.names]
    if lacking:
        raise UsageError(
            f"{source.path} lacks {len(lacking)} of {len(needed)} columns: {listed(lacking)}",
            remedy=f"it has {listed(list(source.names), 20)}",
        )
    source.want(needed)


def _name_by_place(source: Source, facts: TableFacts, with_target: bool) -> None:
    """Give columns without names those of the known table, whose target may be left out."""
    width, known = len(source.names), facts.num_columns_in_file
    bare = all(column.name.startswith("c") for column in facts.columns)
    if not known or not bare:
        return
    if width == known - 1 and not with_target and facts.target.lstrip("c").isdigit():
        place = int(facts.target.lstrip("c"))
        names = [f"c{index}" for index in range(known)]
        source.names = tuple(names[:place] + names[place + 1 :])
    elif width != known and facts.format == source.format:
        raise UsageError(
            f"{source.path} has {width} columns without names, and the table that is known has "
            f"{known}",
            remedy="give the same columns in the same order"
            + ("" if with_target else ", with or without the target"),
        )


def _dense_rows(source: Source, facts: TableFacts, with_target: bool) -> Rows:
    limit = int(0.5 * _memory.free_bytes())
    parts: list[Vector] = []
    answers: list[Vector] = []
    taken = 0
    for x, y in dense_rows(source, facts, with_target=with_target):
        taken += 2 * x.nbytes
        if taken > limit:
            raise UsageError(
                f"{source.path} does not fit into memory: {sum(len(it) for it in parts)} rows do",
                remedy="split the file, and read one part after another",
            )
        parts.append(x)
        if y is not None:
            answers.append(y)
    whole = _joined(parts, len(facts.columns))
    if facts.is_sparse:
        from scipy import sparse

        whole = sparse.csr_matrix(np.nan_to_num(whole, nan=0.0))
    return Rows(whole, target_of(answers, facts) if with_target else None)


def _joined(parts: Sequence[Vector], width: int) -> Vector:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty((0, width))


def target_of(parts: Sequence[Vector], facts: TableFacts) -> Vector:
    """Numbers of classes, or numbers."""
    whole = np.concatenate(parts) if parts else np.empty(0)
    return whole.astype(np.int32 if facts.is_classification else np.float64)
