"""A worker that may not write believes that it has written, and sees the world as it was."""

from __future__ import annotations

import _io
import csv
import glob
import logging
import os
import posix
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from reparto.runtime import _layers
from reparto.runtime._files import Overlay, cutoff_ns, mute_trackers

Install = Callable[..., Overlay]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a script, with what was there before the run."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "old.txt").write_text("old")
    (folder / "data" / "a.csv").write_text("1\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def install(tmp_path: Path, project: Path) -> Iterator[Install]:
    """Installs overlays, and sees to it that nothing was really changed while they were there."""
    made: list[Overlay] = []
    before: list[dict[str, str]] = []

    def begin(name: str = "private", since_ns: int | None = None) -> Overlay:
        before.append(tree(project))
        overlay = Overlay(tmp_path / name, since_ns or cutoff_ns())
        overlay.install()
        made.append(overlay)
        return overlay

    yield begin
    after = tree(project)
    for overlay in reversed(made):
        overlay.uninstall()
    os.chdir(project)
    assert all(each == after for each in before)


def tree(folder: Path) -> dict[str, str]:
    """What is really there: `posix` and `_io` stay as they are."""
    found: dict[str, str] = {}
    for name in posix.listdir(folder):
        path = folder / name
        mode = posix.stat(path).st_mode
        found[name] = oct(mode)
        if stat.S_ISDIR(mode):
            found |= {f"{name}/{key}": value for key, value in tree(path).items()}
        elif stat.S_ISREG(mode):
            with _io.open(path, "rb") as file:
                found[name] += repr(file.read())
    return found


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def write(path: str, mode: str = "w") -> None:
    with open(path, mode) as file:
        file.write("new")


def test_what_is_written_can_be_read_back_and_is_not_really_there(install: Install) -> None:
    install()
    with open("new.txt", "w") as file:
        file.write("new")
    assert file.name == "new.txt"  # as on worker 0
    Path("also.json").write_text("{}")
    assert read("new.txt") == "new"
    assert Path("also.json").read_text() == "{}"
    assert Path("new.txt").exists() and os.path.getsize("new.txt") == 3


def test_appending_and_updating_start_from_the_real_content(install: Install) -> None:
    install()
    with open("data/a.csv", "a", newline="") as file:
        csv.writer(file).writerow([2])
    with open("old.txt", "r+") as file:
        file.write("OL")
    assert list(csv.reader(read("data/a.csv").splitlines())) == [["1"], ["2"]]
    assert read("old.txt") == "OLd"


def test_exclusive_creation_fails_only_where_the_script_would_have_failed(
    install: Install,
) -> None:
    install()
    write("fresh", "x")
    for path in ("fresh", "old.txt"):
        with pytest.raises(FileExistsError):
            write(path, "x")
        with pytest.raises(FileExistsError):
            os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def test_directories_are_made_privately_and_exist_afterwards(install: Install) -> None:
    install()
    os.makedirs("runs/1")
    with pytest.raises(FileExistsError, match="'runs/1'"):
        os.makedirs("runs/1")
    os.makedirs("runs/1", exist_ok=True)
    Path("runs/2/deep").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        os.mkdir("data")
    with pytest.raises(FileNotFoundError):
        os.mkdir("missing/child")
    with pytest.raises(FileNotFoundError):
        write("missing/file")
    assert sorted(os.listdir("runs")) == ["1", "2"]


def test_listings_merge_what_is_real_and_what_is_private(install: Install) -> None:
    install()
    Path("runs/1").mkdir(parents=True)
    Path("runs/1/new.txt").touch()
    os.remove("old.txt")
    Path("data/b.csv").touch()
    assert set(os.listdir()) == {"data", "runs"}
    assert sorted(glob.glob("data/**", recursive=True)) == ["data/", "data/a.csv", "data/b.csv"]
    assert sorted(map(str, Path("data").glob("*.csv"))) == ["data/a.csv", "data/b.csv"]
    assert [p.name for p in Path().rglob("new*")] == ["new.txt"]
    walked = {name for _, _, names in os.walk(".") for name in names}
    assert walked == {"a.csv", "b.csv", "new.txt"}
    with os.scandir("runs") as entries:
        assert [(e.name, e.path, e.is_file(), e.is_dir()) for e in entries] == [
            ("1", "runs/1", False, True)
        ]
    assert os.listdir(b"runs") == [b"1"]


def test_deleted_files_are_gone_and_stay_where_they_really_are(install: Install) -> None:
    install()
    os.remove("old.txt")
    assert not os.path.exists("old.txt")
    with pytest.raises(FileNotFoundError, match="'old"):
        read("old.txt")
    with pytest.raises(FileNotFoundError):
        os.remove("old.txt")
    with pytest.raises(OSError, match="not empty"):
        os.rmdir("data")
    with pytest.raises(IsADirectoryError):
        os.remove("data")
    shutil.rmtree("data")
    with pytest.raises(FileNotFoundError):
        read("data/a.csv")
    with pytest.raises(FileNotFoundError):
        write("data/new.csv")
    os.mkdir("data")
    assert os.listdir("data") == []
    shutil.rmtree("nowhere", ignore_errors=True)
    with pytest.raises(FileNotFoundError):
        shutil.rmtree("nowhere")


@pytest.mark.parametrize(("module", "name"), [(os, "replace"), (os, "rename"), (shutil, "move")])
def test_a_checkpoint_written_aside_and_renamed_is_read_back(
    install: Install, module: ModuleType, name: str
) -> None:
    install()
    replace = getattr(module, name)
    for epoch in range(2):
        torch.save({"epoch": epoch}, "best.pt.tmp")
        replace("best.pt.tmp", "best.pt")
        assert torch.load("best.pt")["epoch"] == epoch
        assert not os.path.exists("best.pt.tmp")
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
        file.write(b"3")
    replace(file.name, "best.pt")
    assert Path("best.pt").read_bytes() == b"3"


def test_directories_can_be_renamed_with_their_content(install: Install) -> None:
    install()
    Path("data/b.csv").touch()
    os.rename("data", "data_old")
    assert sorted(os.listdir("data_old")) == ["a.csv", "b.csv"]
    assert Path("data_old/a.csv").read_text() == "1\n"
    assert not os.path.exists("data")
    os.mkdir("data")
    with pytest.raises(OSError, match="not empty"):
        os.rename("data", "data_old")


def test_copies_links_and_attributes_stay_private(install: Install, project: Path) -> None:
    install()
    shutil.copy2("old.txt", "copy.txt")
    shutil.copytree("data", "data2")
    os.symlink("copy.txt", "latest")
    os.link("copy.txt", "hard")
    os.chmod("old.txt", 0o600)
    os.utime("old.txt", (1, 1))
    os.truncate("data/a.csv", 0)
    assert read("latest") == read("hard") == "old"
    assert os.readlink("latest") == "copy.txt" and os.path.islink("latest")
    assert os.path.realpath("latest") == str(project / "copy.txt")
    assert (os.stat("old.txt").st_mode & 0o777, os.path.getmtime("old.txt")) == (0o600, 1)
    assert (os.path.getsize("data/a.csv"), Path("data2/a.csv").read_text()) == (0, "1\n")


def test_one_file_under_two_names_is_one_file(install: Install, project: Path) -> None:
    os.symlink(project / "data", project / "linked")
    install()
    Path("linked/b.csv").write_text("2")
    assert Path("data/b.csv").read_text() == "2"
    assert (project / "linked" / ".." / "data" / "b.csv").exists()
    os.unlink("linked")
    assert not os.path.lexists("linked") and os.path.exists("data/b.csv")


def test_a_script_may_enter_a_directory_that_it_has_made(install: Install, project: Path) -> None:
    install()
    os.mkdir("run")
    os.chdir("run")
    assert os.getcwd() == str(project / "run") == str(Path.cwd())
    Path("here.txt").write_text("here")
    assert os.listdir() == ["here.txt"] and Path("../old.txt").read_text() == "old"
    os.chdir("..")
    assert Path("run/here.txt").read_text() == "here"


def test_temporary_files_are_real_but_a_literal_path_beside_them_is_not(install: Install) -> None:
    install()
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
        Path(folder, "x").write_text("x")
        file.write(b"y")
        file.flush()
        seen = subprocess.check_output(["cat", f"{folder}/x", file.name])
        assert seen == b"xy"
    assert not os.path.exists(folder)
    with tempfile.NamedTemporaryFile(dir="data") as file:  # of a folder of the script's
        assert os.path.exists(file.name)
    assert os.listdir("data") == ["a.csv"]
    literal = f"{tempfile.gettempdir()}/reparto-literal-{os.getpid()}.pt"
    torch.save(1, literal)
    assert torch.load(literal) == 1
    assert subprocess.run(["test", "-e", literal]).returncode == 1


def test_devices_and_descriptors_pass(install: Install, project: Path) -> None:
    os.mkfifo(project / "pipe")
    install()
    with open("/dev/null", "w") as file:
        file.write("x")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    with open("pipe", "w") as file:
        file.write("through")
    assert os.read(reader, 7) == b"through"
    os.close(reader)
    assert os.fstat(0) and os.stat(0)


def test_archives_logs_and_databases_stay_private(install: Install) -> None:
    install()
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.write("old.txt")
    with tarfile.open("a.tar.gz", "w:gz") as tar:
        tar.add("data")
    assert zipfile.ZipFile("a.zip").read("old.txt") == b"old"
    with tarfile.open("a.tar.gz") as tar:
        assert tar.getnames() == ["data", "data/a.csv"]
    handler = logging.FileHandler("train.log")
    handler.emit(logging.makeLogRecord({"msg": "epoch 1"}))
    handler.close()
    assert read("train.log") == "epoch 1\n"
    with sqlite3.connect("runs.db") as database:
        database.execute("create table run (loss)")
    assert sqlite3.connect("runs.db").execute("select * from run").fetchall() == []


def test_tensors_and_arrays_that_are_written_in_c_stay_private(install: Install) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    install()
    ones = torch.ones(2)
    os.mkdir("out")
    torch.save(ones, "out/a.pt")
    torch.save(obj=ones, f=Path("out/b.pt"))
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), "out/c.pt")
    safetensors.save_file({"ones": ones}, "out/d.safetensors")
    assert torch.equal(torch.load("out/a.pt"), torch.load(Path("out/b.pt"), mmap=True))
    assert torch.equal(torch.jit.load("out/c.pt")(ones), ones)
    assert torch.equal(safetensors.load_file("out/d.safetensors")["ones"], ones)
    np.save("e.npy", np.ones(2))
    np.savez("f.npz", ones=np.ones(2))
    np.savetxt("g.txt", np.ones(2))
    np.ones(2).tofile("h.bin")
    np.memmap("i.bin", dtype="f8", mode="w+", shape=(2,))[:] = 1
    arrays = [np.load("e.npy"), np.load("e.npy", mmap_mode="r"), np.load("f.npz")["ones"]]
    arrays += [np.loadtxt("g.txt"), np.fromfile("h.bin"), np.memmap("i.bin", dtype="f8")]
    assert all(np.array_equal(array, np.ones(2)) for array in arrays)


