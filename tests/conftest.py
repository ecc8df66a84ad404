"""Shared by the tests that run the command `reparto` as people do: in a process of its own."""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.preloaded import Forked, is_marked

#: Of a command: what does not end by itself hangs.
LIMIT_S = 200

TRAIN = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, f"{loss.item():.6f}")
"""


class Cli:
    """The command, in a folder of its own; all that it starts carries a mark."""

    def __init__(self, folder):
        self.folder = folder
        self.enter = ()  # a command that runs another one elsewhere
        self.mark = f"REPARTO_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self.mark.partition("=")
        cache = folder.with_name(folder.name + "-cache")
        self.env = {**os.environ, name: value, "XDG_CACHE_HOME": str(cache)}

    def write(self, text, name="train.py"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *args, **kwargs):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
        return subprocess.Popen(
            [*self.enter, sys.executable, "-m", "reparto", *map(str, args)],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            **pipes,
        )

    def run(self, *args):
        process = self.start(*args)
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def python(self, *args):
        """The same script by plain Python."""
        return subprocess.run(
            [sys.executable, *map(str, args)],
            cwd=self.folder,
            env=self.env,
            text=True,
            capture_output=True,
            timeout=LIMIT_S,
        )

    def running(self):
        """The processes that carry the mark."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._is_mine(path)
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:  # ended meanwhile
                continue
            if marked and state != "Z":
                found.append(int(path.name))
        return found

    def _is_mine(self, process):
        return self.mark.encode() in (process / "environ").read_bytes().split(b"\0")

    def seconds_until_gone(self, limit_s=60.0):
        """How long it takes until nothing runs that carries the mark."""
        begin = time.monotonic()
        while self.running():
            assert time.monotonic() - begin < limit_s, self.running()
            time.sleep(0.02)
        return time.monotonic() - begin


class ForkedCli(Cli):
    """The command, as a fork of a Python that has imported torch: see `tests.preloaded`."""

    def __init__(self, folder):
        super().__init__(folder)
        self.mark_file = folder.with_name(folder.name + "-mark")
        self.mark_file.write_text(self.mark)

    def start(self, *args, **kwargs):
        return self._forked("-m", "reparto", *args, **kwargs)

    def python(self, *args):
        process = self._forked(*args)
        out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def _forked(self, *words, **kwargs):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
        return Forked(
            words,
            self.mark_file,
            cwd=self.folder,
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            **pipes,
        )

    def _is_mine(self, process):
        return super()._is_mine(process) or is_marked(process, self.mark_file)


@pytest.fixture
def cli(request, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    cli = (ForkedCli if request.node.get_closest_marker("forked") else Cli)(folder)
    yield cli
    for pid in cli.running():  # a test that failed leaves nothing for the next one
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


@pytest.fixture
def train(cli):
    """A small training script of 16 steps, in the folder of `cli`."""
    return cli.write(TRAIN)
