"""GroupContract: what every Group has to do, as a suite to subclass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
import torch.distributed as dist

from reparto.comm import MAX, MIN, CountingGroup, Group

T = TypeVar("T")
MakeGroup = Callable[[int, int], Group]


def run_members(size: int, make_group: MakeGroup, work: Callable[[Group], T]) -> list[T]:
    """Run a function as each member of a group, in threads.

    Args:
        size: Number of members.
        make_group: Makes a member's group from its rank and the size; called in its thread.
        work: Called with the group.

    Returns:
        What the function returned, by rank.

    Raises:
        BaseException: The first that a member raised.
    """
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def member(rank: int) -> None:
        try:
            results[rank] = work(make_group(rank, size))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=member, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class GroupContract:
    """What every Group has to do.

    Subclass it in your tests and override the fixture ``make_group``::

        class TestMyGroup(GroupContract):
            @pytest.fixture
            def make_group(self):
                store = dist.HashStore()
                return lambda rank, size: MyGroup(store, rank=rank, size=size)

    Attributes:
        size: Number of members of most tests.
    """

    size = 3

    @pytest.fixture
    def make_group(self) -> MakeGroup:
        """Makes the group of one member, from its rank and the size; override this."""
        raise NotImplementedError

    def run(self, make_group: MakeGroup, work: Callable[[Group], T]) -> list[T]:
        """Run a function as each member."""
        return run_members(self.size, make_group, work)

    def test_it_is_a_process_group_of_torchs(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            assert isinstance(group, dist.ProcessGroup)
            return group.rank(), group.size(), bool(group.getBackendName())

        assert self.run(make_group, work) == [(rank, 3, True) for rank in range(3)]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
    def test_sums_are_made_in_place(self, make_group: MakeGroup, dtype: torch.dtype) -> None:
        def work(group: Group) -> Any:
            tensor = torch.arange(5).to(dtype) * (group.rank() + 1)
            assert group.sum(tensor) is tensor
            return tensor.tolist()

        assert self.run(make_group, work) == [[0, 6, 12, 18, 24]] * 3

    def test_extremes(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            high, low = torch.tensor([1.0, -1.0]) * group.rank(), torch.tensor([group.rank()])
            group.reduce_all(high, MAX).wait()
            group.reduce_all(low, MIN).wait()
            return high.tolist(), low.tolist()

        assert self.run(make_group, work) == [([2.0, 0.0], [0])] * 3

    def test_what_is_gathered_comes_in_the_order_of_ranks(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            mine = torch.full((2, 2), float(group.rank()))
            parts = group.gather_all(mine)
            assert mine.eq(group.rank()).all()
            return [part.unique().tolist() for part in parts]

        assert self.run(make_group, work) == [[[0.0], [1.0], [2.0]]] * 3

    @pytest.mark.parametrize("rows", [(3, 1, 2), (0, 2, 1), (1, 0, 0), (0, 0, 0)])
    def test_unequal_rows_are_gathered(self, make_group: MakeGroup, rows: tuple[int, ...]) -> None:
        def work(group: Group) -> Any:
            mine = torch.full((rows[group.rank()], 2), group.rank() + 1.0)
            return [part.tolist() for part in group.gather_rows(mine, rows)]

        expected = [[[rank + 1.0] * 2] * count for rank, count in enumerate(rows)]
        assert self.run(make_group, work) == [expected] * 3

    @pytest.mark.parametrize("root", [0, 2])
    def test_the_roots_tensor_is_shared(self, make_group: MakeGroup, root: int) -> None:
        def work(group: Group) -> Any:
            return group.share(torch.full((3,), float(group.rank())), root).tolist()

        assert self.run(make_group, work) == [[float(root)] * 3] * 3

    def test_tensors_are_gathered_into_one(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            output = torch.empty(6)
            group._allgather_base(output, torch.full((2,), float(group.rank()))).wait()
            return output.tolist()

        assert self.run(make_group, work) == [[0.0, 0.0, 1.0, 1.0, 2.0, 2.0]] * 3

    @pytest.mark.parametrize("times", [1, 200_000])
    def test_sums_are_scattered(self, make_group: MakeGroup, times: int) -> None:
        def work(group: Group) -> Any:
            output = torch.empty(2 * times)
            terms = torch.arange(6.0).repeat_interleave(times) + group.rank()
            group._reduce_scatter_base(output, terms).wait()
            return [part.unique().tolist() for part in output.chunk(2)]

        expected = [[[3.0], [6.0]], [[9.0], [12.0]], [[15.0], [18.0]]]
        assert self.run(make_group, work) == expected

    @pytest.mark.parametrize("width", [0, 2, 400_000])
    def test_rows_are_exchanged(self, make_group: MakeGroup, width: int) -> None:
        def work(group: Group) -> Any:
            rows = torch.arange(3.0).view(3, 1).expand(3, width) + 10 * group.rank()
            return [row.unique().tolist() for row in group.exchange(rows)]

        expected = [[[10.0 * source + rank] * (width > 0) for source in range(3)]
                    for rank in range(3)]  # fmt: skip
        assert self.run(make_group, work) == expected

    def test_messages_arrive_in_order_and_by_tag(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            if group.rank() == 2:
                return None
            if group.rank() == 0:  # a send may wait for its receiver: all of them begin first
                sent = ((1, 1.0), (2, 2.0), (1, 3.0))
                works = [group.send([torch.tensor([value])], 1, tag) for tag, value in sent]
            else:
                tensors = [torch.empty(1) for _ in range(3)]
                tags = (2, 1, 1)
                works = [group.recv([t], 0, tag) for t, tag in zip(tensors, tags, strict=True)]
            for one in works:
                one.wait()
            return [tensor.item() for tensor in tensors] if group.rank() else None

        assert self.run(make_group, work)[1] == [2.0, 1.0, 3.0]

    def test_messages_arrive_from_whoever_sends(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            if group.rank():
                group.send([torch.tensor([float(group.rank())])], 0, 7).wait()
                return None
            found = {}
            for _ in range(2):
                tensor = torch.empty(1)
                received = group.recv_anysource([tensor], 7)
                received.wait()
                found[received._source_rank()] = tensor.item()
            return found

        assert self.run(make_group, work)[0] == {1: 1.0, 2: 2.0}

    def test_who_receives_first_and_then_sends_gets_everything_in_order(
        self, make_group: MakeGroup
    ) -> None:
        def work(group: Group) -> Any:
            after, before = (group.rank() + 1) % 3, (group.rank() - 1) % 3
            found = [torch.empty(300_000) for _ in range(2)]
            receiving = [group.recv([one], before, 3) for one in found]
            sent = [torch.full((300_000,), 10.0 * group.rank() + turn) for turn in range(2)]
            sending = [group.send([one], after, 3) for one in sent]
            for one in (*reversed(receiving), *sending):
                one.wait()
            return [one.unique().tolist() for one in found]

        assert self.run(make_group, work) == [
            [[20.0], [21.0]], [[0.0], [1.0]], [[10.0], [11.0]],
        ]  # fmt: skip

    def test_several_operations_may_be_under_way(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            tensors = [torch.full((1000,), float(number)) for number in range(4)]
            works = [group.allreduce([tensor]) for tensor in tensors]
            for one in reversed(works):
                one.wait()
                assert one.is_completed()
            return [tensor[-1].item() for tensor in tensors]

        assert self.run(make_group, work) == [[0.0, 3.0, 6.0, 9.0]] * 3

    def test_nobody_passes_a_barrier_alone(self, make_group: MakeGroup) -> None:
        come: list[int] = []

        def work(group: Group) -> Any:
            come.append(group.rank())
            group.barrier().wait()
            return len(come)

        assert self.run(make_group, work) == [3] * 3

    def test_the_step_is_told_to_all_wrappers(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            group.at_step(5)
            carried: Any = group
            while isinstance(carried, Group):
                assert carried.step == 5
                carried = carried.inner
            return True

        assert all(self.run(make_group, work))

    def test_a_member_that_leaves_is_an_error_for_the_others(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            group.barrier().wait()
            if group.rank() == 2:
                return True
            with pytest.raises(RuntimeError):
                group.sum(torch.ones(3))
            return True

        assert all(self.run(make_group, work))

    def test_what_is_handed_over_is_counted(self, make_group: MakeGroup) -> None:
        def work(group: Group) -> Any:
            counting = CountingGroup(group)
            counting.sum(torch.ones(10))
            counting.gather_all(torch.ones(4, dtype=torch.float64))
            counting.share(torch.ones(2, dtype=torch.int64))
            return counting.bytes_sent, counting.rounds

        assert self.run(make_group, work) == [(40 + 32 + 16, 3)] * 3