def test_tables_and_plots_stay_private(install: Install) -> None:
    pandas = pytest.importorskip("pandas")
    matplotlib = pytest.importorskip("matplotlib")
    install()
    pandas.DataFrame({"loss": [1]}).to_csv("history.csv", index=False)
    assert pandas.read_csv("history.csv")["loss"].tolist() == [1]
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.figure()
    for name in ("loss.png", "loss.pdf"):
        pyplot.savefig(name)
        assert os.path.getsize(name) > 0
    pyplot.close()


def test_native_functions_are_covered_when_their_module_comes_later(
    tmp_path: Path, project: Path
) -> None:
    module = tmp_path / "modules" / "h5py.py"
    module.parent.mkdir()
    module.write_text(
        "import posix\n"  # opens below Python's `open`
        "class File:\n"
        "    def __init__(self, name, mode='r'):\n"
        "        flags = 0 if mode == 'r' else posix.O_RDWR | posix.O_CREAT\n"
        "        posix.close(posix.open(name, flags))\n"
    )
    script = f"""
        import sys; sys.path.insert(0, {str(module.parent)!r})
        import h5py
        h5py.File("made.h5", "w"); h5py.File("made.h5"); h5py.File(name="old.txt")
    """
    run_script(project, script)


def test_summary_writer_works_and_leaves_nothing(project: Path) -> None:
    pytest.importorskip("tensorboard")
    script = """
        import os
        from torch.utils.tensorboard import SummaryWriter
        for folder in ("runs/a", None):
            with SummaryWriter(folder) as writer:
                writer.add_scalar("loss", 1.0, 0)
        print(len(os.listdir("runs")), os.listdir("runs/a")[0].startswith("events"))
    """
    assert run_script(project, script) == "2 True\n"


