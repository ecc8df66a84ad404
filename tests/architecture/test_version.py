"""The version is written in one place, src/reparto/_version.py."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from reparto._version import __version__

ROOT = Path(__file__).parents[2]


def test_installed_version_is_that_of_the_source():
    assert metadata.version("reparto") == __version__


def test_pyproject_reads_the_version_from_the_source():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in pyproject["project"]
    assert "version" in pyproject["project"]["dynamic"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "reparto._version.__version__"
    }


def test_version_is_assigned_in_no_other_file():
    assigned = re.compile(r"^__version__\s*(:.*)?=", re.MULTILINE)
    files = [p for p in (ROOT / "src").rglob("*.py") if assigned.search(p.read_text())]
    assert files == [ROOT / "src" / "reparto" / "_version.py"]
