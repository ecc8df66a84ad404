"""NumPy: a matrix in a .npy file, or X and y in a .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search import _memory
from reparto.search._tables._source import (
    Batch,
    Source,
    SparseChunk,
    SparseSource,
    listed,
    shortened,
    unique_names,
)
from reparto.search._tables._text import imported

_VALUES = 4 << 20
#: The arrays of a .npz file may take this part of the memory that is free.
_MOST_SHARE = 0.3
_X = ("x", "data", "features", "x_train", "train_x", "inputs")
_Y = ("y", "target", "targets", "labels", "label", "y_train", "train_y")
_NAMES = ("feature_names", "columns", "names")
_CSR = {"indices", "indptr", "data", "shape", "format"}


def open_numpy(path: Path) -> Source | SparseSource:
    """A file of NumPy's.

    Raises:
        UsageError: If there is no table in it.
    """
    found = _loaded(path)
    if isinstance(found, np.ndarray):
        return NumpySource(path, found, None, ())
    arrays = found
    if set(arrays) >= _CSR:
        return _sparse(path, arrays)
    by_name = {name.lower(): name for name in arrays}
    x_name = next((by_name[it] for it in _X if it in by_name), None)
    y_name = next((by_name[it] for it in _Y if it in by_name), None)
    if x_name is None:
        if len(arrays) != 1:
            raise UsageError(
                f"{path} holds the arrays {listed(list(arrays))}, and none is called X",
                remedy="np.savez(FILE, X=..., y=...)",
            )
        x_name = next(iter(arrays))
    names_name = next((by_name[it] for it in _NAMES if it in by_name), None)
    names = () if names_name is None else tuple(map(str, np.ravel(arrays[names_name]).tolist()))
    y = None if y_name is None else arrays[y_name]
    source = NumpySource(path, arrays[x_name], y, names)
    told = f"the array {x_name}" + (f", and {y_name} as the target" if y_name else "")
    rest = [it for it in arrays if it not in (x_name, y_name, names_name)]
    source.notes.insert(0, told + (f"; {listed(rest)} are not read" if rest else ""))
    return source


def _loaded(path: Path) -> Any:
    """One array that is mapped, or several by name.

    Raises:
        UsageError: If they cannot be read, or would not fit into memory.
    """
    try:
        _refuse_large(path)
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError) as error:
        told = str(error)
        if "pickle" in told or "Object arrays" in told or "Python objects" in told:
            raise UsageError(
                f"{path} holds Python objects: reading them would run what they hold",
                remedy="save the table as Parquet or CSV, or the array with dtype=float",
            ) from error
        raise UsageError(
            f"{path} cannot be read: {shortened(told, 150)}",
            remedy="it is damaged, or was not copied as a whole: get it again",
        ) from error


def _refuse_large(path: Path) -> None:
    """Refuse a packed file that does not fit: unlike a .npy file, it cannot be read in parts."""
    if path.suffix.lower() != ".npz":
        return
    with zipfile.ZipFile(path) as archive:
        size = sum(one.file_size for one in archive.infolist())
    free = _memory.free_bytes()
    if size > _MOST_SHARE * free:
        raise UsageError(
            f"{path} holds arrays of {size / 1e9:.3g} GB, and {free / 1e9:.3g} GB of memory are "
            "free",
            remedy="save X, with y as its last column, by np.save as .npy, which is read in parts",
        )


class NumpySource(Source):
    """Rows of a matrix, or of an array with named fields.

    Raises:
        UsageError: If it is no table.
    """

    def __init__(
        self, path: Path, x: NDArray[Any], y: NDArray[Any] | None, names: tuple[str, ...]
    ) -> None:
        notes: list[str] = []
        self._fields = x.dtype.names or ()
        if x.ndim == 1 and y is not None and not self._fields:
            x = x.reshape(-1, 1)
        elif x.ndim > 2:
            notes.append(f"each row is an array of {x.shape[1:]}: taken as a row of numbers")
            x = x.reshape(len(x), -1)
        if x.ndim != (1 if self._fields else 2):
            raise UsageError(
                f"{path} holds an array of {x.shape}, which has no columns",
                remedy="save rows by columns: np.save(FILE, array.reshape(rows, columns))",
            )
        if y is not None:
            if y.ndim == 2 and 1 in y.shape:
                y = y.reshape(-1)
            if y.ndim != 1 or len(y) != len(x):
                raise UsageError(
                    f"{path}: y is of {y.shape}, and X of {x.shape}",
                    remedy="one value of y for each row of X",
                )
        width = len(self._fields) or x.shape[1]
        if len(names) != width:
            names = self._fields or tuple(f"c{index}" for index in range(width))
        own = [*names, *(["y"] if y is not None else [])]
        super().__init__(path, "numpy", unique_names(own, notes), notes=notes)
        self.has_names = names != tuple(f"c{index}" for index in range(width))
        self.target = self.names[-1] if y is not None else ""
        self._x, self._y = x, y
        notes.append(f"read as NumPy: {len(x)} rows of {width} columns, {x.dtype}")
        self._wanted: set[str] | None = None

    def want(self, columns: Mapping[str, bool]) -> None:
        """Give these columns only."""
        self._wanted = set(columns)

    def chunks(self) -> Iterator[Batch]:
        """All rows, in order."""
        pyarrow = imported()
        step = max(1000, _VALUES // max(1, len(self.names)))
        names = [it for it in self.names if self._wanted is None or it in self._wanted]
        for start in range(0, max(1, len(self._x)), step):
            columns = []
            for place, name in enumerate(self.names):
                if name in names:
                    columns.append(pyarrow.array(self._column(place, start, start + step)))
            yield pyarrow.record_batch(columns, names=names)

    def _column(self, place: int, start: int, stop: int) -> Any:
        if self._y is not None and place == len(self.names) - 1:
            part = self._y[start:stop]
        elif self._fields:
            part = self._x[self._fields[place]][start:stop]
        else:
            part = self._x[start:stop, place]
        if part.dtype.kind == "f" and part.dtype.itemsize not in (4, 8):
            part = part.astype(np.float64)
        if part.dtype.kind in "US":
            return [_text(it) for it in part.tolist()]
        if part.dtype.kind == "c" or part.ndim > 1:
            raise UsageError(
                f"{self.path}: '{self.names[place]}' holds no single real numbers",
                remedy="save real and imaginary parts, or each part, as columns of their own",
            )
        return np.ascontiguousarray(part)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class _SparseNumpy(SparseSource):
    """A matrix that `scipy.sparse.save_npz` wrote; its target is one of its columns."""

    def __init__(self, path: Path, x: Any) -> None:
        super().__init__(path, "numpy", notes=[f"read as a sparse matrix of {x.shape}"])
        self._x = x

    def chunks(self) -> Iterator[SparseChunk]:
        yield SparseChunk(self._x)


def _sparse(path: Path, arrays: Mapping[str, NDArray[Any]]) -> SparseSource:
    from scipy import sparse

    kind = arrays["format"].item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr", "csc"):
        raise UsageError(f"{path} is a sparse matrix in {kind} form", remedy="save it as csr")
    made = sparse.csr_matrix if kind == "csr" else sparse.csc_matrix
    x = made(
        (arrays["data"], arrays["indices"], arrays["indptr"]),
        shape=tuple(int(it) for it in arrays["shape"]),
    ).tocsr()
    x.sum_duplicates()
    return _SparseNumpy(path, x)
