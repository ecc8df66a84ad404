"""`reparto doctor`: facts, and a remedy for every problem."""

import dataclasses
import json

import pytest

from reparto.measure import Facts, diagnose, num_gpus

GOOD = Facts(
    host="h",
    system="Linux",
    python="3.11",
    torch="2.13",
    torch_cuda=False,
    backends=("gloo",),
    num_cores=4,
    num_cores_present=4,
    memory_bytes=8 << 30,
    memory_free_bytes=4 << 30,
    shm_bytes=4 << 30,
    scratch_free_bytes=20 << 30,
    gpus=(),
    interfaces=(),
    peer_address="192.0.2.7",
    name_addresses=("192.0.2.7",),
    missing_extras={},
    omp_num_threads="",
)


def test_good_machine_has_no_problems():
    assert diagnose(GOOD) == ()


@pytest.mark.parametrize(
    ("change", "severity", "words"),
    [
        ({"torch": "", "backends": ()}, "error", "pip install torch"),
        ({"backends": ()}, "error", "gloo"),
        ({"name_addresses": ("127.0.1.1",)}, "warning", "192.0.2.7 h"),
        ({"name_addresses": ()}, "note", "/etc/hosts"),
        ({"peer_address": ""}, "warning", "no network"),
        ({"shm_bytes": 64 << 20}, "warning", "--shm-size"),
        ({"num_cores": 2}, "note", "quota"),
        ({"missing_extras": {"ray": ("ray",)}}, "note", "pip install 'reparto[ray]'"),
        ({"omp_num_threads": "1"}, "note", "unset"),
    ],
)
def test_each_problem_has_a_remedy(change, severity, words):
    (problem,) = diagnose(dataclasses.replace(GOOD, **change))
    assert problem.severity == severity
    assert problem.remedy
    assert words in f"{problem.what} {problem.remedy}"


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, 2), ("", 0), ("1", 1), ("-1", 0), ("0,-1,1", 1)]
)
def test_gpus_are_counted_as_cuda_would_see_them(tmp_path, visible, expected):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert num_gpus(env, str(tmp_path)) == expected


def test_config_that_is_not_understood_is_a_problem(cli):
    cli.env["TF_CONFIG"] = "{"
    done = cli.run("doctor", "--json", "-")
    assert done.returncode == 1
    (problem,) = [one for one in json.loads(done.stdout)["problems"] if "TF_CONFIG" in one["what"]]
    assert problem["severity"] == "error" and "is no JSON" in problem["what"]
    assert '"cluster"' in problem["remedy"]


def test_command_prints_facts_and_json_alone(cli):
    done = cli.run("doctor", "--json", "-")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["facts"]["num_cores"] >= 1
    assert "gloo" in document["facts"]["backends"]
    assert all(problem["remedy"] for problem in document["problems"])
