"""What happens on a host of a cluster and on the way there; no cluster is needed for that."""

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import reparto
from reparto.engines._base import WorkerLaunch
from reparto.engines._mirror import Mirror
from reparto.engines._post import Post, archive, digest
from reparto.engines._remote import LOST, RemoteWorker
from reparto.engines._site import Site, Visit
from reparto.engines._travel import CHUNK_BYTES, Item, items, pack, travelling, unpack
from reparto.spec import (
    Assignment,
    Failure,
    Plan,
    Program,
    SourceFile,
    StrategyConfig,
)


def source(path, text, module="__main__"):
    return SourceFile(path=str(path), module=module, original=text, converted=text)


# ------------------------------------------------------------------------------- what travels


def test_shipped_folder_arrives_whole(tmp_path):
    folder = tmp_path / "here" / "data"
    (folder / "empty").mkdir(parents=True)
    (folder / "big.bin").write_bytes(os.urandom(CHUNK_BYTES + 17))
    (tmp_path / "far.txt").write_text("far")
    (folder / "link.txt").symlink_to(tmp_path / "far.txt")
    chunks = []
    pack(items(["data"], str(tmp_path / "here")), chunks.append)
    assert len(chunks) == 2

    unpack(io.BytesIO(b"".join(chunks)), str(tmp_path / "there"))
    arrived = tmp_path / "there" / str(folder).lstrip("/")
    assert (arrived / "big.bin").read_bytes() == (folder / "big.bin").read_bytes()
    assert (arrived / "link.txt").read_text() == "far"
    assert (arrived / "empty").is_dir()


def test_file_of_another_size_counts_as_lacking(tmp_path):
    path = tmp_path / "x"
    path.write_text("123")
    assert Item(path=str(path), size_bytes=3).is_here()
    assert not Item(path=str(path), size_bytes=4).is_here()
    assert not Item(path=str(path), size_bytes=-1).is_here()
    assert Item(path=str(tmp_path), size_bytes=-1).is_here()


def test_environment_travels_but_for_what_describes_a_machine():
    user = {"EPOCHS": "3", "WANDB_PROJECT": "x", "PYTHONPATH": "/lib", "OMP_NUM_THREADS": "2"}
    machine = {
        "PATH": "/bin",
        "HOME": "/root",
        "HF_HOME": "/cache",
        "LD_LIBRARY_PATH": "/lib",
        "RAY_ADDRESS": "auto",
        "CUDA_VISIBLE_DEVICES": "0",
        "TMPDIR": "/tmp",
        "PWD": "/",
        "https_proxy": "proxy",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    assert travelling({**user, **machine}) == user


# ----------------------------------------------------------------------------------- the mirror


@pytest.fixture
def project(tmp_path):
    """A folder that the host has, and a mirror beside it."""
    folder = tmp_path / "proj"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "old.csv").write_text("old")
    return folder, Mirror(str(tmp_path / "mirror"))


def test_mirror_shows_what_the_host_has_and_what_came(project):
    folder, mirror = project
    new = folder / "data" / "new.csv"
    parcel = io.BytesIO()
    new.write_text("new")
    wanted = items([str(new)], "/")
    pack(wanted, parcel.write)
    new.unlink()
    parcel.seek(0)

    cwd = mirror.unfold(str(folder))
    mirror.unpack(parcel, wanted)
    assert sorted(os.listdir(f"{cwd}/data")) == ["new.csv", "old.csv"]
    assert Path(f"{cwd}/data/old.csv").read_text() == "old"
    assert os.listdir(folder / "data") == ["old.csv"]  # the host's own is not touched


def test_program_is_laid_out_where_the_host_lacks_it(project):
    folder, mirror = project
    script, module = folder / "src" / "train.py", folder / "helper.py"
    module.write_text("x = 1\n")
    program = Program(
        script=str(script),
        args=("--data", "data/old.csv", str(folder / "src" / "out.pt"), f"--m={module}"),
        files=(source(script, "import helper\n"), source(module, "x = 1\n", "helper")),
    )
    here = mirror.lay_out(program)
    assert here.script == f"{mirror.root}{script}"
    assert Path(here.script).read_text() == "import helper\n"
    assert here.files[1].path == str(module)  # the same, so it is used where it lies
    assert here.args == (
        "--data",
        "data/old.csv",
        f"{mirror.root}{folder}/src/out.pt",
        f"--m={module}",
    )
    assert mirror.home(here.script) == str(script)


def test_file_that_the_host_has_otherwise_is_replaced_in_the_mirror_only(project):
    folder, mirror = project
    script = folder / "train.py"
    script.write_text("stale\n")
    here = mirror.lay_out(Program(script=str(script), files=(source(script, "fresh\n"),)))
    assert Path(here.script).read_text() == "fresh\n"
    assert script.read_text() == "stale\n"


# ------------------------------------------------------------------------- workers elsewhere


