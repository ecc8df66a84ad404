"""A standalone master of Spark and its workers, on this machine, while tests need them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

_LIMIT_S = 60


def reason_to_skip():
    """Why there can be no cluster here; empty if there can."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed (extra `spark`)"
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        return "Java is not installed (Debian: apt-get install openjdk-17-jre-headless)"
    return ""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """A master, and workers with a core and a gigabyte each.

    Attributes:
        address: Of the master.
    """

    def __init__(self, num_workers=2):
        import pyspark

        self._home = Path(pyspark.__file__).parent
        self.folder = Path(tempfile.mkdtemp(prefix="spark-"))
        self._processes = []
        port = free_port()
        self.address = f"spark://127.0.0.1:{port}"
        places = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._start("master.Master", [*places, "--port", str(port)])
        # A worker looks for its master at once, and then again after seconds.
        _wait_for(lambda: _answers(port), "the master does not listen")
        for number in range(num_workers):
            own = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / str(number))]
            self._start("worker.Worker", [*places, "--port", "0", *own, self.address])
        log = self.folder / "master.Master.0.log"
        _wait_for(
            lambda: log.read_text().count("Registering worker") >= num_workers,
            "workers do not find the master",
        )

    def _start(self, name, words):
        log = self.folder / f"{name}.{len(self._processes)}.log"
        env = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(self._home),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with log.open("w") as out:
            process = subprocess.Popen(
                [self._home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *words],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
            )
        self._processes.append(process)

    def close(self):
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _wait_for(is_so, otherwise):
    end = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(otherwise)
        time.sleep(0.1)
