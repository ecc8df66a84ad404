"""A real Ray cluster of two nodes on this machine, for tests.

As root, each node has a network namespace of its own, and *beta* sees neither the test's files
nor reparto's sources; it is as good as another machine:

    alpha 198.18.7.1 ──veth── 198.18.7.2 beta
    head node, driver         a node that lacks what is `hidden`

Elsewhere both nodes are on the loopback interface, and share the disk.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests.patience import free_port

START_LIMIT_S = 180
ADDRESSES = {"alpha": "198.18.7.1", "beta": "198.18.7.2"}


class RayNodes:
    """Two nodes with one CPU each, named alpha (the head) and beta.

    A driver starts with `enter` before its command, `env` in its environment and `address`.

    Args:
        hidden: Folders that beta shall not see.
    """

    def __init__(self, hidden=()):
        self._name = f"rp{uuid.uuid4().hex[:6]}"
        self._hidden = [str(path) for path in hidden]
        self._folder = Path(tempfile.mkdtemp(prefix="rn", dir="/tmp"))  # sockets: short names
        self._nodes = {}
        self.env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.apart = os.geteuid() == 0 and self._make_network()
        if self.apart:
            self.address = f"{ADDRESSES['alpha']}:6379"
            self.enter = ("ip", "netns", "exec", f"{self._name}-alpha")
        else:
            self.address = f"127.0.0.1:{free_port()}"
            self.enter = ()

    def __enter__(self):
        try:
            head = ("--head", "--include-dashboard=false", f"--temp-dir={self._folder / 'ray'}")
            self._start("alpha", *head, f"--port={self.address.rpartition(':')[2]}")
            self._start("beta", f"--address={self.address}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self._nodes:
            self.kill(name)
        if self.apart:
            self._remove_network()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self, name):
        """Kill a node and all that runs on it."""
        pids = set(self.processes(name))
        if self.apart:  # also those whose title has overwritten their environment
            found = _ip("netns", "pids", f"{self._name}-{name}").stdout
            pids.update(map(int, found.split()))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._nodes[name].wait()

    def processes(self, name, having=""):
        """The processes that a node has started, by what is in their command line."""
        mark = self._mark(name).encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                marked = mark in (path / "environ").read_bytes().split(b"\0")
                if marked and having.encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found

    def _mark(self, name):
        return f"RAY_NODES_MARK={self._name}-{name}"

    def _start(self, name, *options):
        address = ADDRESSES[name] if self.apart else "127.0.0.1"
        command = [
            *(os.path.join(os.path.dirname(sys.executable), "ray"), "start", "--block"),
            *(f"--node-ip-address={address}", "--num-cpus=1", "--disable-usage-stats"),
            *("--object-store-memory=100000000", *options),
        ]
        mark, _, value = self._mark(name).partition("=")
        log = self._folder / f"{name}.log"
        with log.open("wb") as file:
            self._nodes[name] = subprocess.Popen(
                self._apart(name, command) if self.apart else command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd="/",
                # Ray's workers are nice to others; a test that is waited for is not.
                env={**os.environ, **self.env, mark: value, "RAY_worker_niceness": "0"},
                start_new_session=True,
            )
        until = time.monotonic() + START_LIMIT_S
        while "Ray runtime started" not in log.read_text():
            if self._nodes[name].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} did not start:\n{log.read_text()}")
            time.sleep(0.1)

    def _apart(self, name, command):
        hosts = self._folder / "hosts"
        names = {"localhost": "127.0.0.1", **ADDRESSES}
        hosts.write_text("".join(f"{address} {each}\n" for each, address in names.items()))
        within = f"hostname {name} && mount --bind {hosts} /etc/hosts && "
        for folder in [*self._hidden, self._folder] if name == "beta" else []:
            within += f"mount -t tmpfs tmpfs '{folder}' && "
        within += 'exec "$@"'
        enter = ("ip", "netns", "exec", f"{self._name}-{name}")
        isolate = ("unshare", "--mount", "--uts", "--propagation", "private")
        return [*enter, *isolate, "sh", "-c", within, name, *command]

    # ------------------------------------------------------------------------- the network

    def _make_network(self):
        spaces = [f"{self._name}-{name}" for name in ADDRESSES]
        ends = [f"{self._name}{letter}" for letter in "ab"]
        try:
            for space in spaces:
                _ip("netns", "add", space)
            peer = ("peer", "name", ends[1], "netns", spaces[1])
            _ip("link", "add", ends[0], "netns", spaces[0], "type", "veth", *peer)
            for space, end, address in zip(spaces, ends, ADDRESSES.values(), strict=True):
                _ip("-n", space, "address", "add", f"{address}/24", "dev", end)
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "link", "set", end, "up")
                _ip("-n", space, "route", "add", "default", "dev", end)
        except (OSError, subprocess.CalledProcessError):  # no rights, no kernel module
            self._remove_network()
            return False
        return True

    def _remove_network(self):
        for name in ADDRESSES:
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip("netns", "del", f"{self._name}-{name}")


def _ip(*args):
    return subprocess.run(["ip", *args], check=True, capture_output=True)