def remote(rank=1, **kwargs):
    sent = []
    worker = RemoteWorker(
        rank, "b", send_signal=lambda rank, number: sent.append((rank, number)), **kwargs
    )
    return worker, sent


def test_failure_of_a_remote_worker_is_told_in_our_paths_and_by_our_clock():
    worker, _ = remote(mirror="/tmp/m", clock_ahead_s=100.0)
    failure = Failure(
        rank=1,
        host="b",
        error="ValueError",
        message="/tmp/m/p/x.csv",
        traceback='File "/tmp/m/p/train.py", line 3',
        file="/tmp/m/p/train.py",
        line=3,
        time_s=1100.0,
    )
    told = {"type": "failed", **dataclasses.asdict(failure)}
    worker.feed("events", json.dumps(told).encode() + b"\n")
    (event,) = worker.decode(worker.pipes["events"].read(1 << 16))
    assert event.failure.file == "/p/train.py"
    assert event.failure.traceback == 'File "/p/train.py", line 3'
    assert event.failure.message == "/p/x.csv"
    assert event.failure.time_s == 1000.0


def test_signal_is_passed_on_once():
    worker, sent = remote()
    worker.signal(signal.SIGKILL)
    worker.signal(signal.SIGKILL)
    assert sent == [(1, signal.SIGKILL)]


def test_lost_worker_has_ended_and_says_why():
    worker, _ = remote()
    assert not worker.has_died()
    worker.lose("its node is gone")
    worker.lose("told twice")
    worker.reap(sweep=True)
    assert (worker.failure.error, worker.failure.message) == (LOST, "its node is gone")
    assert worker.status == -signal.SIGKILL


# ------------------------------------------------------------------------------------ the site


def collect(site, limit_s=200.0):
    """Poll a site to the end of its workers; return output by stream, and how they ended."""
    told, until = {}, time.monotonic() + limit_s
    while time.monotonic() < until:
        news = site.poll(0.5)
        for rank, stream, data in news.told:
            told[rank, stream] = told.get((rank, stream), b"") + data
        if news.ended:
            return told, news.ended
    raise AssertionError(told)


def test_site_runs_a_script_that_its_host_has_not(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_JOB_ID", "1")
    cwd = str(tmp_path / "gone" / "proj")  # of the driver; not here
    text = (
        "import os\n"
        "print(open('data.txt').read(), os.environ['EPOCHS'], 'RAY_JOB_ID' in os.environ)\n"
        "open('out.txt', 'w').write('result')\n"
    )
    data = Item(path=f"{cwd}/data.txt", size_bytes=4)
    site = Site()
    try:
        visit = Visit(cwd=cwd, token=str(tmp_path / "token"), items=(data,))
        facts = site.look(visit)
        assert (facts.missing, facts.lacking) == ((), (data,))
        command = ("python", "-P", "-m", "reparto.runtime.worker")
        launch = WorkerLaunch(rank=0, host="b", command=command, env={"RANK": "0"})
        site.start([launch], {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}, {"EPOCHS": "3"})

        (tmp_path / "gone" / "proj").mkdir(parents=True)
        (tmp_path / "gone" / "proj" / "data.txt").write_text("1234")
        chunks = []
        pack((data,), chunks.append)
        (tmp_path / "gone" / "proj" / "data.txt").unlink()
        (tmp_path / "gone" / "proj").rmdir()
        for index, chunk in enumerate(chunks):
            site.take(chunk, index == 0)
        site.unpack([data])

        script = f"{cwd}/train.py"
        program = Program(script=script, files=(source(script, text),), launch="plain")
        plan = Plan(strategy=StrategyConfig(kind="script"), num_workers=1, placement=("b",))
        site.assign(Assignment(program=program, plan=plan))
        told, ended = collect(site)
        assert told[0, "stdout"] == b"1234 3 False\n", told
        assert [(rank, status) for rank, status, _ in ended] == [(0, 0)]
        (written,) = site.outputs()
        assert written.home == f"{cwd}/out.txt"
        assert site.read(written.path, 0, 100) == b"result"
    finally:
        site.close()
    assert not os.path.exists(facts.mirror)


def test_post_uses_what_is_installed_if_it_is_the_same_and_else_what_was_sent():
    package = Path(reparto.__file__).parent
    assert digest(package) == digest(package)
    post = Post(digest(package), b"not needed")
    post.close()
    # Elsewhere: an interpreter that has another reparto, or none.
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import runpy\n"
        "post = runpy.run_path(sys.argv[2])['Post']('other', sys.stdin.buffer.read())\n"
        "import reparto; print(reparto.__file__); post.close()\n"
    )
    where = [str(package.parent), str(package / "engines" / "_post.py")]
    done = subprocess.run(
        [sys.executable, "-c", code, *where], input=archive(package), capture_output=True
    )
    assert b"reparto-sources-" in done.stdout, done.stderr
    assert not os.path.exists(done.stdout.decode().strip())
