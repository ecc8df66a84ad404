"""A plugin from another package: installed, found, held to the contract, run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import preloaded

SOURCE = Path(__file__).parents[1] / "plugin"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """An environment in which the plugin is installed."""
    built = tmp_path_factory.mktemp("plugin")
    source, target = built / "source", built / "site"
    shutil.copytree(SOURCE, source)  # building leaves files behind
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    done = subprocess.run([*pip, *options, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), str(ROOT / "src")])}


def called(env, *words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)], env=env, cwd=cwd, capture_output=True, text=True
    )


def test_it_is_listed_with_its_knobs(env):
    done = called(env, "reparto", "strategies", "--json", "-")
    kinds = {one["kind"]: one for one in json.loads(done.stdout)}
    assert not kinds["sign-vote"]["exact"]
    assert kinds["eighths"]["is_compressor"]
    assert "scale" in [knob["name"] for knob in kinds["sign-vote"]["knobs"]]


def test_it_keeps_the_contracts(env):
    path = SOURCE / "contracts.py"
    done = called(env, "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", SOURCE, path)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_runs_with_its_settings(env, tmp_path):
    script = ROOT / "examples" / "digits.py"
    report = tmp_path / "result.json"
    words = ["--strategy", "sign-vote", "--set", "scale=0.5", "--workers", 2, "--json", report]
    done = called(env, "reparto", "run", *words, script, "--epochs", 1, cwd=tmp_path)
    assert done.returncode == 2
    assert "only the majority's sign" in done.stderr
    done = called(env, "reparto", "run", *words, "--relaxed", script, "--epochs", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(report.read_text())["result"]
    assert result["num_steps"] > 0
    assert result["bytes_sent"] > 0


def test_it_is_compared_with_the_others(env, tmp_path):  # by fork: there are four workers
    script = ROOT / "examples" / "digits.py"
    words = ["--strategies", "all-reduce,sign-vote:scale=0.5", "--workers", 2, "--samples", 512]
    command = ["-m", "reparto", "compare", "--relaxed", *words, script]
    done = preloaded.run(command, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "sign-vote" in done.stdout
    assert "sign-vote" in (tmp_path / "reparto-compare" / "compare.html").read_text()
