"""Candidates are kept as they end, in SQLite and in PostgreSQL."""

import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from reparto.errors import MissingExtraError, UsageError
from reparto.search._store import Store
from reparto.spec import (
    Bill,
    Candidate,
    Evaluation,
    Rung,
    RungScore,
    SearchColumn,
    SearchRequest,
    TableFacts,
    WorkerBill,
)

pytest.importorskip("sqlalchemy")

REQUEST = SearchRequest(
    data="flowers.csv",
    target="kind",
    techniques=("random-forest", "linear-svm"),
    spaces={"mlp": {"layers": ((4, 5), (6,)), "maxIter": (10, 20)}},
    candidates=(Candidate(number=2, technique="mlp", settings={"layers": (4, 5)}),),
    time_s=60.0,
)
FACTS = TableFacts(
    path="flowers.csv",
    num_rows=150,
    columns=(SearchColumn(name="a", kind="category", levels=("é", "x\x00y")),),
    classes=("no", "yes"),
    domain="binary",
)


def evaluation(number=0, **fields):
    settings = {"layers": (4, (5, 6)), "stepSize": 0.1, "isSet": True, "none": None}
    score = RungScore(rung=Rung(fold=0, share=0.3), score=0.1 + 0.2, scores={"f1": 1 / 3})
    plain = {"status": "done", "score": 0.75, "rungs": (score,), "notes": ("one", "zwö")}
    candidate = Candidate(number=number, technique="mlp", settings=settings)
    return Evaluation(candidate=candidate, **{**plain, **fields})


@pytest.fixture
def store(storage, tmp_path):
    store = Store.open(storage, tmp_path / "out")
    yield store
    store.close()


def test_a_search_is_found_again_as_it_was(storage, tmp_path):
    first = Store.open(storage, tmp_path)
    first.begin(REQUEST, FACTS)
    bill = Bill(workers=(WorkerBill(worker=0, host="here", released_s=3.5),), paid_s=3.5)
    first.add(evaluation(1, status="failed", score=None, traceback="Traceback\x00…"))
    first.add(evaluation(0))
    first.progress(12.5, bill)
    assert first.trouble == ""
    first.close()

    again = Store.open(storage, tmp_path)
    kept = again.kept()
    again.close()
    assert (kept.request, kept.facts) == (REQUEST, FACTS)
    assert (kept.used_s, kept.bill) == (12.5, bill)
    failed = evaluation(1, status="failed", score=None, traceback="Traceback\x00…")
    assert kept.evaluations == (evaluation(0), failed)


def test_the_folder_remembers_its_storage(storage, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "p@ss/wörd?")
    first = Store.open(storage, tmp_path)
    first.begin(REQUEST, None)
    first.close()
    again = Store.open("", tmp_path)
    assert (again.kept().facts, again.id, again.shown) == (None, first.id, first.shown)
    again.close()


def test_nothing_is_kept_before_it_begins(store):
    assert store.kept() is None


def test_to_begin_anew_forgets_the_search_before_and_no_other_one(storage, tmp_path):
    for name in ("one", "two"):
        store = Store.open(storage, tmp_path / name)
        store.begin(REQUEST, FACTS)
        store.add(evaluation(7))
        store.close()
    store = Store.open(storage, tmp_path / "one")
    store.begin(SearchRequest(data="other.csv"), FACTS)
    assert (store.kept().request.data, store.kept().evaluations) == ("other.csv", ())
    store.close()
    other = Store.open(storage, tmp_path / "two")
    assert [one.candidate.number for one in other.kept().evaluations] == [7]
    other.close()


def test_of_two_evaluations_of_a_candidate_the_later_one_counts(store):
    store.begin(REQUEST, FACTS)
    store.add(evaluation(0, status="stopped", score=None))
    store.add(evaluation(0))
    assert store.kept().evaluations == (evaluation(0),)


