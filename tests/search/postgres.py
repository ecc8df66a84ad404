"""A PostgreSQL of our own, for as long as tests need it; reached by a socket in its folder."""

import contextlib
import glob
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

USER, PASSWORD = "reparto", "p@ss/wörd?"
_LIMIT_S = 60


def programs():
    """The folder of initdb and postgres; None where there are none."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    newest = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    return Path(newest[-1]).parent if newest else None


class Cluster:
    """A server that is running.

    Attributes:
        folder: Where all of it lies.
    """

    def __init__(self, bin_folder):
        self._bin = bin_folder
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path is short
        # PostgreSQL refuses to run as root.
        self._as = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
        if self._as:
            shutil.chown(self.folder, **self._as)
        self._process = None
        self._initialize()
        self.start()
        self._count = 0

    def _initialize(self):
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        words = ["initdb", "-D", "data", "-U", USER, "-A", "scram-sha-256", "--pwfile", "password"]
        self._run([*words, "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"])

    def _run(self, words):
        subprocess.run(
            [self._bin / words[0], *words[1:]],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            check=True,
            capture_output=True,
            timeout=_LIMIT_S,
            **self._as,
        )

    def start(self):
        settings = ("listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off")
        words = [part for setting in settings for part in ("-c", setting)]
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", "data", *words],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **self._as,
        )
        begin = time.monotonic()
        while not self._answers():
            assert self._process.poll() is None, "PostgreSQL ended"
            assert time.monotonic() - begin < _LIMIT_S, "PostgreSQL does not answer"
            time.sleep(0.02)

    def stop(self):
        """At once, and without grace: as if it had crashed."""
        self._process.send_signal(3)
        self._process.wait(_LIMIT_S)

    def close(self):
        self.stop()
        shutil.rmtree(self.folder)

    def _answers(self):
        import psycopg

        with contextlib.suppress(psycopg.OperationalError), self.connected():
            return True
        return False

    def connected(self, database="postgres"):
        import psycopg

        return psycopg.connect(
            host=str(self.folder),
            dbname=database,
            user=USER,
            password=PASSWORD,
            autocommit=True,
        )

    def new_database(self):
        """Its name."""
        self._count += 1
        name = f"test{self._count}"
        with self.connected() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return name

    def url(self, database, scheme="postgresql", password=PASSWORD):
        login = f"{USER}:{quote(password, safe='')}@" if password else f"{USER}@"
        return f"{scheme}://{login}/{database}?host={self.folder}"
