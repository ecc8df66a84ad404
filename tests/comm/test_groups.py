"""The built-in groups keep the contract, and torch's own DDP runs over them."""

import json
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from tests.patience import free_port

from reparto.comm import (
    CountingGroup,
    GlooGroup,
    HostGroup,
    Meeting,
    RoutedGroup,
    ThreadGroup,
    host_group,
)
from reparto.testing import GroupContract, run_members


@pytest.fixture
def limit_s(request):
    """How long members wait for each other: for long, but where one of them is not to come."""
    return 3 if "leaves" in request.node.name else 60


class TestThreadGroup(GroupContract):
    @pytest.fixture
    def make_group(self, limit_s):
        meeting = Meeting(self.size, timeout_s=limit_s)
        return lambda rank, size: ThreadGroup(meeting, rank)


class TestGlooGroup(GroupContract):
    @pytest.fixture
    def make_group(self):
        store = dist.HashStore()
        return lambda rank, size: GlooGroup(store, rank=rank, size=size, timeout_s=60)


class TestHostGroup(GroupContract):
    @pytest.fixture
    def make_group(self, limit_s):
        store = dist.HashStore()

        def make(rank, size):
            inner = GlooGroup(store, rank=rank, size=size, timeout_s=60)
            group = host_group(inner, store, name="data", timeout_s=limit_s)
            assert isinstance(group, HostGroup)
            return group

        return make


class TestCountingGroup(GroupContract):
    @pytest.fixture
    def make_group(self, limit_s):
        meeting = Meeting(self.size, timeout_s=limit_s)
        return lambda rank, size: CountingGroup(ThreadGroup(meeting, rank))


class TestRoutedGroup(GroupContract):
    """Of tensors in main memory; those on GPUs go to the group that nobody asks here."""

    @pytest.fixture
    def make_group(self, limit_s):
        meeting = Meeting(self.size, timeout_s=limit_s)
        return lambda rank, size: RoutedGroup(
            ThreadGroup(meeting, rank), ThreadGroup(Meeting(size), rank)
        )


def test_groups_of_different_names_and_epochs_do_not_mix():
    store = dist.HashStore()

    def work(rank):
        options = [("data", 0), ("gradients", 0), ("data", 1)]
        groups = [GlooGroup(store, rank=rank, size=2, name=n, epoch=e) for n, e in options]
        tensors = [torch.tensor([1.0]), torch.tensor([10.0]), torch.tensor([100.0])]
        order = range(3) if rank else reversed(range(3))
        works = {number: groups[number].allreduce([tensors[number]]) for number in order}
        for one in works.values():
            one.wait()
        return [tensor.item() for tensor in tensors], [group.epoch for group in groups]

    meeting = Meeting(2)
    found = run_members(2, lambda r, s: ThreadGroup(meeting, r), lambda g: work(g.rank()))
    assert found == [([2.0, 20.0, 200.0], [0, 0, 1])] * 2


DDP = """
import json, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from reparto.comm import CountingGroup, GlooGroup, host_group

rank, port = int(sys.argv[1]), int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
group = GlooGroup(store, rank=rank, size=2)
if sys.argv[3] == "host":
    group = host_group(group, store, name="data")
group = CountingGroup(group)
torch.manual_seed(rank)  # DDP itself makes the replicas equal
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
ddp = DistributedDataParallel(model, process_group=group)
start = group.bytes_sent
x = torch.arange(24.0).view(6, 4).sin()
ddp(x[rank * 3 : rank * 3 + 3]).square().mean().backward()
alone = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
alone.load_state_dict(model.state_dict())
alone(x).square().mean().backward()
pairs = zip(model.parameters(), alone.parameters(), strict=True)
print(json.dumps({
    "apart": max((one.grad - two.grad).abs().max().item() for one, two in pairs),
    "bytes": group.bytes_sent - start,
    "parameters": sum(one.numel() for one in model.parameters()),
}))
group.barrier().wait()
"""


@pytest.mark.parametrize("carrier", ["gloo", "host"])
def test_torchs_ddp_runs_over_a_counting_group(carrier):
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DDP, str(rank), str(port), carrier],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (out, err) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, err
        told = json.loads(out.splitlines()[-1])
        assert told["apart"] < 1e-6
        assert told["bytes"] == 4 * told["parameters"]


def test_what_goes_over_the_wire_is_counted_by_algorithm():
    meeting = Meeting(4)

    def work(group):
        counts = []
        for call in (
            lambda: group.sum(torch.zeros(8)),
            lambda: group.gather_all(torch.zeros(8)),
            lambda: group.exchange(torch.zeros(4, 2)),
        ):
            before = group.wire_bytes
            call()
            counts.append(group.wire_bytes - before)
        return counts

    found = run_members(4, lambda rank, size: CountingGroup(ThreadGroup(meeting, rank)), work)
    assert found == [[2 * 24.0, 3 * 32.0, 24.0]] * 4


def test_a_group_beside_another_has_messages_of_its_own_and_is_counted():
    meeting = Meeting(2)

    def work(group):
        other = group.beside("other")
        if group.rank() == 0:
            for one, value in ((group, 1.0), (other, 2.0)):
                one.send([torch.tensor([value])], 1, 3).wait()
            return group.bytes_sent
        found = [torch.zeros(1), torch.zeros(1)]
        other.recv([found[0]], 0, 3).wait()
        group.recv([found[1]], 0, 3).wait()
        return [one.item() for one in found]

    found = run_members(2, lambda rank, size: CountingGroup(ThreadGroup(meeting, rank)), work)
    assert found == [8, [2.0, 1.0]]
