"""The peers engine: one command a machine, and TF_CONFIG; here all machines are this one."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from tests.conftest import LIMIT_S, TRAIN, Cli, ForkedCli
from tests.patience import free_port

from reparto import api, engines
from reparto.cli._doctor import _task
from reparto.engines import Launch, WorkerLaunch, _circle
from reparto.engines._circle import Hub, Spoke
from reparto.engines._peers import PeersEngine, PeersRun
from reparto.engines._statement import differences, statement_of
from reparto.engines._tf_config import Peer, task_of
from reparto.errors import EngineError, UsageError
from reparto.spec import Assignment, Job, Options, Plan, Program, SourceFile, StrategyConfig


def config(workers, index=0, kind="worker", **more):
    return json.dumps(
        {"cluster": {"worker": workers, **more}, "task": {"type": kind, "index": index}}
    )


TWO = ["10.0.0.1:23456", "10.0.0.2:23456"]


# ------------------------------------------------------------------------------------ TF_CONFIG


def test_chief_is_first_and_each_machine_finds_its_place():
    text = config(TWO, index=1, chief=["10.0.0.9:1"], ps=["10.0.0.7:1"])
    task = task_of({"TF_CONFIG": text})
    assert [peer.name for peer in task.peers] == ["10.0.0.9", "10.0.0.1", "10.0.0.2"]
    assert task.position == 2
    assert task_of({"TF_CONFIG": config(TWO, kind="chief", chief=["10.0.0.9:1"])}).position == 0


def test_hosts_of_one_address_are_told_apart_by_port():
    task = task_of({"TF_CONFIG": config(["localhost:1", "localhost:2", "other:1"])})
    assert [peer.name for peer in task.peers] == ["localhost:1", "localhost:2", "other"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{worker", "is no JSON"),
        ("[]", "has no 'cluster'"),
        ('{"cluster": {"worker": ["a:1"]}}', "has no 'task'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}', "no index"),
        (config(TWO, index=1.9), "no index"),
        (config(TWO, index=True), "no index"),
        (config([]), "neither a chief nor a worker"),
        (config("a:1"), "no list of addresses"),
        (config(TWO, index=2), "index 2, but 2 of the type 'worker'"),
        (config(TWO, index=-1), "index -1"),
        (config(TWO, kind="boss"), "type 'boss'"),
        (config(["10.0.0.1"]), "host:port"),
        (config(["10.0.0.1:http"]), "host:port"),
        (config(["10.0.0.1:²"]), "host:port"),
        (config(["[::1]:80"]), "IPv4"),
        (config(["a:1", "a:1"]), "names a:1 twice"),
    ],
)
def test_config_that_is_wrong_says_what_and_how_to_correct_it(text, words):
    with pytest.raises(UsageError) as caught:
        task_of({"TF_CONFIG": text})
    assert words in str(caught.value)
    assert "TF_CONFIG" in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("given", "env", "expected"),
    [
        ("", {}, "local"),
        ("", {"TF_CONFIG": config(TWO)}, "peers"),
        ("", {"TF_CONFIG": config(TWO[:1])}, "local"),
        ("", {"TF_CONFIG": config(TWO[:1], kind="ps", ps=["a:1"])}, "peers"),
        ("local", {"TF_CONFIG": config(TWO)}, "local"),
        ("ray", {"TF_CONFIG": "{nonsense"}, "ray"),
    ],
)
def test_engine_is_the_given_one_or_peers_where_there_are_several_hosts(given, env, expected):
    assert engines.engine_for(given, env) == expected


def test_doctor_tells_what_the_config_says(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert _task() == ([], [])
    monkeypatch.setenv("TF_CONFIG", config(TWO, index=1))
    told = ("TF_CONFIG", "this is worker 1, host 2 of 2 (10.0.0.1, 10.0.0.2)")
    assert _task() == ([told], [])


# ------------------------------------------------------------------------------- what is planned


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def test_every_machine_plans_the_same_workers(script, monkeypatch):
    launches = []
    for index in (0, 1):
        monkeypatch.setenv("TF_CONFIG", config(TWO, index=index))
        launches.append(api.dry_run(Job(script=script, engine="peers", workers=4)))
    assert launches[0] == launches[1]
    hosts = [(worker.rank, worker.host) for worker in launches[0].workers]
    assert hosts == [(0, "10.0.0.1"), (1, "10.0.0.1"), (2, "10.0.0.2"), (3, "10.0.0.2")]
    assert [worker.env["LOCAL_RANK"] for worker in launches[0].workers] == ["0", "1", "0", "1"]


def test_each_host_has_one_worker_unless_more_are_asked_for(script, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config(TWO))
    assert len(api.dry_run(Job(script=script, engine="peers")).workers) == 2
    with pytest.raises(UsageError, match="3 workers on 2 hosts"):
        api.dry_run(Job(script=script, engine="peers", workers=3))


def test_proofs_do_not_run_on_peers(script, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config(TWO))
    with pytest.raises(UsageError, match="only `reparto run`"):
        api.dry_run(Job(script=script, engine="peers", options=Options(discard_writes=True)))


@pytest.mark.parametrize("more", [{"address": "auto"}, {"ship": ("data",)}])
def test_engine_refuses_what_it_cannot_do(more, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config(TWO))
    with pytest.raises(UsageError):
        PeersEngine(**more)


def test_engine_says_that_it_needs_the_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UsageError, match="needs TF_CONFIG"):
        PeersEngine()


# ------------------------------------------------------------------------------ what is compared


def statement(text="x = 1", folder="/home/a", settings=None, **changes):
    files = (SourceFile(path=f"{folder}/t.py", module="__main__", original=text, converted=text),)
    plan = {"num_workers": 2, "placement": ("a", "b"), **changes}
    assignment = Assignment(
        program=Program(script=f"{folder}/t.py", files=files),
        plan=Plan(strategy=StrategyConfig(kind="all-reduce", settings=settings or {}), **plan),
        options=Options(),
    )
    return statement_of(assignment, (Peer(name="a", address="a", port=1),))


def test_threads_folders_and_the_order_of_settings_may_differ():
    one = statement(settings={"x": 1, "y": 2})
    other = statement(folder="/home/b", threads_per_worker=7, settings={"y": 2, "x": 1})
    assert differences(one, other, ("a", "b")) == ""


def test_line_that_only_one_machine_plays_is_named(monkeypatch):
    monkeypatch.delenv("REPARTO_LINE", raising=False)
    one = statement()
    monkeypatch.setenv("REPARTO_LINE", '{"delay_s": 1}')
    found = differences(one, statement(), ("a", "b"))
    assert found == "REPARTO_LINE: not set on a, set on b"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (statement("x = 2"), "t.py is not the same text"),
        (statement(device="cuda"), "device: cpu on a, cuda on b"),
        ({**statement(), "reparto": "9"}, "9 on b"),
        ({**statement(), "torch": "1.0"}, "1.0 on b"),
        ({**statement(), "helper.py": "sha256:0"}, "helper.py is used on b only"),
    ],
)
def test_difference_is_named(other, words):
    assert words in differences(statement(), other, ("a", "b"))


# ------------------------------------------------------------------------------------ the circle


@pytest.fixture
def peers():
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listen:
        first = Peer(name="a", address="127.0.0.1", port=port)
        others = (Peer(name=name, address="127.0.0.1", port=1) for name in "bc")
        yield listen, (first, *others)


def turned(*ends, until, limit_s=60.0):
    """Let all take turns until something holds; return what each has heard."""
    heard = {end: [] for end in ends}
    end_s = time.monotonic() + limit_s
    while not until(heard):
        assert time.monotonic() < end_s, heard
        for end in ends:
            heard[end] += end.turn()
    return heard


@pytest.fixture
def circle(peers):
    listen, peers = peers
    ends = [Hub(listen, peers, {"x": "1"}), *(Spoke(peers, k, {"x": "1"}) for k in (1, 2))]
    turned(*ends, until=lambda _: all(end.is_complete for end in ends))
    yield ends
    for end in ends:
        end.close()


def test_everybody_hears_what_one_tells(circle):
    circle[1].tell(kind="ended", rank=1)
    circle[0].tell(kind="ended", rank=0)
    heard = turned(*circle, until=lambda heard: len(heard[circle[2]]) == 2)
    assert {(each["from"], each["rank"]) for each in heard[circle[2]]} == {(0, 0), (1, 1)}
    assert [each["from"] for each in heard[circle[1]]] == [0]


def test_only_the_first_machine_hears_who_has_heard(circle):
    hub, one, other = circle
    one.tell(kind="stopping")
    one.tell(kind="ended", rank=1)
    heard = turned(*circle, until=lambda heard: heard[other])
    assert [each["kind"] for each in heard[hub]] == ["stopping", "ended"]
    assert [each["kind"] for each in heard[other]] == ["ended"]


def test_hanging_up_has_one_limit_for_all_machines_and_none_for_strangers(circle, monkeypatch):
    monkeypatch.setattr(_circle, "CLOSE_LIMIT_S", 3.0)
    hub = circle[0]
    first = hub.peers[0]
    strangers = [socket.create_connection((first.address, first.port)) for _ in range(3)]
    while len(hub._strangers) < len(strangers):
        hub._strangers.append(_circle.Line(hub._listen.accept()[0]))
    since = time.monotonic()
    hub.close()  # nobody hangs up at the other end
    assert time.monotonic() - since < 5.9  # one after the other they would take six
    for stranger in strangers:
        stranger.close()


def test_machine_that_hangs_up_is_missed_by_all(circle):
    circle[2]._line._socket.close()
    hub, spoke = circle[:2]
    heard = turned(hub, spoke, until=lambda heard: heard[spoke])
    assert heard[hub] == heard[spoke] == [{"kind": "gone", "from": 2}]


def test_strangers_at_the_door_do_no_harm(peers):
    listen, (first, second, _) = peers
    hub = Hub(listen, (first, second), {})
    with socket.create_connection((first.address, first.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + b'{"kind": "hello"}\n')
        spoke = Spoke((first, second), 1, {})
        turned(hub, spoke, until=lambda _: hub.is_complete and spoke.is_complete)
    spoke.close()
    hub.close()


def test_two_machines_of_one_index_are_told(peers):
    listen, peers = peers
    hub = Hub(listen, peers, {})
    one, other = (Spoke(peers, 1, {}) for _ in range(2))
    with pytest.raises(EngineError, match="two machines say that they are host 2"):
        turned(hub, one, other, until=lambda _: False)


def test_machine_with_more_hosts_is_told_that_the_hosts_differ(peers):
    listen, peers = peers
    hub = Hub(listen, peers[:2], {"hosts": "a b"})
    spoke = Spoke(peers, 2, {"hosts": "a b c"})
    with pytest.raises(EngineError, match="hosts: a b on a, a b c on host 3"):
        turned(hub, spoke, until=lambda _: False)
    with pytest.raises(EngineError, match="hosts: a b on a, a b c on host 3"):
        turned(spoke, until=lambda _: False)


def test_listener_that_always_hangs_up_is_given_up(peers, monkeypatch):
    monkeypatch.setattr(_circle, "MEET_LIMIT_S", 0.2)
    monkeypatch.setattr(_circle, "TRY_EVERY_S", 0.0)
    listen, peers = peers
    listen.setblocking(False)

    def hang_up(_):
        if (connection := _circle._accepted(listen)) is not None:
            connection.close()

    with pytest.raises(EngineError, match=r"was not reached.*it hung up"):
        turned(Spoke(peers, 1, {}), until=hang_up)


def test_machines_that_do_not_run_the_same_are_told_the_difference(peers):
    listen, peers = peers
    ends = [Hub(listen, peers, {"x": "1"}), Spoke(peers, 1, {"x": "2"})]
    told = []
    while len(told) < 2:
        for end in ends:
            try:
                end.turn()
            except EngineError as error:
                told.append(str(error))
    assert "x: 1 on a, 2 on b" in told[0]
    assert told[0] == told[1]


def test_machine_that_is_not_reached_is_named_with_what_to_look_for(peers, monkeypatch):
    monkeypatch.setattr(_circle, "MEET_LIMIT_S", 0.0)
    listen, peers = peers
    hub = Hub(listen, peers, {})
    with pytest.raises(EngineError, match="b, c did not come") as caught:
        turned(hub, until=lambda _: False)
    assert "firewall" in str(caught.value)
    listen.close()
    where = f"{peers[0].address}:{peers[0].port}"
    with pytest.raises(EngineError, match=f"{where}.*not reached.*Connection refused") as caught:
        turned(Spoke(peers, 1, {}), until=lambda _: False)
    for word in ("firewall", "index", "start"):
        assert word in caught.value.remedy


# ----------------------------------------------------------------- one machine, and an end of ours


def one_of_two(peers, code):
    """Machine 0, whose worker runs some code, and the other end of its circle."""
    listen, peers = peers
    listen.close()
    command = (sys.executable, "-c", code)
    workers = [WorkerLaunch(rank=k, host=peers[k].name, command=command, env={}) for k in (0, 1)]
    run = PeersRun(Launch(engine="peers", workers=tuple(workers)), peers[:2], 0)
    plan = Plan(strategy=StrategyConfig(kind="single"), num_workers=2, placement=("a", "b"))
    assignment = Assignment(program=Program(script="t.py"), plan=plan, options=Options())
    run.assign(assignment)
    return run, Spoke(peers[:2], 1, statement_of(assignment, peers[:2]))


def heard_by(spoke, run, until):
    heard, end_s = [], time.monotonic() + 60
    while not until(heard):
        assert time.monotonic() < end_s, heard
        run.poll(0.0)
        heard += spoke.turn()
    return heard


def test_worker_that_ends_while_it_stands_by_is_told_of_and_not_told_to_go(peers):
    run, spoke = one_of_two(peers, "raise SystemExit(3)")
    worker = run._workers[0]
    number = worker._control
    reader, writer = os.pipe()
    while worker.status is None:
        run.poll(0.05)
    os.dup2(writer, number)  # another file has the number of its pipe by now
    heard = heard_by(spoke, run, lambda heard: any(one["kind"] == "ended" for one in heard))
    assert [one["status"] for one in heard if one["kind"] == "ended"] == [3]
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    spoke.close()
    assert run.wait().status == "failed"
    for each in (reader, writer, number):
        os.close(each)


def test_request_to_stop_is_not_told_again(peers):
    run, spoke = one_of_two(peers, "import time; time.sleep(60)")
    heard_by(spoke, run, lambda _: spoke.is_complete)
    spoke.tell(kind="stop", now=True)
    heard = heard_by(spoke, run, lambda heard: any(one["kind"] == "ended" for one in heard))
    assert {one["kind"] for one in heard} & {"stop", "stopping"} == set()
    spoke.close()
    assert run.wait().status == "stopped"


# --------------------------------------------------------------------- two commands side by side


@pytest.fixture
def machines(request, tmp_path):
    """Two machines of a cluster: each has a folder of its own, and its TF_CONFIG."""
    kind = ForkedCli if request.node.get_closest_marker("forked") else Cli
    hosts = [f"127.0.0.1:{free_port()}", "127.0.0.2:1"]
    both = []
    for index, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        both.append(kind(tmp_path / name))
        both[-1].env["TF_CONFIG"] = config(hosts, index=index)
    yield both
    for machine in both:
        for pid in machine.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def started(machines, text, *words):
    for machine in machines:
        machine.write(text)
    return [machine.start("run", "--no-probe", *words, "train.py") for machine in machines]


def ended(processes, timeout=LIMIT_S):
    told = [process.communicate(timeout=timeout) for process in processes]
    return [
        subprocess.CompletedProcess("", process.returncode, out, err)
        for process, (out, err) in zip(processes, told, strict=True)
    ]


def test_two_machines_train_as_one(machines):
    text = TRAIN + 'torch.save(model.state_dict(), "model.pt")\n'
    first, second = ended(started(machines, text))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == machines[0].python("train.py").stdout != ""
    assert second.stdout == ""
    assert "this machine has worker 1 of 2; 127.0.0.1 shows the script's output" in second.stderr
    assert re.search(r"done after .* · 16 steps", second.stderr)
    assert (machines[0].folder / "model.pt").exists()
    assert not (machines[1].folder / "model.pt").exists()


@pytest.mark.forked
def test_workers_meet_where_the_config_says_though_the_way_has_another_address(machines):
    port = json.loads(machines[0].env["TF_CONFIG"])["cluster"]["worker"][0].split(":")[1]
    for index, machine in enumerate(machines):
        machine.env["TF_CONFIG"] = config([f"127.0.0.2:{port}", "127.0.0.1:1"], index=index)
    for done in ended(started(machines, TRAIN, "--steps", 2)):
        assert done.returncode == 0, done.stderr


@pytest.mark.forked
def test_first_step_is_checked_on_the_first_machine_only(machines):
    for machine in machines:
        machine.write(TRAIN)
    first, second = ended([machine.start("run", "train.py") for machine in machines])
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert re.search("first step (is equal|was checked)", first.stderr)
    assert "first step" not in second.stderr


def test_script_that_distributes_itself_meets_at_the_port_of_the_config(machines):
    script = """\
    import os
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = torch.tensor(dist.get_rank() + 1)
    dist.all_reduce(rank)
    print(rank.item(), os.environ["MASTER_PORT"])
    dist.destroy_process_group()
    """
    first, second = ended(started(machines, textwrap.dedent(script)))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    port = json.loads(machines[0].env["TF_CONFIG"])["cluster"]["worker"][0].split(":")[1]
    assert first.stdout == f"3 {port}\n"


@pytest.mark.forked
@pytest.mark.parametrize(
    "words",
    [
        ("--workers", 4, "--strategy", "local-sgd", "--relaxed"),
        ("--strategy", "parameter-server", "--set", "mode=stale", "--relaxed"),
    ],
    ids=["local-sgd", "server"],
)
def test_relaxed_strategies_run_on_two_machines(machines, words):
    for done in ended(started(machines, TRAIN, *words)):
        assert done.returncode == 0, done.stderr
        assert "16 steps" in done.stderr


def failing(action):
    """The script, in which worker 1 does something after its ninth step."""
    text = TRAIN.replace("import sys\n", "import os, signal, sys\n")
    begin, end = text.split("        optimizer.step()\n")
    when = "if os.environ['RANK'] == '1' and epoch == 1:"
    return f"{begin}        optimizer.step()\n        {when}\n            {action}\n{end}"


@pytest.mark.forked
def test_failure_on_one_machine_is_told_on_both(machines):
    text = failing('raise ValueError("on purpose")')
    for done in ended(started(machines, text)):
        assert done.returncode == 1
        assert re.search(r"worker 1 of 2 on .*train.py:\d+: ValueError: on purpose", done.stderr)
        assert done.stderr.count("Traceback (most recent call last)") == 1
    assert machines[0].running() == machines[1].running() == []


@pytest.mark.forked
def test_worker_that_is_killed_ends_the_run_on_both_machines(machines):
    text = failing("os.kill(os.getpid(), signal.SIGKILL)")
    for done in ended(started(machines, text)):
        assert done.returncode == 1
        assert "worker 1 of 2 on 127.0.0.2 was killed by SIGKILL" in done.stderr


ENDLESS = TRAIN.replace("range(2)", "range(1_000_000)").replace(
    '    print("epoch"', '    if epoch % 20 == 0: print("epoch"'
)


def under_way(machines, *words):
    processes = started(machines, ENDLESS, *words)
    for line in processes[0].stdout:
        if line.startswith("epoch 20"):
            return processes
    raise AssertionError([process.stderr.read() for process in processes])


@pytest.mark.forked
@pytest.mark.alone
@pytest.mark.parametrize("dead", [0, 1])
def test_machine_that_is_gone_ends_the_run_on_the_other(machines, dead):
    processes = under_way(machines)
    processes[dead].kill()
    since = time.monotonic()
    _, stderr = processes[1 - dead].communicate(timeout=60)
    assert time.monotonic() - since < 10
    assert processes[1 - dead].returncode == 1
    assert f"worker {dead} of 2 on 127.0.0.{dead + 1}" in stderr
    assert "HostLost" in stderr
    processes[dead].communicate()
    assert max(machine.seconds_until_gone() for machine in machines) < 5


@pytest.mark.alone  # workers have a moment to come to the end of a step
@pytest.mark.parametrize("asked", [0, 1])
def test_stop_on_one_machine_ends_all_after_the_same_step(machines, asked):
    for _ in range(3):  # one of a busy machine may take longer than that
        processes = under_way(machines)
        command = [sys.executable, "-m", "reparto", "stop", str(processes[asked].pid)]
        assert subprocess.run(command, timeout=LIMIT_S, capture_output=True).returncode == 0
        results = ended(processes)
        assert [done.returncode for done in results] == [130, 130], results
        assert f"asked to stop on 127.0.0.{asked + 1}" in results[1 - asked].stderr
        if (machines[0].folder / "reparto-checkpoint").exists():
            break
    (checkpoint,) = (machines[0].folder / "reparto-checkpoint").iterdir()
    for done in results:
        assert f"saved in reparto-checkpoint/{checkpoint.name}" in done.stderr
    assert not (machines[1].folder / "reparto-checkpoint").exists()


def test_ctrl_c_while_others_are_missing_ends_at_once(machines):
    machines[1].write(TRAIN)
    process = machines[1].start("run", "train.py")
    told = []
    for line in process.stderr:
        told.append(line)
        if "waiting for 127.0.0.1:" in line:
            break
    else:
        pytest.fail("".join(told))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert machines[1].running() == []


def test_different_scripts_are_refused_before_they_run(machines):
    machines[0].write(TRAIN + "# one\n")
    machines[1].write(TRAIN + "# other\n")
    for done in ended([machine.start("run", "train.py") for machine in machines]):
        assert done.returncode == 1
        assert "do not run the same: train.py is not the same text" in done.stderr
        assert done.stdout == ""


@pytest.mark.forked
def test_script_that_stays_alone_runs_on_the_first_machine_only(machines):
    first, second = ended(started(machines, TRAIN, "--strategy", "single"))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == machines[0].python("train.py").stdout
    assert "the only worker is on 127.0.0.1: nothing to do here" in second.stderr


@pytest.mark.parametrize("kind", ["ps", "evaluator"])
def test_task_that_is_not_needed_ends_at_once(cli, train, kind):
    cli.env["TF_CONFIG"] = config(TWO, kind=kind, ps=["10.0.0.7:1"])
    done = cli.run("run", train)
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "nothing to do" in done.stderr


def test_port_that_is_taken_is_told(script, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("TF_CONFIG", config([f"127.0.0.1:{port}", "127.0.0.2:1"]))
        with pytest.raises(UsageError, match=f"cannot listen at port {port}"):
            api.run(Job(script=script, engine="peers"))
