"""What a lab is made of on machines of every kind, decided without making anything."""

import dataclasses
import re

import pytest

from reparto.lab import Flags, Machine, lay_out, read_lab
from reparto.lab._layout import bridge_name, namespace, quota_of
from reparto.lab._machine import control_groups
from reparto.spec import Lab, LabHost, LabLink, Line, from_json, to_json

PLAIN = Machine(num_cores=4)
V1 = Machine(
    cgroups=1, cpu_folders=("/cg/cpu", "/cg/cpuacct"), memory_folder="/cg/memory", num_cores=4
)
V2 = Machine(cgroups=2, cpu_folders=("/cg",), memory_folder="/cg", num_cores=4)
NETEM = Machine(netem=True, num_cores=4)
LACKING = Machine(lacks="you are not root", num_cores=4)
MACHINES = pytest.mark.parametrize(
    "machine", [PLAIN, V1, V2, NETEM], ids=["plain", "v1", "v2", "netem"]
)

DELAY = {"delay": "5ms", "jitter": "1ms", "loss": 0.01}


def lab(nodes=2, **of_host):
    return read_lab(None, Flags(nodes=nodes, of_host=of_host))


def commands(layout, *words):
    """The commands that hold all the words, as text."""
    return [line for line in layout.as_text().splitlines() if all(word in line for word in words)]


def test_each_host_has_a_namespace_an_address_and_a_port_of_the_bridge():
    made = lab(3)
    layout = lay_out(made, PLAIN)
    assert layout.kind == "kernel"
    assert [host.name for host in layout.cluster.hosts] == ["node-1", "node-2", "node-3"]
    addresses = [host.address for host in layout.cluster.hosts]
    assert len(set(addresses)) == 3
    for host, address in zip(made.hosts, addresses, strict=True):
        space = namespace(made, host)
        assert commands(layout, "netns add", space)
        assert commands(layout, f"-n {space}", f"address add {address}/24 dev eth0")
        assert commands(layout, "veth peer name eth0", f"netns {space}")
    assert len(commands(layout, f"master {bridge_name(made)}")) == 3
    assert not commands(layout, "tc")
    assert layout.notes == ()


def test_what_a_host_sends_and_what_it_receives_are_limited_apart():
    made = lab(1, up="20mbit", down="50mbit")
    layout = lay_out(made, PLAIN)
    (sent,) = commands(layout, "tc -n", "dev eth0")
    assert "root handle 10: tbf rate 20000000bit" in sent
    (received,) = commands(layout, "tc qdisc add")
    assert f"dev {bridge_name(made)}.0 root tbf rate 50000000bit" in received


@pytest.mark.parametrize(("way", "where"), [("up", "dev eth0"), ("down", "dev rp")])
def test_one_way_alone_can_be_limited(way, where):
    (only,) = commands(lay_out(lab(1, **{way: "20mbit"}), PLAIN), "tc")
    assert where in only


@pytest.mark.parametrize(
    ("rate", "burst"), [("256kbit", 3_200), ("20mbit", 16_000), ("1gbit", 250_000)]
)
def test_a_bucket_is_small_against_a_second_and_holds_two_packets(rate, burst):
    (only,) = commands(lay_out(lab(1, up=rate), PLAIN), "tc")
    assert f"burst {burst} " in only


def test_delay_and_loss_are_netem_where_the_kernel_has_it():
    layout = lay_out(lab(1, rate="20mbit", **DELAY), NETEM)
    netem, bucket = commands(layout, "tc -n")
    assert "root handle 1: netem" in netem
    assert "delay 5000us 1000us loss 1%" in netem
    assert "parent 1:1 handle 10: tbf" in bucket
    assert layout.cluster.hosts[0].line is None
    assert layout.notes == ()


def test_without_netem_workers_emulate_delay_and_loss_but_not_the_rate():
    layout = lay_out(lab(1, rate="20mbit", **DELAY), PLAIN)
    assert not commands(layout, "netem")
    assert len(commands(layout, "tbf")) == 2
    assert layout.cluster.hosts[0].line == Line(delay_s=0.005, jitter_s=0.001, loss=0.01)
    assert "no netem" in layout.notes[0]


def test_netem_is_left_out_where_nothing_is_delayed_or_lost():
    assert not commands(lay_out(lab(1, rate="20mbit"), NETEM), "netem")


def linked(up=1e8):
    hosts = tuple(LabHost(name=name, line=Line(up_bits_per_s=up)) for name in "abc")
    return Lab(name="l", hosts=hosts, links=(LabLink(between=("a", "c"), rate_bits_per_s=1e7),))


