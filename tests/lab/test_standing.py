"""Labs that are built and taken down: nothing is left, however it ends."""

import json
import os
import signal
import subprocess
import sys

import pytest

from reparto.errors import LabError, UsageError
from reparto.lab import down, find, stand, standing, up
from reparto.lab._layout import namespace
from tests.lab.kernel import clean, need_kernel, new_lab, traces

#: One after the other: who builds a lab sweeps those that were abandoned, also another test's.
pytestmark = pytest.mark.xdist_group("labs")

ENDLESS = """\
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(64, 4))
loader = torch.utils.data.DataLoader(data, batch_size=8)
for epoch in range(10**9):
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch == 0:
        print("trains", flush=True)
"""


@pytest.fixture
def lab():
    """A lab of two hosts, cleaned up after a test that failed."""
    need_kernel()
    made = new_lab(rate="100mbit", cpu=0.5, memory="1GiB")
    yield made
    clean(made)


def names():
    return [one.layout.lab.name for one in standing()]


def asked(layout, source, target):
    """Connect from one host to another: what the other one reads."""
    host = layout.cluster.hosts[target]
    serving = (
        "import socket, sys; s = socket.create_server((sys.argv[1], 5000)); print(flush=True)\n"
        "s.settimeout(60); c, who = s.accept(); print(who[0], c.recv(9).decode())"
    )
    calling = (
        "import socket, sys; socket.create_connection((sys.argv[1], 5000), 60).send(b'hello')"
    )
    python = (sys.executable, "-I", "-c")
    with subprocess.Popen(
        (*host.enter, *python, serving, host.address), stdout=subprocess.PIPE, text=True
    ) as server:
        server.stdout.readline()
        called = (*layout.cluster.hosts[source].enter, *python, calling, host.address)
        subprocess.run(called, check=True, timeout=90)
        return server.stdout.read().split()


@pytest.mark.root
def test_hosts_reach_each_other_by_their_addresses_and_nothing_is_left_after_down(lab):
    layout = up(lab)
    assert find(lab.name).layout == layout
    assert len(traces(lab)) >= 2 + 3 + 1  # namespaces, links, the record
    one, two = (host.address for host in layout.cluster.hosts)
    assert asked(layout, 0, 1) == [one, "hello"]
    assert asked(layout, 1, 0) == [two, "hello"]
    assert down(lab.name)
    assert traces(lab) == []
    assert find(lab.name) is None
    assert not down(lab.name)


@pytest.mark.root
def test_what_runs_on_a_host_ends_when_it_is_taken_down(lab):
    layout = up(lab)
    sleep = (*layout.cluster.hosts[0].enter, "sh", "-c", "echo inside; exec sleep 600")
    with subprocess.Popen(sleep, stdout=subprocess.PIPE, text=True) as sleeping:
        assert sleeping.stdout.readline() == "inside\n"  # it may still enter until then
        down(lab.name)
        assert sleeping.wait(60) == -signal.SIGKILL
    assert traces(lab) == []


@pytest.mark.root
def test_nothing_is_left_after_an_exception_inside_stand(lab):
    with pytest.raises(ZeroDivisionError), stand(lab):
        assert find(lab.name).pid == os.getpid()
        assert traces(lab)
        raise ZeroDivisionError
    assert traces(lab) == []


@pytest.mark.root
def test_what_was_made_before_a_command_fails_is_taken_away(lab):
    space = namespace(lab, lab.hosts[1])
    subprocess.run(["ip", "netns", "add", space], check=True)
    with pytest.raises(LabError, match=f"ip netns add {space}: "):
        up(lab)
    assert traces(lab) == []


@pytest.mark.root
def test_a_lab_that_stands_is_used_and_left_standing(lab):
    layout = up(lab)
    with stand(lab) as used:
        assert used == layout
    assert traces(lab)
    down(lab.name)


@pytest.mark.root
def test_an_abandoned_lab_is_swept_by_the_next_that_is_built(lab):
    # The process lives while the lab is built: a test beside this one may build one too.
    with subprocess.Popen(["sleep", "600"]) as holder:
        up(lab, pid=holder.pid)
        assert not find(lab.name).is_abandoned
        holder.kill()
    other = new_lab(1)
    with stand(other, emulate=True):
        assert lab.name not in names()
        assert traces(lab) == []


@pytest.mark.root
def test_an_abandoned_lab_is_built_anew_by_stand(lab):
    with subprocess.Popen(["sleep", "600"]) as holder:
        up(lab, pid=holder.pid)
        holder.kill()
    with stand(lab) as layout:
        assert find(lab.name).pid == os.getpid()
        assert asked(layout, 0, 1)[1] == "hello"
    assert traces(lab) == []


@pytest.mark.root
def test_down_cleans_up_after_a_run_that_was_killed(lab, cli):
    script = cli.write(ENDLESS)
    settings = ("--nodes", 2, "--rate", "100mbit", "--name", lab.name)
    running = cli.start("lab", "run", *settings, script)
    try:
        assert running.stdout.readline() == "trains\n", running.stderr.read()
        assert traces(lab)
    finally:
        running.kill()
        running.communicate()
    assert find(lab.name).is_abandoned
    listed = json.loads(cli.run("lab", "list", "--json", "-").stdout)["labs"]
    assert lab.name in [one["lab"]["name"] for one in listed]
    done = cli.run("lab", "down", lab.name)
    assert (done.returncode, done.stdout) == (0, f"{lab.name} is down\n"), done.stderr
    assert traces(lab) == []
    cli.seconds_until_gone()


def test_an_emulated_lab_stands_and_falls_by_name_also_without_root():
    lab = new_lab(rate="20mbit")
    layout = up(lab, emulate=True)
    try:
        assert layout.kind == "emulated"
        assert lab.name in names()
        with pytest.raises(UsageError, match=f"{lab.name} is up already"):
            up(lab, emulate=True)
        assert find(lab.name).layout == layout
    finally:
        assert down(lab.name)
    assert lab.name not in names()


def test_a_lab_of_the_same_name_with_other_settings_is_not_taken_for_it():
    lab = new_lab(rate="20mbit")
    with stand(lab, emulate=True):
        other = type(lab)(name=lab.name, hosts=lab.hosts[:1])
        with (
            pytest.raises(UsageError, match="with other settings"),
            stand(other, emulate=True),
        ):
            pass
        assert find(lab.name).layout.lab == lab
    assert find(lab.name) is None


def test_a_lab_is_abandoned_once_the_command_that_was_to_take_it_down_is_gone():
    lab = new_lab(1)
    with subprocess.Popen(["sleep", "600"]) as holder:
        up(lab, emulate=True, pid=holder.pid)
        assert not find(lab.name).is_abandoned
        holder.kill()
    left = find(lab.name)  # a test beside this one may have swept it already
    assert left is None or left.is_abandoned
    with stand(new_lab(1), emulate=True):
        assert find(lab.name) is None
