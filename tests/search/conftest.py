"""Shared by the tests of search: storages of each kind."""

import pytest

from tests.search.postgres import Cluster, programs


@pytest.fixture(scope="session")
def cluster():
    """A PostgreSQL that runs for these tests."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra `postgres`)")
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL's initdb is not installed (Debian: apt-get install postgresql)")
    cluster = Cluster(found)
    yield cluster
    cluster.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("pg"))])
def storage(request, tmp_path):
    """URL of a new database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kept/by us.db"
    cluster = request.getfixturevalue("cluster")
    return cluster.url(cluster.new_database())
