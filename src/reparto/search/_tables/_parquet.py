"""Parquet: columns whose types are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from reparto.errors import UsageError
from reparto.search._tables._source import Batch, Source, shortened, unique_names
from reparto.search._tables._text import imported

#: A chunk has so many values.
_VALUES = 4 << 20


class ParquetSource(Source):
    """A Parquet file.

    Raises:
        UsageError: If it is none, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        pyarrow = imported()
        import pyarrow.parquet as parquet

        try:
            self._file = parquet.ParquetFile(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(path, error) from error
        notes = [f"read as Parquet: {self._file.metadata.num_rows} rows"]
        self._own = self._file.schema_arrow.names
        names = unique_names(list(self._own), notes)
        super().__init__(path, "parquet", names, notes=notes)
        self._wanted: list[str] | None = None

    def want(self, columns: Mapping[str, bool]) -> None:
        """Read these columns only."""
        self._wanted = [name for name in self.names if name in columns]

    def chunks(self) -> Iterator[Batch]:
        """All rows, in order."""
        pyarrow = imported()
        rows = max(1000, _VALUES // max(1, len(self.names)))
        wanted = self._wanted if self.names == tuple(self._own) else None
        try:
            for batch in self._file.iter_batches(batch_size=rows, columns=wanted):
                yield batch if wanted is not None else batch.rename_columns(list(self.names))
        except (pyarrow.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from error


def _damaged(path: Path, error: Exception) -> UsageError:
    return UsageError(
        f"{path} cannot be read as Parquet: {shortened(str(error), 150)}",
        remedy="it is damaged, or was not copied as a whole: get it again",
    )
