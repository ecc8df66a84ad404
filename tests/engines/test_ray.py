"""The Ray engine on this machine alone; ``tests/e2e/test_ray_cluster.py`` has two nodes."""

import signal
import sys
import time
from pathlib import Path

import pytest

from reparto import engines
from reparto.engines._ray import Place, hosts_of
from reparto.errors import EngineError, MissingExtraError, UsageError
from reparto.plan import plan_run
from reparto.spec import Cluster, Host, Job, Options, Program, SourceFile

pytestmark = pytest.mark.xdist_group("ray")  # one Ray at a time, also that of tests/e2e


def node(name, address, port=1, **resources):
    return {
        "NodeID": f"id-{address}-{port}",
        "NodeManagerHostname": name,
        "NodeManagerAddress": address,
        "NodeManagerPort": port,
        "Resources": resources,
    }


def launch(cluster, text="model(x)", **job):
    file = SourceFile(path="/t.py", module="__main__", original=text, converted=text)
    program = Program(script="/t.py", files=(file,))
    plan = plan_run(Job(script="/t.py", **job), cluster, program, {})
    return engines.build("ray").prepare(program, plan, cluster, Options())


def test_nodes_become_hosts_and_those_with_nothing_to_give_are_left_out():
    nodes = [
        node("a", "10.0.0.1", CPU=4.0, GPU=1.0),
        node("b", "10.0.0.2"),
        node("c", "10.0.0.3", CPU=2.0),
    ]
    a, c = hosts_of(nodes).values()
    assert (a.name, a.address, a.num_cores, a.num_gpus) == ("a", "10.0.0.1", 4, 1)
    assert (c.name, c.num_cores) == ("c", 2)


def test_nodes_of_one_machine_are_told_apart():
    same_name = [node("a", "10.0.0.1", CPU=1.0), node("a", "10.0.0.2", CPU=1.0)]
    assert [host.name for host in hosts_of(same_name).values()] == ["10.0.0.1", "10.0.0.2"]
    same_place = [node("a", "127.0.0.1", 5, CPU=1.0), node("a", "127.0.0.1", 6, CPU=1.0)]
    assert [host.name for host in hosts_of(same_place).values()] == ["127.0.0.1:5", "127.0.0.1:6"]


def test_each_node_is_asked_for_what_its_workers_use():
    cluster = Cluster(hosts=(Host(name="a", num_cores=4), Host(name="b", num_cores=4)))
    found = launch(cluster, workers=4)
    assert [(place.host, place.num_cpus) for place in found.places] == [("a", 4), ("b", 4)]
    assert [worker.host for worker in found.workers] == ["a", "a", "b", "b"]
    assert found.workers[2].env["LOCAL_RANK"] == "0"
    # They take turns then; asking for more than there is would be waiting for ever.
    assert [place.num_cpus for place in launch(cluster, workers=12).places] == [4, 4]


def test_gpus_are_asked_for_and_counted_from_0(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")  # the driver's: not those of the nodes
    cluster = Cluster(hosts=(Host(name="a", num_cores=8, num_gpus=2),))
    found = launch(cluster, "model.cuda()")
    assert found.places == (Place(host="a", address="127.0.0.1", num_cpus=8, num_gpus=2),)
    assert [worker.env["CUDA_VISIBLE_DEVICES"] for worker in found.workers] == ["0", "1"]


def test_path_to_ship_has_to_exist():
    with pytest.raises(UsageError, match="no nowhere to ship"):
        engines.build("ray", ship=("nowhere",))


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"reparto\[ray\]"):
        engines.build("ray").cluster()


@pytest.mark.alone
@pytest.mark.ray
def test_address_where_no_ray_is_says_so_at_once():
    pytest.importorskip("ray")
    begin = time.monotonic()
    with pytest.raises(EngineError, match=r"no Ray cluster was found at 127\.0\.0\.1:1"):
        engines.build("ray", address="127.0.0.1:1").cluster()
    assert time.monotonic() - begin < 30


@pytest.fixture
def alone(cli, tmp_path):
    """The command, where Ray finds no home to write to but one of its own."""
    pytest.importorskip("ray")
    cli.home = tmp_path / "home"
    cli.home.mkdir()
    cli.env |= {"HOME": str(cli.home)}
    cli.env.pop("RAY_ADDRESS", None)
    return cli


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_an_address_a_ray_of_its_own_is_started_and_ended(alone, train):
    expected = alone.python(train).stdout
    done = alone.run("run", "--engine", "ray", "--workers", 2, "--no-probe", train)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    alone.seconds_until_gone()
    assert not (alone.home / ".ray").exists()
    for noise in ("ray::", "raylet", "Usage stats", "dashboard", "core_worker", "WARNING"):
        assert noise not in done.stderr


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_script_is_asked_to_end_as_from_the_keyboard(alone):
    script = alone.write(
        "import time\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    print('closing', flush=True)\n"
        "    raise\n"
    )
    settings = ("--engine", "ray", "--workers", 1, "--strategy", "single", "--no-probe")
    for _ in range(3):  # it has a moment for that, which a busy machine may not give it
        process = alone.start("run", *settings, script)
        assert process.stdout.readline() == "waiting\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 130, stderr
        alone.seconds_until_gone()
        if stdout == "closing\n":
            break
    assert stdout == "closing\n", stderr


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_left_when_the_command_is_killed(alone, train):
    train.write_text(train.read_text().replace("range(2)", "range(10**6)"))
    process = alone.start("run", "--engine", "ray", "--workers", 2, "--no-probe", train)
    assert process.stdout.readline().startswith("epoch"), process.stderr.read()
    process.kill()
    process.communicate()
    # Ray's own daemons notice in their own time.
    until = time.monotonic() + 90
    while workers := [pid for pid in alone.running() if b"reparto" in command_line(pid)]:
        assert time.monotonic() < until, workers
        time.sleep(0.1)
