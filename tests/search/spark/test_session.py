"""What is told where there is no cluster, or it does not see the data."""

import os
import socket
import time

import pytest

from reparto.errors import EngineError, UsageError
from reparto.search._spark import _session as session_module
from reparto.search._spark import open_spark
from reparto.search._spark._session import Session, cause_of, check_address, reached, told
from reparto.spec import SearchRequest
from tests.search.spark.cluster import reason_to_skip
from tests.search.spark.conftest import GROUP


def test_an_address_is_asked_for():
    with pytest.raises(UsageError, match="no Spark master named"):
        check_address("")
    with pytest.raises(UsageError, match="ray://head is no address"):
        check_address("ray://head")
    with pytest.raises(UsageError, match="is no address"):
        reached("spark://nowhere")


def test_a_master_that_does_not_answer_is_told_of_in_seconds():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"spark://127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    with pytest.raises(EngineError, match="does not answer") as caught:
        reached(address)
    assert time.monotonic() - began < 10
    assert "is it running" in caught.value.remedy


def test_the_driver_is_where_the_master_sees_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"spark://127.0.0.1:{server.getsockname()[1]}"
        assert reached(address) == "127.0.0.1"
    assert reached("local[2]") == "127.0.0.1"


@pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())
def test_missing_java_is_told_of(monkeypatch):
    monkeypatch.setattr(session_module, "_java", lambda: None)
    with pytest.raises(EngineError, match="Java is missing") as caught:
        Session("local[1]")
    assert "openjdk" in caught.value.remedy


def test_of_a_failure_the_innermost_message_is_told():
    java = (
        "An error occurred while calling o1.fit.\n"
        ": org.apache.spark.SparkException: Job aborted\n\tat a.b(C.scala:1)\n"
        "Caused by: java.lang.IllegalArgumentException: requirement failed: Labels are bad\n"
        "\tat d.e(F.scala:2)\n"
    )
    assert cause_of(ValueError(java)) == "IllegalArgumentException: Labels are bad"
    assert cause_of(ValueError("An error\n: E: said\n\tat a")) == "E: said"
    assert cause_of(ValueError("plain")) == "plain"


def test_a_path_that_workers_do_not_see_is_told_apart_from_one_that_is_nowhere():
    gone = told(ValueError("Caused by: java.io.FileNotFoundException: /data/a.csv"), "a.csv")
    assert "not by the workers" in gone.message
    nowhere = told(ValueError("[PATH_NOT_FOUND] Path does not exist"), "a.csv")
    assert "there is no a.csv" in nowhere.message
    assert told(ValueError("else"), "a.csv") is None


@GROUP
def test_wrong_requests_are_refused_and_leave_no_session_behind(closed, table, tmp_path):
    one_class = tmp_path / "one.csv"
    one_class.write_text("a,b\n1,x\n2,x\n3,x\n")
    no_rows = tmp_path / "none.csv"
    no_rows.write_text("a,b\n")
    zero_based = tmp_path / "bad.libsvm"
    zero_based.write_text("1 0:1 1:2\n0 0:2 1:3\n")
    for words, request in (
        ("there is no /no/such.csv", {"data": "/no/such.csv"}),
        ("there is no column 'price'", {"data": str(table), "target": "price"}),
        ("b is the same in all rows", {"data": str(one_class)}),
        ("has no rows", {"data": str(no_rows)}),
        ("is no number", {"data": str(table), "target": "tall", "domain": "regression"}),
        ("indices should be", {"data": str(zero_based)}),
        ("does not read ARFF", {"data": "a.arff"}),
    ):
        with pytest.raises((UsageError, EngineError)) as caught:
            open_spark(SearchRequest(engine="spark", **request))
        assert words in str(caught.value), caught.value
    assert len(closed) == 7


@GROUP
def test_there_is_one_session_in_a_process_and_its_jvm_writes_to_a_file(session):
    with pytest.raises(UsageError, match="has a Spark session already"):
        Session("local[1]")
    for stream in (1, 2):
        own = os.stat(f"/proc/{session._gateway.proc.pid}/fd/{stream}")
        assert own.st_ino == os.fstat(session._log.fileno()).st_ino
