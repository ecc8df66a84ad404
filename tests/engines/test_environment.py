"""What each worker's environment holds."""

import pytest

from reparto.engines._environment import worker_environments
from reparto.errors import UsageError
from reparto.spec import (
    Cluster,
    Host,
    Line,
    Options,
    Plan,
    Program,
    StrategyConfig,
    from_json,
)

TWO_HOSTS = Cluster(hosts=(Host(name="a", num_gpus=2), Host(name="b", num_gpus=2)))


def plan(*placement, device="cpu", threads=1):
    return Plan(
        strategy=StrategyConfig(kind="all-reduce"),
        num_workers=len(placement),
        placement=placement,
        threads_per_worker=threads,
        device=device,
    )


def environments(plan, *, program=None, options=None, outer=None):
    return worker_environments(program, plan, TWO_HOSTS, options or Options(), outer or {})


def test_ranks_count_over_hosts_and_local_ranks_within_them():
    found = environments(plan("a", "a", "b"))
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert [tuple(env[name] for name in names) for env in found] == [
        ("0", "0", "3", "2"),
        ("1", "1", "3", "2"),
        ("2", "0", "3", "1"),
    ]


def test_each_worker_of_a_host_sees_one_gpu():
    found = environments(plan("a", "a", device="cuda"))
    assert [env["CUDA_VISIBLE_DEVICES"] for env in found] == ["0", "1"]


def test_gpus_are_taken_from_those_that_the_user_made_visible():
    outer = {"CUDA_VISIBLE_DEVICES": "5, GPU-abc"}
    found = environments(plan("a", "a", device="cuda"), outer=outer)
    assert [env["CUDA_VISIBLE_DEVICES"] for env in found] == ["5", "GPU-abc"]


def test_script_that_distributes_itself_keeps_all_gpus_and_looks_launched_by_torchrun():
    program = Program(script="t.py", launch="torchrun")
    found = environments(plan("a", "a", device="cuda"), program=program)
    assert all("CUDA_VISIBLE_DEVICES" not in env for env in found)
    assert [env["TORCHELASTIC_RUN_ID"] for env in found] == ["reparto", "reparto"]


@pytest.mark.parametrize(("threads", "expected"), [(3, "3"), (0, None)])
def test_threads_are_set_unless_plain_python_shall_decide(threads, expected):
    (env,) = environments(plan("a", threads=threads))
    assert env.get("OMP_NUM_THREADS") == expected


def test_hash_seed_is_shared_but_left_alone_for_one_worker():
    assert "PYTHONHASHSEED" not in environments(plan("a"))[0]
    assert {env["PYTHONHASHSEED"] for env in environments(plan("a", "b"))} == {"0"}
    assert "PYTHONHASHSEED" not in environments(plan("a", "b"), outer={"PYTHONHASHSEED": "7"})[0]


def test_script_that_distributes_itself_is_refused_on_an_emulated_line():
    program = Program(script="t.py", launch="torchrun")
    slow = Cluster(hosts=(Host(name="a", line=Line(delay_s=1.0)), Host(name="b")))
    plain = Cluster(hosts=(Host(name="a"), Host(name="b")))
    for cluster, outer in ((slow, {}), (plain, {"REPARTO_LINE": "{}"})):
        with pytest.raises(UsageError, match="distributes itself") as caught:
            worker_environments(program, plan("a", "b"), cluster, Options(), outer)
        assert "root" in caught.value.remedy
    assert worker_environments(program, plan("a"), slow, Options(), {})  # talks to nobody


def test_workers_are_told_the_line_of_their_host_and_all_of_them_where_one_has_a_line():
    line = Line(up_bits_per_s=1e6, delay_s=0.01)
    hosts = (Host(name="a", line=line), Host(name="b"), Host(name="c", line=Line(loss=0.5)))
    found = worker_environments(None, plan("a", "b"), Cluster(hosts=hosts), Options(), {})
    assert [from_json(Line, env["REPARTO_LINE"]) for env in found] == [line, Line()]
    assert [env["REPARTO_HOST"] for env in found] == ["a", "b"]
    alone = worker_environments(None, plan("b", "b"), Cluster(hosts=hosts), Options(), {})
    assert not any({"REPARTO_LINE", "REPARTO_HOST"} & set(env) for env in alone)
