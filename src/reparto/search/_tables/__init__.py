"""Data sets read from files: `read_table`, and `read_rows` for more rows of the same form."""

from reparto.search._tables._read import read_rows, read_table
from reparto.search._tables._table import Table

__all__ = ["Table", "read_rows", "read_table"]