@pytest.mark.parametrize(("up", "whole"), [(1e8, "100000000bit"), (None, "100000000000bit")])
def test_a_narrow_way_is_a_class_of_each_end_within_its_line(up, whole):
    layout = lay_out(linked(up), PLAIN)
    addresses = {host.name: host.address for host in layout.cluster.hosts}
    for one, other in (("a", "c"), ("c", "a")):
        of_host = commands(layout, f"tc -n reparto-l.{one} ")
        assert not [line for line in of_host if "tbf" in line]
        assert any("handle 10: htb default 1" in line for line in of_host)
        assert any(f"parent 10: classid 10:fff htb rate {whole}" in line for line in of_host)
        assert any(f"classid 10:1 htb rate 8kbit ceil {whole}" in line for line in of_host)
        (filtered,) = [line for line in of_host if "u32" in line]
        assert f"dst {addresses[other]}/32" in filtered
        narrow = filtered.split()[-1]
        assert any(f"classid {narrow} htb rate 8kbit ceil 10000000bit" in line for line in of_host)
    beside = commands(layout, "tc -n reparto-l.b ")
    assert not [line for line in beside if "htb" in line]


def test_classes_hang_below_netem():
    made = dataclasses.replace(
        linked(), hosts=tuple(LabHost(name=name, line=Line(delay_s=0.01)) for name in "abc")
    )
    (root,) = commands(lay_out(made, NETEM), "reparto-l.a ", "htb default")
    assert "parent 1:1 handle 10: htb" in root


def test_version_1_limits_by_period_and_quota_and_counts_in_its_own_hierarchy():
    layout = lay_out(lab(1, cpu=0.3, memory="1GiB"), V1)
    assert commands(layout, "echo 10000 > /cg/cpu/reparto-lab.node-1/cpu.cfs_period_us")
    assert commands(layout, "echo 3000 > /cg/cpu/reparto-lab.node-1/cpu.cfs_quota_us")
    assert commands(
        layout, "echo 1073741824 > /cg/memory/reparto-lab.node-1/memory.limit_in_bytes"
    )
    enter = layout.cluster.hosts[0].enter
    for folder in ("cpu", "cpuacct", "memory"):
        assert commands(layout, f"mkdir -p /cg/{folder}/reparto-lab.node-1")
        assert f"echo $$ > /cg/{folder}/reparto-lab.node-1/cgroup.procs" in enter[2]


def test_version_2_hands_its_controllers_down_before_any_group_is_made():
    layout = lay_out(lab(2, cpu=0.3, memory="1GiB"), V2)
    lines = layout.as_text().splitlines()
    (handed,) = commands(layout, "cgroup.subtree_control")
    assert "'echo +cpu +memory > /cg/" in handed
    assert lines.index(handed) < lines.index("mkdir -p /cg/reparto-lab.node-1")
    assert commands(layout, "echo 3000 10000 > /cg/reparto-lab.node-2/cpu.max")
    assert commands(layout, "echo 1073741824 > /cg/reparto-lab.node-2/memory.max")


def test_without_control_groups_hosts_have_a_network_and_the_rest_is_told():
    layout = lay_out(lab(1, cpu=0.3, memory="1GiB"), PLAIN)
    assert not commands(layout, "mkdir") and not commands(layout, "echo")
    assert "cgroup" not in layout.cluster.hosts[0].enter[2]
    assert [note.partition(":")[0] for note in layout.notes] == [
        "CPU shares are not limited",
        "memory is not limited",
    ]


def test_hosts_that_ask_for_more_cores_than_there_are_share_them():
    assert lay_out(lab(4, cpu=1), V1).notes == ()
    (note,) = lay_out(lab(5, cpu=1), V1).notes
    assert "5 cores, and there are 4" in note


@pytest.mark.parametrize("cpu", [0.01, 0.05, 0.1, 0.3, 0.45, 1, 2.5, 64])
def test_a_quota_is_no_shorter_than_the_kernel_takes(cpu):
    period, quota = quota_of(cpu)
    assert quota >= 1000
    assert 10_000 <= period <= 1_000_000
    assert quota / period == pytest.approx(cpu, rel=0.01)


@pytest.mark.parametrize(("cpu", "cores"), [(None, 4), (0.3, 1), (1.5, 2)])
def test_cores_that_workers_may_use_follow_the_share(cpu, cores):
    for machine in (V1, LACKING):
        assert lay_out(lab(1, cpu=cpu), machine).cluster.hosts[0].num_cores == cores


