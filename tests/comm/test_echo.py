"""A group of one that plays many."""

import torch

from reparto.comm import MAX, EchoGroup


def test_sums_are_those_of_members_that_are_alike():
    group = EchoGroup(3)
    assert (group.rank(), group.size()) == (0, 3)
    assert group.sum(torch.tensor([1.0, 2.0])).tolist() == [3.0, 6.0]
    assert group.reduced(torch.tensor([1.0, 2.0]), MAX).tolist() == [1.0, 2.0]


def test_gathers_are_copies_and_broadcasts_change_nothing():
    group = EchoGroup(3)
    assert [one.tolist() for one in group.gather_all(torch.tensor([7]))] == [[7], [7], [7]]
    rows = group.gather_rows(torch.tensor([[1.0], [2.0]]), [2, 1, 1])
    assert [one.tolist() for one in rows] == [[[1.0], [2.0]], [[1.0]], [[1.0]]]
    assert group.share(torch.tensor([5.0])).tolist() == [5.0]
    output = torch.empty(6)
    group._allgather_base(output, torch.tensor([1.0, 2.0])).wait()
    assert output.tolist() == [1.0, 2.0] * 3


def test_what_is_scattered_keeps_its_size():
    group = EchoGroup(2)
    assert group.exchange(torch.ones(2, 3)).shape == (2, 3)
    output = torch.empty(2)
    group._reduce_scatter_base(output, torch.tensor([1.0, 2.0, 3.0, 4.0])).wait()
    assert output.tolist() == [2.0, 4.0]
    group.barrier().wait()
    assert group.beside("other").size() == 2
