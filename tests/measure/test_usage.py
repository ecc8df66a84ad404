"""What a host uses: read from trees that look like a system's, and from this machine itself."""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.patience import quickest

from reparto.measure import UsageSampler, num_cores
from reparto.measure._control_groups import control_groups
from reparto.measure._gpu_watch import GpuWatch

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MEMORY = "MemTotal: 4096000 kB\nMemFree: 100 kB\nMemAvailable: 3072000 kB\n"
V1_MOUNTS = "".join(
    f"3{index} 31 0:28 / /sys/fs/cgroup/{names} rw,relatime - cgroup cgroup rw,{names}\n"
    for index, names in enumerate(("cpu", "cpuacct", "memory"))
)
V2_MOUNT = "32 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def devices(**counts):
    """The text of ``/proc/net/dev``: bytes received and sent, by interface."""
    rows = [f"{name:>6}: {taken} 9 0 0 0 0 0 0 {sent} 9 0 0 0 0 0 0\n" for name, (taken, sent)
            in counts.items()]  # fmt: skip
    return "Inter-|   Receive  |  Transmit\n face |bytes    packets|bytes\n" + "".join(rows)


def busy(seconds, num_cpus=4):
    """The text of ``/proc/stat`` of a machine whose cores have worked for so long in all."""
    ticks = int(seconds * TICKS_PER_S)
    cores = [f"cpu{n} 1 0 0 7 5 0 0 0 0 0" for n in range(num_cpus)]
    return "\n".join([f"cpu  {ticks} 0 0 777 55 0 0 0 {ticks} 0", *cores, "intr 1\n"])


class Tree:
    """A system that is made up, below a folder."""

    def __init__(self, root):
        self.root = root
        self.write("proc/stat", busy(10.0))
        self.write("proc/meminfo", MEMORY)
        self.write("proc/self/net/dev", devices(lo=(50, 50), eth0=(1000, 2000)))

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group_v1(self, path="/lab/a", quota_us=50000, memory_limit=1 << 30):
        own = "".join(f"4:{name}:{path}\n" for name in ("cpu", "cpuacct", "memory"))
        self.write("proc/self/cgroup", own + "0::/\n")
        self.write("proc/self/mountinfo", V1_MOUNTS)
        self.write(f"sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us", f"{quota_us}\n")
        self.write(f"sys/fs/cgroup/cpu{path}/cpu.cfs_period_us", "100000\n")
        self.write(f"sys/fs/cgroup/cpuacct{path}/cpuacct.usage", "7000000000\n")
        self.write(f"sys/fs/cgroup/memory{path}/memory.limit_in_bytes", f"{memory_limit}\n")
        self.write(f"sys/fs/cgroup/memory{path}/memory.usage_in_bytes", "300000000\n")
        self.write(
            f"sys/fs/cgroup/memory{path}/memory.stat",
            "inactive_file 1\ntotal_inactive_file 100000000\n",
        )

    def group_v2(self, path="/lab/a", quota="150000 100000", memory_limit="max"):
        self.write("proc/self/cgroup", f"0::{path}\n")
        self.write("proc/self/mountinfo", V2_MOUNT)
        self.write(f"sys/fs/cgroup{path}/cpu.max", f"{quota}\n")
        self.write(f"sys/fs/cgroup{path}/cpu.stat", "usage_usec 7000000\nuser_usec 1\n")
        self.write(f"sys/fs/cgroup{path}/memory.max", f"{memory_limit}\n")
        self.write(f"sys/fs/cgroup{path}/memory.current", "300000000\n")
        self.write(f"sys/fs/cgroup{path}/memory.stat", "anon 5\ninactive_file 100000000\n")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def sampler_of(monkeypatch):
    """Makes samplers, by whose clock an interval takes two seconds and whose host has 8 cores."""
    now = [100.0]
    monkeypatch.setattr("reparto.measure._usage.time.monotonic", lambda: now[0])
    monkeypatch.setattr("reparto.measure._usage.num_cores", lambda: 8)
    with contextlib.ExitStack() as stack:

        def make(tree):
            made = stack.enter_context(contextlib.closing(UsageSampler(tree.root)))
            now[0] += 2.0
            return made

        yield make


def test_machine_without_control_groups_is_told_as_a_whole(tree, sampler_of):
    sampler = sampler_of(tree)
    tree.write("proc/stat", busy(13.0))
    told = sampler.take()
    assert (told.cpu_cores, told.cpu_limit_cores, told.interval_s) == (1.5, 4, 2.0)
    assert told.memory_bytes == 1024000 << 10
    assert told.memory_limit_bytes == 4096000 << 10