def test_numbers_of_numpy_and_no_numbers_are_kept(store):
    store.begin(REQUEST, FACTS)
    odd = Candidate(
        number=0,
        technique="mlp",
        settings={"a": np.int64(3), "b": np.float64(0.5), "c": np.bool_(True), "d": np.arange(2)},
    )
    score = RungScore(rung=Rung(fold=0), score=math.nan, scores={"r2": -math.inf})
    store.add(Evaluation(candidate=odd, status="failed", rungs=(score,)))
    (found,) = store.kept().evaluations
    assert found.candidate.settings == {"a": 3, "b": 0.5, "c": True, "d": (0, 1)}
    assert math.isnan(found.rungs[0].score) and found.rungs[0].scores == {"r2": -math.inf}


def test_people_can_look_with_sql(store):
    store.begin(REQUEST, FACTS)
    store.add(evaluation(3))
    query = "SELECT number, technique, status, score FROM reparto_search_evaluation"
    with store._database.writing() as connection:
        found = connection.exec_driver_sql(query).all()
    assert found == [(3, "mlp", "done", 0.75)]


def test_a_newer_schema_is_refused(store, storage, tmp_path):
    from reparto.search._database import SCHEMA, VERSION

    with store._database.writing() as connection:
        connection.execute(SCHEMA.update().values(version=VERSION + 1))
    with pytest.raises(UsageError, match="written by a newer reparto"):
        Store.open(storage, tmp_path / "other")


def test_tables_of_our_names_that_are_others_are_refused(store, storage, tmp_path):
    from reparto.search._database import EVALUATION

    with store._database.writing() as connection:
        EVALUATION.drop(connection)
    with pytest.raises(UsageError, match="not those of a search"):
        Store.open(storage, tmp_path / "other")


def test_what_another_version_kept_is_told(store):
    from reparto.search._database import SEARCH

    store.begin(REQUEST, FACTS)
    with store._database.writing() as connection:
        connection.execute(SEARCH.update().values(request='{"speed": 3}'))
    with pytest.raises(UsageError, match=r"cannot be read .*speed"):
        store.kept()


KILLED = """
import os, sys
from pathlib import Path
from reparto.search._store import Store
from reparto.spec import Candidate, Evaluation, SearchRequest
store = Store.open(sys.argv[1], Path(sys.argv[2]))
store.begin(SearchRequest(), None)
for number in range(10_000):
    store.add(Evaluation(candidate=Candidate(number=number, technique="t"), status="done"))
    print(number, flush=True)
"""


def test_a_process_that_is_killed_loses_nothing_that_was_told(storage, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, storage, tmp_path], stdout=subprocess.PIPE, text=True
    )
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    told = 19 + len([line for line in process.stdout.read().splitlines() if line])
    process.wait()
    store = Store.open(storage, tmp_path)
    numbers = [one.candidate.number for one in store.kept().evaluations]
    store.add(evaluation(20_000))
    assert store.trouble == ""
    store.close()
    assert numbers in (list(range(told + 1)), list(range(told + 2)))  # told after it is kept


