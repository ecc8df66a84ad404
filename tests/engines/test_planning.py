"""How many workers, where, with how many threads."""

import dataclasses

import pytest

from reparto.errors import UsageError
from reparto.plan import place, plan_run
from reparto.spec import Cluster, Host, Job, Program, SourceFile


def program(text="model(x)", launch="reparto"):
    file = SourceFile(path="/t.py", module="__main__", original=text, converted=text)
    return Program(script="/t.py", files=(file,), launch=launch)


def cluster(*sizes, gpus=0):
    return Cluster(
        hosts=tuple(
            Host(name=chr(ord("a") + index), num_cores=cores, num_gpus=gpus)
            for index, cores in enumerate(sizes)
        )
    )


def plan(job, cluster, program, env=None):
    return plan_run(job, cluster, program, env or {})


def test_auto_takes_all_reduce_over_all_cores():
    found = plan(Job(script="t.py"), cluster(4), program())
    assert (found.strategy.kind, found.num_workers, found.threads_per_worker) == (
        "all-reduce",
        4,
        1,
    )


def test_one_core_is_single():
    found = plan(Job(script="t.py"), cluster(1), program())
    assert (found.strategy.kind, found.num_workers) == ("single", 1)


def test_cores_are_shared_out_as_threads():
    assert plan(Job(script="t.py", workers=2), cluster(8), program()).threads_per_worker == 4


def test_threads_that_the_user_set_hold():
    env = {"OMP_NUM_THREADS": "3"}
    assert plan(Job(script="t.py", workers=2), cluster(8), program(), env).threads_per_worker == 3
    job = Job(script="t.py", workers=2, threads=5)
    assert plan(job, cluster(8), program(), env).threads_per_worker == 5


def test_more_workers_than_cores_is_told():
    found = plan(Job(script="t.py", workers=5), cluster(2), program())
    assert found.num_workers == 5
    assert any("take turns" in reason for reason in found.reasons)


def test_more_workers_than_cores_is_told_where_hosts_are_taken_to_be_alike():
    alike = dataclasses.replace(cluster(2), alike=True)
    assert any("take turns" in reason for reason in turns(alike, 3))
    assert not any("take turns" in reason for reason in turns(alike, 2))


def turns(hosts, num_workers):
    return plan(Job(script="t.py", workers=num_workers), hosts, program()).reasons


def test_gpus_are_taken_where_the_script_asks_for_one():
    found = plan(Job(script="t.py"), cluster(16, gpus=4), program('model.to("cuda")'))
    assert (found.device, found.num_workers, found.threads_per_worker) == ("cuda", 4, 4)


def test_gpus_are_left_alone_where_the_script_never_asks():
    found = plan(Job(script="t.py"), cluster(16, gpus=4), program())
    assert (found.device, found.num_workers) == ("cpu", 16)
    assert any("never asks" in reason for reason in found.reasons)


@pytest.mark.parametrize(("launch", "num_workers"), [("torchrun", 4), ("plain", 1)])
def test_script_that_is_left_unchanged_has_no_strategy_of_ours(launch, num_workers):
    found = plan(Job(script="t.py"), cluster(4), program(launch=launch))
    assert (found.strategy.kind, found.num_workers) == ("script", num_workers)


def test_single_is_one_worker_whatever_else_was_asked():
    found = plan(Job(script="t.py", strategy="single", workers=3), cluster(4), program())
    assert (found.num_workers, found.threads_per_worker) == (1, 0)


def test_workers_are_placed_by_size_and_side_by_side():
    hosts = cluster(4, 2).hosts
    assert place(2, hosts, "cpu") == ("a", "b") or place(2, hosts, "cpu") == ("a", "a")
    assert place(3, hosts, "cpu") == ("a", "a", "b")
    assert place(6, hosts, "cpu") == ("a", "a", "a", "a", "b", "b")
    assert place(2, cluster(2, 2).hosts, "cpu") == ("a", "b")


def test_less_than_one_worker_is_bad_usage():
    with pytest.raises(UsageError):
        plan(Job(script="t.py", workers=0), cluster(4), program())


GPU = cluster(4, gpus=1)


@pytest.mark.parametrize(
    ("there", "job", "found"),
    [
        (GPU, {}, "exact"),
        (GPU, {"relaxed": True}, "relaxed"),
        (GPU, {"accelerate": "off"}, ""),
        (GPU, {"workers": 2}, ""),
        (GPU, {"strategy": "local-sgd", "relaxed": True}, ""),
        (GPU, {"strategy": "single"}, "exact"),
        (cluster(4), {}, ""),
        (cluster(4), {"accelerate": "on"}, "exact"),
        (cluster(4, gpus=2), {}, ""),
        (cluster(4, gpus=2), {"accelerate": "on"}, "exact"),
        (cluster(4, 4, gpus=1), {}, ""),
    ],
)
def test_one_worker_is_accelerated_where_there_is_one_gpu_or_where_it_is_asked_for(
    there, job, found
):
    job = Job(script="t.py", **{"accelerate": "auto", **job})
    made = plan(job, there, program())
    assert made.accelerate == found
    if found:
        assert (made.num_workers, made.strategy.kind) == (1, "single")
        assert made.device == ("cuda" if there.hosts[0].num_gpus else "cpu")


@pytest.mark.parametrize("job", [{"workers": 2}, {"strategy": "gossip"}, {"strategy": "auto"}])
def test_acceleration_of_several_workers_is_refused(job):
    with pytest.raises(UsageError, match="for one worker") as error:
        plan(Job(script="t.py", accelerate="on", **job), GPU, program())
    assert "leave out" in error.value.remedy


def test_scripts_that_start_themselves_are_not_accelerated():
    made = plan(Job(script="t.py", accelerate="on"), GPU, program(launch="torchrun"))
    assert made.accelerate == ""