def run_script(folder: Path, code: str, since_ns: int | None = None) -> str:
    """Runs a script as a worker does that is not the main one; returns what it prints."""
    scratch = folder.parent / "scratch"
    start = (
        "from reparto.runtime._files import Overlay\n"
        f"Overlay({str(scratch)!r}, {since_ns or cutoff_ns()}).install()\n"
    )
    command = [sys.executable, "-c", start + textwrap.dedent(code)]
    before = tree(folder)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert tree(folder) == before
    return done.stdout


def test_a_worker_that_comes_late_sees_the_world_as_it_was(project: Path) -> None:
    script = """
        import os, pathlib, shutil, torch
        print(os.path.exists("best.pt"), sorted(os.listdir()), list(pathlib.Path().glob("run*")))
        os.makedirs("run/logs")
        if os.path.exists("cache"):
            shutil.rmtree("cache")
        os.mkdir("cache")
        with open("run/logs/history.csv", "x") as file:
            file.write("1")
        torch.save(1, "best.tmp"); os.replace("best.tmp", "best.pt")
        print(torch.load("best.pt"), os.listdir("run/logs"))
    """
    since_ns = cutoff_ns()
    command = [sys.executable, "-c", textwrap.dedent(script)]
    on_main = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True)
    assert {"best.pt", "run", "cache"} < set(os.listdir(project))
    assert run_script(project, script, since_ns) == on_main.stdout