HOLD = """
import sys
from pathlib import Path
from reparto.search._store import locked
lock = locked(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_two_searches_cannot_use_one_folder(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=-1, stdout=-1, text=True
    )
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="another search uses this folder"):
        Store.open("", tmp_path)
    other.communicate()
    Store.open("", tmp_path).close()


def test_a_file_in_the_folder_is_the_default_and_may_move_with_it(tmp_path):
    store = Store.open("", tmp_path / "here")
    store.begin(REQUEST, FACTS)
    store.close()
    assert (tmp_path / "here" / "search.db").exists()
    (tmp_path / "here").rename(tmp_path / "there")
    store = Store.open("", tmp_path / "there")
    assert store.kept().request.data == "flowers.csv"
    store.close()


def test_a_damaged_memory_of_the_folder_is_told(tmp_path):
    (tmp_path / "search-id.json").write_text('{"id": ')
    with pytest.raises(UsageError, match=r"search-id\.json: cannot be read"):
        Store.open("", tmp_path)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "search.db").write_text("number,score\n" * 100)
    with pytest.raises(UsageError, match="not a database"):
        Store.open("", tmp_path)


def test_a_database_of_something_else_is_refused(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "search.db") as connection:
        connection.execute("CREATE TABLE friends (name TEXT)")
    connection.close()
    with pytest.raises(UsageError, match="a database of something else, with the table friends"):
        Store.open("", tmp_path)


def test_a_locked_file_is_told(tmp_path, monkeypatch):
    import sqlite3

    from reparto.search import _database

    monkeypatch.setattr(_database, "_OPEN_MS", 50)
    other = sqlite3.connect(tmp_path / "search.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UsageError, match="held by another process"):
        Store.open("", tmp_path)
    other.close()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Not a directory"):
        Store.open("", tmp_path / "file" / "out")
    with pytest.raises(UsageError, match="Not a directory"):
        Store.open(f"sqlite:///{tmp_path}/file/out/x.db", tmp_path)


def test_what_cannot_be_written_now_is_written_later(tmp_path, monkeypatch):
    import sqlite3

    from reparto.search import _database

    monkeypatch.setattr(_database, "_WRITE_MS", 10)
    store = Store.open("", tmp_path)
    now = [0.0]
    store._clock = lambda: now[0]
    store.begin(REQUEST, FACTS)
    other = sqlite3.connect(tmp_path / "search.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.add(evaluation(0))
    assert "held by another process" in store.trouble
    other.execute("ROLLBACK")
    store.add(evaluation(1))  # too soon to try again
    assert store.trouble and not store.kept().evaluations
    now[0] = 11.0
    store.progress(5.0, Bill())
    assert store.trouble == ""
    assert (store.kept().used_s, len(store.kept().evaluations)) == (5.0, 2)
    store.close()
    other.close()


@pytest.mark.xdist_group("pg")
def test_a_server_that_is_started_again_is_written_to_again(cluster, tmp_path):
    store = Store.open(cluster.url(cluster.new_database()), tmp_path)
    store.begin(REQUEST, FACTS)
    cluster.stop()
    try:
        store.add(evaluation(0))
        assert store.trouble
    finally:
        cluster.start()
    store.close()  # writes what is left
    store = Store.open(store._database.storage.url, tmp_path)
    assert store.kept().evaluations == (evaluation(0),)
    store.close()


@pytest.mark.xdist_group("pg")
@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres"])
def test_every_spelling_of_postgresql_is_taken(cluster, tmp_path, scheme):
    url = cluster.url("postgres", scheme=scheme)
    Store.open(url, tmp_path).close()


@pytest.mark.xdist_group("pg")
def test_a_password_is_kept_nowhere(cluster, tmp_path):
    url = cluster.url(cluster.new_database())
    store = Store.open(url, tmp_path)
    store.begin(SearchRequest(storage=url), None)
    kept = store.kept().request.storage
    store.close()
    told = json.loads((tmp_path / "search-id.json").read_text())["storage"]
    for text in (kept, told, store.shown):
        assert "rd" not in text and "reparto@" in text


@pytest.mark.xdist_group("pg")
@pytest.mark.parametrize("database, password", [("postgres", "sesame-open"), ("nowhere", None)])
def test_a_server_that_refuses_is_told_without_the_password(cluster, tmp_path, database, password):
    given = {} if password is None else {"password": password}
    with pytest.raises(UsageError) as caught:
        Store.open(cluster.url(database, **given), tmp_path)
    told = str(caught.value)
    assert "authentication failed" in told or '"nowhere" does not exist' in told
    assert "sesame" not in told and "rd%3F" not in told and "wörd" not in told
    assert caught.value.__cause__ is None


def test_a_server_that_is_not_there_is_told(tmp_path):
    pytest.importorskip("psycopg")
    url = f"postgresql://me:sesame@/x?host={tmp_path}"
    with pytest.raises(UsageError, match="No such file or directory") as caught:
        Store.open(url, tmp_path)
    assert "sesame" not in str(caught.value)


def test_without_psycopg_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"reparto\[postgres\]"):
        Store.open("postgresql://me@/x", tmp_path)


def test_a_store_lets_go_of_its_folder_and_can_be_closed_twice(tmp_path):
    store = Store.open("", tmp_path)
    store.close()
    store.close()
    open_files = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    assert not any(path.startswith(str(tmp_path)) for path in open_files)
