"""Small tables for techniques, and rows that nobody can write to."""

import numpy as np

from reparto.search._rows import Rows
from reparto.spec import SearchColumn, TableFacts


def facts_of(x, domain, num_classes=0, categories=None, *, is_sparse=False):
    """Facts of such a table; `categories` says how many levels a column has."""
    columns = tuple(
        SearchColumn(
            name=f"c{place}",
            kind="category" if place in (categories or {}) else "number",
            levels=tuple(f"l{it}" for it in range((categories or {}).get(place, 0))),
        )
        for place in range(x.shape[1])
    )
    return TableFacts(
        num_rows=x.shape[0],
        columns=columns,
        target="" if domain == "clustering" else "y",
        domain=domain,
        classes=tuple(f"k{it}" for it in range(num_classes)),
        class_counts=(0,) * num_classes,
        is_sparse=is_sparse,
    )


def target_of(x, domain, random):
    """A target that the first columns tell much of."""
    signal = 2.0 * np.nan_to_num(x[:, 0]) - np.nan_to_num(x[:, 1])
    if domain == "clustering":
        return None, 0
    if domain == "regression":
        return 50.0 + 10.0 * signal + random.normal(size=len(x)), 0
    if domain == "binary":
        return (signal > 0).astype(np.int32), 2
    return np.digitize(signal, [-1.0, 1.0]).astype(np.int32), 3


def table(domain, *, num_rows=120, seed=0, dtype=np.float64, messy=False):
    """Facts and read-only rows; messy ones have what tables outside have."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(num_rows, 6)).astype(dtype)
    if domain == "clustering":
        x[: num_rows // 2] += 3.0
    y, num_classes = target_of(x, domain, random)
    categories = {}
    if messy:
        x[random.random(num_rows) < 0.2, 1] = np.nan
        x[:, 2] = 7.0
        x[:, 3] = np.nan
        x[:, 4] = random.integers(0, 5, num_rows)
        x[random.random(num_rows) < 0.1, 4] = np.nan
        x[:, 5] = np.exp(3.0 * x[:, 5])
        categories = {4: 7}
    return facts_of(x, domain, num_classes, categories), locked(x, y)


def sparse_table(domain, *, num_rows=120, num_columns=30, seed=0):
    """Facts and rows of which most entries are zero."""
    import scipy.sparse

    random = np.random.default_rng(seed)
    x = random.poisson(1.0, size=(num_rows, num_columns)) * (
        random.random((num_rows, num_columns)) < 0.3
    )
    x = x.astype(np.float32)
    if domain == "clustering":
        x[: num_rows // 2, 0] += 5.0
    y, num_classes = target_of(x - x.mean(axis=0), domain, random)
    facts = facts_of(x, domain, num_classes, is_sparse=True)
    matrix = scipy.sparse.csr_matrix(x)
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.setflags(write=False)
    return facts, Rows(matrix, y)


def locked(x, y=None):
    """Rows that cannot be written to, as in memory that workers share."""
    x.setflags(write=False)
    if y is not None:
        y.setflags(write=False)
    return Rows(x, y)