def test_group_of_version_1_is_told_apart_from_the_machine(tree, sampler_of):
    tree.group_v1()
    sampler = sampler_of(tree)
    tree.write("proc/stat", busy(18.0))
    tree.write("sys/fs/cgroup/cpuacct/lab/a/cpuacct.usage", "7900000000\n")
    told = sampler.take()
    assert told.cpu_cores == pytest.approx(0.45)
    assert told.cpu_limit_cores == 0.5
    assert (told.memory_bytes, told.memory_limit_bytes) == (200_000_000, 1 << 30)


def test_group_of_version_2_is_told_apart_from_the_machine(tree, sampler_of):
    tree.group_v2()
    sampler = sampler_of(tree)
    tree.write("sys/fs/cgroup/lab/a/cpu.stat", "usage_usec 9500000\nuser_usec 1\n")
    told = sampler.take()
    assert told.cpu_cores == pytest.approx(1.25)
    assert told.cpu_limit_cores == 1.5
    assert (told.memory_bytes, told.memory_limit_bytes) == (200_000_000, 4096000 << 10)


def test_limit_may_stand_at_a_group_above(tree, sampler_of):
    tree.group_v2(quota="max 100000")
    tree.write("sys/fs/cgroup/lab/cpu.max", "300000 100000\n")
    tree.write("sys/fs/cgroup/lab/memory.max", "500000000\n")
    told = sampler_of(tree).take()
    assert (told.cpu_limit_cores, told.memory_limit_bytes) == (3.0, 500_000_000)


@pytest.mark.parametrize("group", ["group_v1", "group_v2"])
def test_root_of_a_container_is_apart_if_it_is_limited(tree, sampler_of, group):
    quota = {"quota_us": 200000} if group == "group_v1" else {"quota": "200000 100000"}
    getattr(tree, group)("/", memory_limit=1 << 30, **quota)
    sampler = sampler_of(tree)
    tree.write("proc/stat", busy(18.0))
    told = sampler.take()
    assert (told.cpu_cores, told.cpu_limit_cores) == (0.0, 2.0)
    assert (told.memory_bytes, told.memory_limit_bytes) == (200_000_000, 1 << 30)


def test_root_that_nothing_limits_is_the_machine(tree, sampler_of):
    tree.group_v1("/", quota_us=-1, memory_limit=9223372036854771712)
    sampler = sampler_of(tree)
    tree.write("proc/stat", busy(14.0))
    told = sampler.take()
    assert (told.cpu_cores, told.cpu_limit_cores) == (2.0, 4)
    assert told.memory_bytes == 1024000 << 10


@pytest.mark.parametrize(
    ("path", "cores", "memory"),
    [
        ("/user.slice/user-1000.slice/session-3.scope", 2.0, 1024000 << 10),
        ("/reparto-lab.node-1", 0.0, 200_000_000),
    ],
)
def test_group_without_limits_is_the_machine_unless_it_is_the_labs(
    tree, sampler_of, path, cores, memory
):
    tree.group_v2(path, quota="max 100000")
    sampler = sampler_of(tree)
    tree.write("proc/stat", busy(14.0))
    told = sampler.take()
    assert (told.cpu_cores, told.memory_bytes) == (cores, memory)


def test_container_that_sees_only_what_lies_below_its_own_group(tree):
    tree.write("proc/self/cgroup", "1:cpu,cpuacct:/docker/f00/inner\n")
    mount = "/sys/fs/cgroup/cpu,cpuacct"
    kind = "cgroup cgroup rw,cpu,cpuacct"
    tree.write("proc/self/mountinfo", f"33 31 0:29 /docker/f00 {mount} ro - {kind}\n")
    found = control_groups(tree.root)
    assert set(found) == {"cpu", "cpuacct"}
    assert found["cpu"].folder == tree.root / mount[1:] / "inner"


def test_controller_of_version_1_wins_where_both_versions_are_mounted(tree):
    tree.group_v1("/lab/b")
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    tree.write("proc/self/mountinfo", unified + V1_MOUNTS)
    assert {group.version for group in control_groups(tree.root).values()} == {1}


def test_network_counts_from_the_start_and_tells_the_loopback_apart(tree, sampler_of):
    sampler = sampler_of(tree)
    after = {"lo": (80, 80), "eth0": (1600, 2500), "eth1": (7, 3)}
    tree.write("proc/self/net/dev", devices(**after))
    told = sampler.take()
    assert (told.received_bytes, told.sent_bytes, told.loopback_bytes) == (607, 503, 30)
    assert sampler.take().sent_bytes == 503


