"""Session: the connection to a Spark cluster, for as long as a search lasts.

this process ── pipes ──► a JVM, the driver ──► master ──► executors on workers, where data are
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reparto.errors import EngineError, MissingExtraError, RepartoError, UsageError

#: A master has to answer within this, and a worker has to take up work.
CONNECT_S, WORKERS_S = 5.0, 60.0
_PREFIXES = ("spark://", "local", "yarn", "k8s://")
_JAVA = "install Java 17 (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"


class Session:
    """A Spark session of our own.

    Args:
        address: Of the master: ``spark://host:7077``; ``local[2]`` for two threads of this
            machine.
        executor_bytes: Memory of each executor; None for what Spark's configuration says.

    Raises:
        UsageError: If the address cannot be, or there is a session in this process already.
        MissingExtraError: If pyspark is not installed.
        EngineError: If Java is missing, the master does not answer, or no worker takes up work.
    """

    def __init__(self, address: str, *, executor_bytes: int | None = None) -> None:
        try:
            with warnings.catch_warnings():
                # Pyspark imports it when a literal is made, and it has opinions on pandas.
                warnings.simplefilter("ignore")
                importlib.import_module("pyspark.testing.utils")
            from pyspark import SparkContext
        except ImportError as error:
            raise MissingExtraError("pyspark", "spark") from error
        check_address(address)
        if _java() is None:
            raise EngineError("Java is missing, and Spark runs on it", remedy=_JAVA)
        if SparkContext._active_spark_context is not None:
            raise UsageError(
                "this process has a Spark session already",
                remedy="stop it first: SparkContext.getOrCreate().stop()",
            )
        host = reached(address)
        self.address = address
        self._log = tempfile.TemporaryFile(prefix="reparto-spark-")  # noqa: SIM115
        self._gateway: Any = None
        self._context: Any = None
        try:
            self._start(host, executor_bytes)
            self._await_workers()
        except BaseException:
            self.close()
            raise

    def _start(self, host: str, executor_bytes: int | None) -> None:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        conf = SparkConf(loadDefaults=False)
        for name, value in _settings(self.address, host).items():
            conf.set(name, value)
        if executor_bytes:
            conf.set("spark.executor.memory", f"{max(512, executor_bytes >> 20)}m")
        with _signals_kept():
            try:
                # What a JVM has to say goes to a file: it is told if something goes wrong.
                streams = {"stdout": self._log, "stderr": self._log}
                self._gateway = launch_gateway(conf, streams)
                self._context = SparkContext(conf=conf, gateway=self._gateway)
            except (PySparkException, Py4JError) as error:
                raise EngineError(
                    f"Spark could not be started on {self.address}: {self._why(error)}",
                    remedy="look at the master's page and log; is its Spark "
                    f"{_version()}, as pyspark is here?",
                ) from error
        self._context.setLogLevel("ERROR")
        self.spark = SparkSession(self._context)
        self.spark.conf.set(
            "spark.sql.shuffle.partitions", max(4, 2 * self._context.defaultParallelism)
        )

    def _await_workers(self) -> None:
        """Without this a job that nobody takes up waits for ever."""
        if self.address.startswith("local"):
            return
        end = time.monotonic() + WORKERS_S
        known = self._context._jsc.sc()
        while known.getExecutorMemoryStatus().size() < 2:  # the driver is one of them
            if time.monotonic() > end:
                raise EngineError(
                    f"no worker of {self.address} has taken up work in {WORKERS_S:.0f} s",
                    remedy="its page shows whether workers have free cores and memory; "
                    "other applications may hold them",
                )
            time.sleep(0.05)

    def _why(self, error: Exception) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        marked = [line for line in lines if "Exception" in line or "rror" in line or "All mas" in
                  line]  # fmt: skip
        return marked[-1].strip() if marked else " ".join(str(error).split())[:300]

    @contextlib.contextmanager
    def jobs(self, group: str, pool: str = "search") -> Iterator[None]:
        """Jobs that this thread submits are of this group, by which they can be cancelled.

        Pools share the cluster fairly; within one, the first job comes first.
        """
        self._context.setJobGroup(group, f"reparto: {group}")
        self._context.setLocalProperty("spark.scheduler.pool", pool)
        try:
            yield
        finally:
            for name in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
                self._context.setLocalProperty(name, None)

    def cancel(self, group: str) -> None:
        """End the jobs of a group, and those that a thread would begin for it."""
        if self._context is not None:
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(group)

    @property
    def host(self) -> str:
        """Where jobs run, for people."""
        return self.address

    @property
    def parallelism(self) -> int:
        """Tasks that the cluster runs at once."""
        return int(self._context.defaultParallelism)

    def close(self) -> None:
        """End the session, and its JVM. Can be called twice."""
        context, self._context = self._context, None
        if context is not None:
            context.stop()
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            _end(gateway)
        self._log.close()


def check_address(address: str) -> None:
    """Refuse what is no address of a master.

    Raises:
        UsageError: Says what one looks like.
    """
    if not address.startswith(_PREFIXES):
        what = f"{address} is no address of a Spark master" if address else "no Spark master named"
        raise UsageError(
            what, remedy="--address spark://host:7077, or local[2] for threads of this machine"
        )


def reached(address: str) -> str:
    """Our own address, as the master sees it; empty where there is none to connect to.

    Raises:
        EngineError: If no master answers within seconds; Spark itself would try for a minute.
        UsageError: If it is not written as ``spark://host:port``.
    """
    if not address.startswith("spark://"):
        return "127.0.0.1" if address.startswith("local") else ""
    tried = []
    for place in address.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(
                f"{address} is no address of a Spark master", remedy="--address spark://host:7077"
            )
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as link:
                return str(link.getsockname()[0])
        except OSError as error:
            tried.append(f"{place}: {error.strerror or error}")
    raise EngineError(
        f"the Spark master does not answer ({'; '.join(tried)})",
        remedy="is it running, and its port open? start one with "
        "spark-class org.apache.spark.deploy.master.Master",
    )


def _settings(address: str, host: str) -> dict[str, str]:
    found = {
        "spark.master": address,
        "spark.app.name": "reparto search",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.log.level": "ERROR",
        "spark.sql.adaptive.enabled": "true",
        # Closures are not needed here, and a search has thousands of short jobs.
        "spark.cleaner.periodicGC.interval": "10min",
    }
    if host:
        found["spark.driver.host"] = host
        found["spark.driver.bindAddress"] = host if host.startswith("127.") else "0.0.0.0"
    return found


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def _version() -> str:
    from importlib.metadata import version

    return version("pyspark")


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Spark takes Ctrl-C for itself; here it ends a search with the best so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(gateway: Any) -> None:
    """End the JVM, which pyspark would keep until this process ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway.shutdown()
    process = gateway.proc
    if process is not None:
        process.stdin.close()  # the JVM ends by itself when this pipe does
        try:
            process.wait(20)
        except Exception:  # pragma: no cover
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def cause_of(error: BaseException) -> str:
    """What a failure of Spark comes down to, in a line: the innermost message it has."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by")]
    found = causes[-1] if causes else next(
        (line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0]
    )  # fmt: skip
    found = found.removeprefix("java.lang.")
    return found.replace("requirement failed: ", "")


def told(error: BaseException, path: str = "") -> RepartoError | None:
    """What an error of Spark means to a user; None if it means nothing in particular."""
    text = str(error)
    if "PATH_NOT_FOUND" in text or "Path does not exist" in text:
        return UsageError(f"there is no {path}", remedy="name a path that the cluster can see")
    gone = ("FileNotFoundException", "FILE_NOT_EXIST", "FAILED_READ_FILE.FILE_NOT_EXIST")
    if any(word in text for word in gone):
        return UsageError(
            f"{path} is seen here, and not by the workers of the cluster",
            remedy="put it where all machines see it: a shared folder, hdfs://, s3a://",
        )
    if "UNABLE_TO_INFER_SCHEMA" in text:
        return UsageError(f"{path} holds no data", remedy="name one that does")
    return None