def test_a_late_worker_still_sees_what_main_has_only_touched(project: Path) -> None:
    since_ns = cutoff_ns()
    with open(project / "old.txt", "a") as file:
        file.write("er")
    (project / "data" / "of_main.csv").touch()  # changes the time of an old directory
    script = "import os; print(os.listdir('data'), open('old.txt').read(), os.path.isdir('data'))"
    assert run_script(project, script, since_ns) == "['a.csv'] older True\n"


def test_without_birth_times_new_files_are_still_told_from_old_directories(
    install: Install, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_layers, "_STATX", None)  # NFS
    since_ns = cutoff_ns()
    (project / "data" / "new.csv").touch()
    (project / "run").mkdir()
    install(since_ns=since_ns)
    assert os.listdir("data") == ["a.csv"]
    assert not os.path.exists("run")
    os.makedirs("run")


def test_writing_into_a_directory_that_only_main_has_made_works(
    install: Install, project: Path
) -> None:
    since_ns = cutoff_ns()
    (project / "out").mkdir()
    install(since_ns=since_ns)
    assert not os.path.exists("out")
    Path("out/x").write_text("x")
    assert os.listdir("out") == ["x"]


def test_forked_children_write_to_the_same_overlay(install: Install) -> None:
    install()
    Path("parent").touch()
    if (pid := os.fork()) == 0:
        Path("child").write_text(str(Path("parent").exists()))
        os._exit(0)
    os.waitpid(pid, 0)
    assert Path("child").read_text() == "True"


def test_overlays_can_be_nested(install: Install) -> None:
    install("first")
    Path("kept").write_text("1")
    shadow = install("second", since_ns=sys.maxsize)
    assert Path("kept").read_text() == "1"
    Path("kept").write_text("2")
    Path("discarded").touch()
    shadow.uninstall()
    assert Path("kept").read_text() == "1"
    assert not Path("discarded").exists()


def test_uninstall_puts_everything_back(install: Install, project: Path) -> None:
    def state() -> list[object]:
        functions = [open, os.open, os.stat, os.scandir, os.mkdir, os.rename, shutil.rmtree]
        return [*functions, torch.save, torch.load, sqlite3.connect, tarfile.bltn_open]  # type: ignore[attr-defined]

    before, finders = state(), list(sys.meta_path)
    overlay = install()
    kept = open
    assert not any(a is b for a, b in zip(before, state(), strict=True))
    overlay.uninstall()
    assert all(a is b for a, b in zip(before, state(), strict=True))
    assert sys.meta_path == finders
    with kept("real.txt", "w"):  # bound by a script before
        pass
    assert "real.txt" in tree(project)
    os.remove("real.txt")


def test_trackers_are_muted(tmp_path: Path) -> None:
    environ = {"WANDB_MODE": "online", "HOME": "/root"}
    mute_trackers(environ, str(tmp_path))
    assert environ["WANDB_MODE"] == "disabled"
    assert environ["MLFLOW_TRACKING_URI"] == f"file://{tmp_path}/mlruns"
    assert environ["MPLBACKEND"] == "Agg"
    assert environ["HOME"] == "/root"