def test_what_bridges_and_tunnels_pass_on_is_not_counted_again(tree, sampler_of):
    tree.write("sys/class/net/eth0/device/vendor", "0x1af4\n")
    tree.write("sys/class/net/br0/ifindex", "4\n")
    sampler = sampler_of(tree)
    same = (1600, 2500)
    tree.write("proc/self/net/dev", devices(lo=(50, 50), eth0=same, br0=same, wg0=same))
    told = sampler.take()
    assert (told.received_bytes, told.sent_bytes) == (600, 500)


def test_system_without_proc_tells_the_time_of_the_process(tmp_path):
    with contextlib.closing(UsageSampler(tmp_path)) as sampler:
        worked_s = work(0.1)
        told = sampler.take()
    assert told.cpu_cores * told.interval_s == pytest.approx(worked_s, abs=0.05)
    assert told.cpu_limit_cores == num_cores()
    assert (told.memory_bytes, told.sent_bytes, told.loopback_bytes) == (None, None, None)


# ------------------------------------------------------------------------------ GPUs, made up


def smi(folder, lines):
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\nprintf '{lines}'\nexec sleep 60\n")
    path.chmod(0o755)
    return str(path)


def latest(watch):
    until = time.monotonic() + 60
    while (found := watch.latest()) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


def test_gpus_are_told_as_one(tmp_path):
    command = smi(tmp_path, r"0, 90, 1000, 80000\n0, 60, 1000, 80000\n1, 20, 500, 80000\n")
    with contextlib.closing(GpuWatch(command)) as watch:
        until = time.monotonic() + 60
        while latest(watch).share != pytest.approx(0.4) and time.monotonic() < until:
            time.sleep(0.01)
        found = latest(watch)
    assert found.share == pytest.approx(0.4)
    assert (found.memory_bytes, found.memory_limit_bytes) == (1500 << 20, 160000 << 20)
    assert watch._process.poll() is not None  # it has ended


def test_gpu_that_does_not_say_how_busy_it_is_tells_its_memory(tmp_path):
    command = smi(tmp_path, r"no devices\n0, [N/A], 10, 20\n")
    with contextlib.closing(GpuWatch(command)) as watch:
        found = latest(watch)
    assert (found.share, found.memory_bytes) == (None, 10 << 20)


def test_gpus_are_told_no_more_when_nvidia_smi_has_ended(tmp_path):
    command = smi(tmp_path, r"0, 90, 1000, 80000\n")
    with contextlib.closing(GpuWatch(command)) as watch:
        assert latest(watch).share == pytest.approx(0.9)
        watch._process.kill()
        until = time.monotonic() + 60
        while watch.latest() is not None:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_without_nvidia_smi_there_are_no_gpus(tmp_path):
    watch = GpuWatch(str(tmp_path / "nvidia-smi"))
    assert watch.latest() is None
    watch.close()


# --------------------------------------------------------------------------------- this machine


@pytest.fixture
def sampler():
    with contextlib.closing(UsageSampler()) as sampler:
        yield sampler


def work(seconds):
    """Keep a core busy; return the seconds of it that this process got."""
    begin_s = time.process_time()
    while time.process_time() < begin_s + seconds:
        pass
    return time.process_time() - begin_s


needs_proc = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc")


@needs_proc
def test_busy_loop_is_seen_as_the_core_that_it_keeps(sampler):
    worked_s = work(0.4)
    told = sampler.take()
    others_s = told.cpu_limit_cores * told.interval_s - worked_s
    assert 0.9 * worked_s - 0.03 < told.cpu_cores * told.interval_s < worked_s + others_s + 0.1


@needs_proc
def test_memory_grows_with_what_is_allocated(sampler):
    def growth():
        time.sleep(0.3)  # a system may count by and by what it was given back, or gave
        before = sampler.take().memory_bytes
        block = b"x" * (400 << 20)
        found = sampler.take().memory_bytes
        time.sleep(0.3)
        return max(found, sampler.take().memory_bytes) - before, len(block)

    # Others on the machine may give memory back meanwhile.
    assert any(growth()[0] > 300 << 20 for _ in range(60))


@needs_proc
def test_bytes_between_processes_of_this_machine_are_seen(sampler):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send():
            with socket.create_connection(server.getsockname()) as way:
                way.sendall(b"x" * 3_000_000)

        sender = threading.Thread(target=send)
        sender.start()
        accepted, _ = server.accept()
        with accepted:
            while accepted.recv(1 << 20):
                pass
        sender.join()
    assert sampler.take().loopback_bytes >= 3_000_000


@needs_proc
def test_sample_costs_less_than_a_two_hundredth_of_half_a_second(sampler):
    def cost_s():
        begin_s = time.thread_time()
        for _ in range(40):
            sampler.take()
        return (time.thread_time() - begin_s) / 40

    assert quickest(cost_s, 0.5 / 200, tries=5) < 0.5 / 200
