"""Shared by the tests of tables: a file of these contents, read."""

import pytest

from reparto.search._tables import read_table
from reparto.spec import SearchRequest


@pytest.fixture
def file(tmp_path):
    """Makes a file of text or bytes, and gives its path."""

    def make(content, name="data.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return make


@pytest.fixture
def read(file):
    """Reads a table of these contents."""

    def read_it(content, name="data.csv", encoding="utf-8", **request):
        path = file(content, name, encoding)
        return read_table(SearchRequest(data=str(path), **request))

    return read_it
