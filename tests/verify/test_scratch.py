from __future__ import annotations

import os
from pathlib import Path

import pytest

from reparto import _scratch
from reparto._scratch import ScratchCopy, scratch_copy
from reparto.spec import Program, SourceFile


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "project"
    for path, text in {
        "train.py": "print(1)",
        "lib/net.py": "x = 1",
        "data/small.csv": "1,2",
        ".git/HEAD": "ref",
        "__pycache__/train.pyc": "",
        "../shared/table.csv": "3,4",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def copied(tmp_path: Path, project: Path, cwd: Path | None = None) -> ScratchCopy:
    root = tmp_path / "scratch"
    root.mkdir()
    return scratch_copy(root, str(project / "train.py"), str(cwd or project))


def test_small_files_are_copied(tmp_path: Path, project: Path) -> None:
    copy = copied(tmp_path, project)
    assert copy.cwd == Path(f"{copy.root}{project}")
    assert (copy.cwd / "lib" / "net.py").read_text() == "x = 1"
    (copy.cwd / "data" / "small.csv").write_text("changed")
    (copy.cwd / "new.pt").write_text("made")
    assert (project / "data" / "small.csv").read_text() == "1,2"
    assert not (project / "new.pt").exists()
    assert not (copy.cwd / "__pycache__").exists()
    assert copy.linked == ()


def test_siblings_are_found(tmp_path: Path, project: Path) -> None:
    copy = copied(tmp_path, project)
    assert (copy.cwd / ".." / "shared" / "table.csv").read_text() == "3,4"


def test_repository_is_linked(tmp_path: Path, project: Path) -> None:
    copy = copied(tmp_path, project)
    assert (copy.cwd / ".git").is_symlink()
    assert (copy.cwd / ".git" / "HEAD").read_text() == "ref"


def test_large_files_are_linked_and_told(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_scratch, "MAX_FILE_BYTES", 100)
    (project / "data" / "big.bin").write_bytes(bytes(200))
    copy = copied(tmp_path, project)
    assert (copy.cwd / "data" / "big.bin").is_symlink()
    assert (copy.cwd / "data" / "big.bin").stat().st_size == 200
    assert "big.bin" in copy.linked[0]


def test_folders_of_many_files_are_linked_and_told(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_scratch, "MAX_FILES_OF_A_FOLDER", 20)
    (project / "images").mkdir()
    for index in range(30):
        (project / "images" / f"{index}.png").touch()
    copy = copied(tmp_path, project)
    assert (copy.cwd / "images").is_symlink()
    assert (copy.cwd / "lib").is_dir()
    assert not (copy.cwd / "lib").is_symlink()
    assert "images" in copy.linked[0]


def test_the_script_is_copied_before_the_far_parts(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_scratch, "MAX_FILES", 8)
    deep = project / "lib" / "a" / "b"
    deep.mkdir(parents=True)
    for index in range(12):
        (deep / f"{index}.txt").touch()
    copy = copied(tmp_path, project)
    assert not (copy.cwd / "train.py").is_symlink()
    assert (copy.cwd / "lib" / "a" / "b").is_symlink()
    assert (copy.cwd / "lib" / "a" / "b" / "3.txt").exists()


def test_working_directory_elsewhere_is_copied_too(tmp_path: Path, project: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "settings.ini").write_text("a=1")
    copy = copied(tmp_path, project, cwd=work)
    assert (copy.cwd / "settings.ini").read_text() == "a=1"
    assert Path(copy.inside(str(project / "train.py"))).read_text() == "print(1)"


def test_working_directory_above_the_script(tmp_path: Path, project: Path) -> None:
    copy = copied(tmp_path, project, cwd=project.parent)
    assert (copy.cwd / "project" / "train.py").exists()
    assert not (copy.cwd / "project").is_symlink()
    assert not (copy.cwd / "shared").is_symlink()


def test_links_of_the_user_are_followed_not_shared(tmp_path: Path, project: Path) -> None:
    outside = tmp_path / "elsewhere.txt"
    outside.write_text("theirs")
    (project / "link.txt").symlink_to(outside)
    (project / "broken").symlink_to(tmp_path / "nowhere")
    copy = copied(tmp_path, project)
    (copy.cwd / "link.txt").write_text("ours")
    assert outside.read_text() == "theirs"
    assert "broken" in copy.linked[0]


def test_script_that_is_a_link_finds_its_modules(tmp_path: Path, project: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "go.py").symlink_to(project / "train.py")
    root = tmp_path / "scratch"
    root.mkdir()
    copy = scratch_copy(root, str(bin_folder / "go.py"), str(bin_folder))
    folder = os.path.dirname(os.path.realpath(copy.inside(str(bin_folder / "go.py"))))
    assert folder == f"{copy.root}{project}"
    assert os.path.exists(os.path.join(folder, "lib", "net.py"))


def test_program_is_moved_with_absolute_paths_in_its_arguments(
    tmp_path: Path, project: Path
) -> None:
    copy = copied(tmp_path, project)
    script = str(project / "train.py")
    program = Program(
        script=script,
        args=("--out", f"{project}/runs", f"--data={project}/data", "/etc/hosts", "plain", "-v"),
        files=(SourceFile(path=script, module="__main__", original="1", converted="2"),),
    )
    moved = copy.moved(program)
    assert moved.script == moved.files[0].path == f"{copy.root}{script}"
    assert moved.files[0].converted == "2"
    assert moved.args == (
        "--out",
        f"{copy.root}{project}/runs",
        f"--data={copy.root}{project}/data",
        "/etc/hosts",
        "plain",
        "-v",
    )


def test_paths_in_texts_are_turned_back(tmp_path: Path, project: Path) -> None:
    copy = copied(tmp_path, project)
    assert (
        copy.outside(f'File "{copy.cwd}/train.py", line 3') == f'File "{project}/train.py", line 3'
    )
