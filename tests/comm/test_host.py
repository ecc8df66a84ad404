"""Workers of one machine talk through memory: pieces, strides, peers that die or cannot come."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from tests.patience import free_port

from reparto.comm import MAX, GlooGroup, HostGroup, _host, _memory, host_group
from reparto.errors import DisagreementError
from reparto.testing import run_members

SIZE = 3


@pytest.fixture
def make_group():
    store = dist.HashStore()

    def make(rank, size):
        inner = GlooGroup(store, rank=rank, size=size, timeout_s=60)
        group = host_group(inner, store, name="data", timeout_s=60)
        assert isinstance(group, HostGroup)
        return group

    return make


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("length", [0, 1, 100_003, 3_000_001])
def test_sums_of_any_length(make_group, dtype, length):
    def work(group):
        tensor = torch.arange(length).remainder(7).to(dtype) * (group.rank() + 1)
        group.sum(tensor)
        return torch.equal(tensor, torch.arange(length).remainder(7).to(dtype) * 6)

    assert run_members(SIZE, make_group, work) == [True] * SIZE


def test_sums_are_the_same_to_the_bit_on_all_members(make_group):
    def work(group):
        generator = torch.Generator().manual_seed(group.rank())
        return group.sum(torch.randn(400_000, generator=generator)).numpy().tobytes()

    assert len(set(run_members(SIZE, make_group, work))) == 1


def test_strides_may_differ_between_members(make_group):
    whole = torch.arange(24.0).view(2, 3, 4)

    def work(group):
        given = [whole.clone(), whole.permute(2, 1, 0).contiguous().permute(2, 1, 0)]
        tensor = given[group.rank() % 2].requires_grad_()
        gathered = group.gather_all(tensor)
        group.sum(tensor)
        rooted = group.share(given[group.rank() % 2].detach().clone() + group.rank(), root=2)
        return [one.tolist() for one in (*gathered, tensor, rooted)]

    expected = [one.tolist() for one in (whole, whole, whole, 3 * whole, 3 * whole + 2)]
    assert run_members(SIZE, make_group, work) == [expected] * SIZE


def test_what_was_gathered_is_not_written_again(make_group):
    def work(group):
        first, *_ = group.gather_all(torch.arange(6.0).view(2, 3).t())
        first.zero_()
        group.barrier().wait()
        return first.sum().item()

    assert run_members(SIZE, make_group, work) == [0.0] * SIZE


def test_operations_of_all_kinds_one_after_the_other(make_group, monkeypatch):
    monkeypatch.setattr(_host, "AREA_BYTES", 64)

    def work(group):
        found = []
        for turn in range(40):
            tensor = torch.arange(20.0) + turn + group.rank()
            found.append(group.gather_all(tensor)[1].sum().item())
            found.append(group.share(tensor.clone(), root=turn % SIZE).sum().item())
            pending = group.reduce_all(tensor, MAX)
            group.barrier().wait()
            pending.wait()
            found.append(tensor.sum().item())
        return found

    first, *others = run_members(SIZE, make_group, work)
    assert others == [first] * (SIZE - 1)
    assert first[:3] == [210.0, 190.0, 230.0]


def test_all_use_gloo_when_one_cannot_reach_the_memory(monkeypatch):
    store = dist.HashStore()
    tried = []

    def refuse(path, *args):
        tried.append(path)
        raise PermissionError(path)

    def make(rank, size):
        inner = GlooGroup(store, rank=rank, size=size, timeout_s=60)
        return host_group(inner, store, name="data")

    monkeypatch.setattr(_memory.os, "open", refuse)
    kinds = run_members(2, make, lambda group: (type(group), group.sum(torch.ones(1)).item()))
    assert kinds == [(GlooGroup, 2.0)] * 2
    assert len(tried) == 1


def test_members_that_exchange_different_things_are_told(make_group):
    def work(group):
        with pytest.raises(DisagreementError, match="exchange different things"):
            if group.rank():
                group.gather_all(torch.ones(2, dtype=torch.int64))
            else:
                group.sum(torch.ones(4))
        return True

    assert run_members(2, make_group, work) == [True] * 2


PEER = """
import sys, torch
import torch.distributed as dist
from reparto.comm import GlooGroup, host_group

rank, port = int(sys.argv[1]), int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
group = host_group(GlooGroup(store, rank=rank, size=2), store, name="data")
print(type(group).__name__, group.sum(torch.ones(1000) + rank)[-1].item(), flush=True)
sys.stdin.readline()
try:
    group.sum(torch.ones(3))
except RuntimeError as error:
    print(error, flush=True)
"""


@pytest.mark.alone
def test_processes_share_memory_and_a_dead_one_is_told():
    port = free_port()
    peers = [
        subprocess.Popen(
            [sys.executable, "-c", PEER, str(rank), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        assert [one.stdout.readline() for one in peers] == ["HostGroup 3.0\n"] * 2
        os.kill(peers[1].pid, signal.SIGKILL)  # and stays a zombie: nobody asks how it ended
        began = time.monotonic()
        peers[0].stdin.write("\n")
        peers[0].stdin.flush()
        assert peers[0].stdout.readline() == "worker 1 is gone\n"
        assert time.monotonic() - began < 3
    finally:
        for one in peers:
            one.kill()
            one.communicate()