def test_where_the_kernel_may_not_be_used_lines_are_emulated_and_the_reason_is_told():
    made = dataclasses.replace(
        linked(), hosts=(LabHost(name="a", cpu=0.5, memory_bytes=1 << 30), *linked().hosts[1:])
    )
    layout = lay_out(made, LACKING)
    assert (layout.kind, layout.up, layout.down) == ("emulated", (), ())
    assert [host.line for host in layout.cluster.hosts] == [host.line for host in made.hosts]
    assert {host.enter for host in layout.cluster.hosts} == {()}
    lines, cpu, memory, links = layout.notes
    assert lines.endswith("you are not root")
    assert cpu.startswith("CPU") and memory.startswith("memory") and links.startswith("links")


def test_emulation_can_be_asked_for_also_where_the_kernel_could():
    layout = lay_out(lab(2, rate="20mbit"), V1, emulate=True)
    assert layout.kind == "emulated"
    assert layout.notes == ("lines are emulated by the workers' own groups: --emulate",)


@MACHINES
def test_names_are_no_longer_than_the_kernel_takes(machine):
    hosts = tuple(LabHost(name=f"{'h' * 37}{index:03}") for index in range(250))
    layout = lay_out(Lab(name="l" * 40, hosts=hosts), machine)
    links = re.findall(r"link add (\S+)", layout.as_text())
    spaces = re.findall(r"netns add (\S+)", layout.as_text())
    assert len(set(links)) == 251 and max(map(len, links)) <= 15
    assert len(set(spaces)) == 250 and max(map(len, spaces)) <= 255
    assert len({host.address for host in layout.cluster.hosts}) == 250


def test_labs_of_two_names_share_nothing():
    one, two = (dataclasses.replace(lab(2), name=name) for name in ("one", "two"))
    names = [
        set(re.findall(r"(?:link add|netns add|mkdir -p) (\S+)", lay_out(each, V1).as_text()))
        for each in (one, two)
    ]
    assert names[0] and not names[0] & names[1]


@MACHINES
def test_down_removes_all_that_up_makes(machine):
    layout = lay_out(lab(3, rate="20mbit", cpu=0.3, memory="1GiB"), machine)
    down = "\n".join(" ".join(command) for command in layout.down)
    for link in re.findall(r"link add (\S+)", layout.as_text()):
        assert f"ip link del {link}" in down.splitlines()
    for space in re.findall(r"netns add (\S+)", layout.as_text()):
        assert f"ip netns del {space}" in down.splitlines()
        assert f"ip netns pids {space} " in down
    removed = {word for line in re.findall(r"rmdir ([^;]+);", down) for word in line.split()}
    assert removed == set(re.findall(r"mkdir -p (\S+)", layout.as_text()))


@MACHINES
def test_a_layout_survives_being_written_down(machine):
    layout = lay_out(lab(2, rate="20mbit", cpu=0.3, **DELAY), machine)
    assert from_json(type(layout), to_json(layout)) == layout


def mounts(*lines):
    return "".join(f"{line} 0 0\n" for line in ("proc /proc proc rw", *lines))


CG1 = (
    "tmpfs /sys/fs/cgroup tmpfs rw,mode=755",
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct",
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory",
    "cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd",
)
APART = ("cgroup /cg/cpu cgroup rw,cpu", "cgroup /cg/cpuacct cgroup rw,cpuacct")
UNIFIED = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (mounts(), (0, (), "")),
        (mounts(*CG1), (1, ("/sys/fs/cgroup/cpu,cpuacct",), "/sys/fs/cgroup/memory")),
        (mounts(*APART), (1, ("/cg/cpu", "/cg/cpuacct"), "")),
        (mounts(UNIFIED, *CG1), (1, ("/sys/fs/cgroup/cpu,cpuacct",), "/sys/fs/cgroup/memory")),
        (
            mounts("cgroup2 /sys/fs/cgroup cgroup2 rw"),
            (2, ("/sys/fs/cgroup",), "/sys/fs/cgroup"),
        ),
        (
            mounts("cgroup2 /sys/fs/cgroup cgroup2 rw", "cgroup /old cgroup rw,name=systemd"),
            (2, ("/sys/fs/cgroup",), "/sys/fs/cgroup"),
        ),
    ],
    ids=["none", "v1", "v1 apart, no memory", "hybrid", "v2", "v2 with a v1 that limits nothing"],
)
def test_control_groups_are_found_where_they_are_mounted(text, expected):
    assert control_groups(text) == expected
