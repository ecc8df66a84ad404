"""Sharded: parameters, gradients and the optimizer's state are split over workers.

              at rest        forward              backward                     step
    p         slice          whole, in its turn   whole, in its turn           slice
    p.grad    none           none                 term ─► slice of the sum     slice
    state     slice          slice                slice                        slice

Parameters become `Sliced` (`_sliced.py`) where they are: modules, optimizers and the script hold
the same objects as before, which are whole while an operation looks at them. The optimizer steps
on slices. Small parameters, and those of optimizers that do not treat each element on its own,
stay whole on every worker and are summed by all-reduce.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from reparto.comm import MIN, Group
from reparto.errors import DisagreementError, UsageError
from reparto.spec import Cluster, Message, Pattern, Profile, Traffic
from reparto.strategies import _base
from reparto.strategies._all_reduce import AllReduce
from reparto.strategies._base import ParameterSet, grad_of, set_grad, width_of
from reparto.strategies._shelf import Shelf
from reparto.strategies._sliced import (
    Sliced,
    can_slice,
    plain,
    presented,
    slice_in_place,
    unguard_data,
)
from reparto.strategies._sliced_state import (
    has_hooks,
    put_state,
    slice_of,
    sliced_of,
    steps_by_element,
    taken_state,
)
from reparto.strategies._sparse import sum_sparse

T = TypeVar("T")


class Sharded(_base.Strategy):
    """Splits parameters, gradients and the optimizer's state over workers, exactly."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Shared):
        """Settings.

        Attributes:
            min_bytes: Parameters that are smaller stay whole on every worker.
            keep_bytes: So much of whole parameters a worker keeps while it computes; what one
                operation needs it always has. A model that fits is not gathered a second time
                for the backward pass.
        """

        kind: ClassVar[str] = "sharded"
        summary: ClassVar[str] = "workers share out parameters and optimizer state: less memory"
        formula: ClassVar[str] = "3 (1 − 1/N) S a step; 2 (1 − 1/N) S if S fits into keep_bytes"
        paper: ClassVar[str] = (
            "Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054; Zhao et al. 2023 (FSDP), "
            "arXiv:2304.11277"
        )
        min_bytes: int = 2**15
        keep_bytes: int = 2**26

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.min_bytes < 0 or self.keep_bytes < 0:
                raise UsageError(
                    "min_bytes or keep_bytes is below 0", remedy="correct the setting"
                )

        @property
        def changes(self) -> str:
            """Nothing, but for larger batches if they are asked for."""
            return self.changes_of_batch

        def is_large(self, numel: int, size_bytes: int, num_workers: int) -> bool:
            """Whether a parameter is split."""
            return num_workers > 1 and numel >= num_workers and size_bytes >= self.min_bytes

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """Parameters are gathered for each pass, gradients scattered, small ones summed.

            One by one, and each is waited for.
            """
            num_workers, begin = max(1, len(cluster.hosts)), profile.forward_fraction
            width = width_of(profile)
            wider = max(1.0, 4 / width) if width else 1.0  # halves are added up as singles
            numels = [prod(shape) for shape in profile.shapes] or [profile.num_parameters]
            large = [n for n in numels if self.is_large(n, round(n * width), num_workers)]
            small = sum(numels) - sum(large)
            slices = [round(-(-numel // num_workers) * width) for numel in large]
            again = [slices[one] for one in _missing([n * width for n in large], self.keep_bytes)]
            moments: list[tuple[Pattern, list[int], float]] = [
                ("gather", slices, 0.0),
                ("gather", again, begin),
                ("exchange", [round(num_workers * wider * one) for one in slices], 1.0),
                ("all-reduce", [round(small * width)], 1.0),
            ]
            return tuple(
                Message(pattern=pattern, size_bytes=size, ready_at=at, needed_at=at)
                for pattern, sizes, at in moments
                for size in sizes
                if size
            )

        def build(self, group: Group) -> Sharded:
            """The live strategy."""
            return Sharded(group, self)

    hears_all = True

    def __init__(self, group: Group, config: Sharded.Config) -> None:
        super().__init__(group)
        self.config = config
        self._shelf = Shelf(group, config.keep_bytes, lambda: self.waiting)
        self._small = AllReduce(group, AllReduce.Config())
        self._sets: dict[str, _Set] = {}
        _give_back_memory()

    # Parameters.

    def adopt(self, parameters: ParameterSet) -> None:
        """Keep slices of what is large; nobody computes with it yet."""
        optimizer, size = parameters.optimizer, self.group.size()
        if optimizer is not None and not steps_by_element(optimizer):
            return
        large = [
            tensor
            for tensor in parameters.tensors
            if tensor.is_floating_point()
            and not isinstance(tensor, Sliced)
            and self.config.is_large(tensor.numel(), tensor.nbytes, size)
        ]
        votes = torch.tensor([can_slice(tensor) for tensor in large], dtype=torch.int64)
        if large:  # somebody may hold the memory of one on one worker only
            self.group.reduced(votes, MIN)
        for tensor, is_free in zip(large, votes.tolist(), strict=True):
            if is_free:
                slice_in_place(tensor, self._shelf)
        for tensor in parameters.tensors:
            if isinstance(tensor, Sliced) and optimizer is not None and tensor in optimizer.state:
                put_state(optimizer, tensor, taken_state(optimizer, tensor))
        self._sets.pop(parameters.name, None)

    def link(self, units: Sequence[Sequence[Tensor]]) -> None:
        """Gather the parameters of a module together."""
        for tensors in units:
            unit = [tensor._kept for tensor in tensors if isinstance(tensor, Sliced)]
            for kept in unit:
                kept.unit = unit

    def forget(self, tensor: Tensor) -> None:
        """Drop a sum that would come back."""
        for one in self._sets.values():
            one.sums.pop(tensor, None)

    def start(self, parameters: ParameterSet) -> None:
        """Buckets for what is small are fixed when they are needed; see ``gradients_needed``."""
        self._set(parameters).has_buckets = False

    def _set(self, parameters: ParameterSet) -> _Set:
        """What is known of a set; it may have grown, and its tensors may have become slices."""
        found = self._sets.get(parameters.name)
        if found is None or found.size != len(parameters.tensors):
            made = self._sets[parameters.name] = _Set(parameters)
            made.sums = found.sums if found is not None else {}
            return made
        return found

    def whole(self, tensor: Tensor) -> Tensor:
        """The whole behind a slice."""
        return plain(tensor)

    # Gradients: a plain one on .grad is this worker's term, a Sliced one is the sum.

    def backward_begins(self) -> None:
        """Take the sums away, so that new terms are not added to them."""
        self._shelf.ask_together([])
        for one in self._sets.values():
            one.restart()
            one.coming = set(one.sliced)
            for tensor in one.sliced:
                grad = grad_of(tensor)
                if isinstance(grad, Sliced):
                    one.sums[tensor] = grad
                    set_grad(tensor, None)

    def backward_ends(self) -> None:
        """Put them back, with what has come."""
        for one in self._sets.values():
            one.coming.clear()
            one.put_back()

    def on_gradient(self, parameters: ParameterSet, index: int) -> None:
        """Scatter terms as they come, in an order that all workers share."""
        one = self._set(parameters)
        tensor = parameters.tensors[index]
        if not isinstance(tensor, Sliced):
            return
        one.arrived[tensor] = None
        one.coming.discard(tensor)
        while one.next < len(one.order) and one.order[one.next] in one.arrived:
            due = one.order[one.next]
            one.next += 1
            grad = grad_of(due)
            if grad is not None and not grad.is_sparse:
                self._scatter(one, due)

    def _scatter(self, one: _Set, tensor: Sliced) -> None:
        grad = grad_of(tensor)
        kept = tensor._kept
        term = kept.mine.new_zeros(kept.shape) if grad is None else plain(grad)
        sums = self._shelf.scattered(term, kept)
        set_grad(tensor, None)
        found = one.sums.get(tensor)
        if found is None:
            one.sums[tensor] = presented(kept.alike(sums))
        else:
            found._kept.mine.add_(sums)
            self._shelf.changed(found._kept)

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Scatter what is left, sum what is small, and put the sums on the tensors."""
        one = self._set(parameters)
        dense, sparse, totals = self._census(one, riders)
        one.agree(self.group)
        for tensor in one.order:
            if tensor in sparse:
                sum_sparse(self.group, tensor)
            elif tensor in dense:
                self._scatter(one, tensor)
        one.put_back()
        one.restart()
        grads = map(grad_of, one.sliced)
        self._shelf.ask_together([grad._kept for grad in grads if isinstance(grad, Sliced)])
        if not one.has_buckets:
            one.has_buckets = True
            self._small.start(one.small)
        self._small.gradients_needed(one.small, ())
        return totals

    def _census(
        self, one: _Set, riders: Sequence[float]
    ) -> tuple[set[Tensor], set[Tensor], Sequence[float]]:
        """Which terms are left anywhere, dense or sparse; and what rides along."""
        grads = [grad_of(tensor) for tensor in one.sliced]
        terms = [None if isinstance(grad, Sliced) else grad for grad in grads]
        dense = [float(term is not None and not term.is_sparse) for term in terms]
        sparse = [float(term is not None and term.is_sparse) for term in terms]
        trace = float(self._shelf.trace)
        numbers = torch.tensor([*dense, *sparse, trace, *riders], dtype=torch.float64)
        found: list[float] = self.group.sum(numbers).tolist()
        count = len(terms)
        if round(found[2 * count]) != self.group.size() * trace:
            raise DisagreementError("workers have gathered parameters in different orders")
        return (
            {tensor for tensor, votes in zip(one.sliced, found, strict=False) if votes},
            {tensor for tensor, votes in zip(one.sliced, found[count:], strict=False) if votes},
            found[2 * count + 1 :],
        )

    def discard(self, parameters: ParameterSet) -> None:
        """Forget what has come."""
        one = self._set(parameters)
        one.sums.clear()
        one.restart()
        self._small.discard(one.small)

    # Steps.

    def step(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        """Let the optimizer step on slices."""
        optimizer = parameters.optimizer
        if optimizer is None or parameters.has_closure or not steps_by_element(optimizer):
            return local_step()
        if has_hooks(optimizer):  # of the script's, which look at whole parameters
            return local_step()
        stepped = list(sliced_of(optimizer))
        for group, position, tensor in stepped:
            kept = tensor._kept
            state = taken_state(optimizer, tensor)
            if state is not None:
                optimizer.state[kept.mine] = state
            set_grad(kept.mine, slice_of(kept, grad_of(tensor)))
            group["params"][position] = kept.mine
        try:
            return local_step()
        finally:
            for group, position, tensor in stepped:
                mine = tensor._kept.mine
                group["params"][position] = tensor
                set_grad(mine, None)
                put_state(optimizer, tensor, optimizer.state.pop(mine, None))
            self._shelf.ask_together([])
            self._shelf.clear()

    def finish(self) -> None:
        """The script has ended, or others go on in this process."""
        unguard_data()
        _keep_memory()


class _Set:
    """A set of parameters, told apart, and how far their gradients have come.

    Attributes:
        sliced: Those of which this worker keeps slices.
        small: The others.
        order: In which the sliced ones' gradients are scattered.
        arrived: Whose gradients this backward pass has brought, in the order of coming.
        next: How many of the order are scattered.
        coming: Whose gradients a backward pass that runs may yet bring.
        sums: Slices of sums that do not lie on ``.grad``.
        has_buckets: Whether buckets for the small ones are fixed.
    """

    def __init__(self, parameters: ParameterSet) -> None:
        self.size = len(parameters.tensors)
        self.sliced = [tensor for tensor in parameters.tensors if isinstance(tensor, Sliced)]
        others = [tensor for tensor in parameters.tensors if not isinstance(tensor, Sliced)]
        self.small = ParameterSet(f"{parameters.name}/small", others)
        self.order = self.sliced[::-1]  # that of most backward passes
        self.arrived: dict[Tensor, None] = {}
        self.next = 0
        self.coming: set[Tensor] = set()
        self.sums: dict[Tensor, Sliced] = {}
        self.has_buckets = False
        self._has_agreed = False

    def put_back(self) -> None:
        """Put sums on tensors; not where a new term lies, or is yet to come."""
        for tensor in set(self.sums) - self.coming:
            if grad_of(tensor) is None:
                set_grad(tensor, self.sums.pop(tensor))

    def restart(self) -> None:
        """The next backward pass begins anew."""
        self.arrived.clear()
        self.next = 0

    def agree(self, group: Group) -> None:
        """Scatter from now on in the order in which worker 0's gradients came; once."""
        if self._has_agreed or not self.sliced:
            return
        self._has_agreed = True
        places: dict[Tensor, int] = {tensor: place for place, tensor in enumerate(self.sliced)}
        came = [places[tensor] for tensor in self.arrived]
        late = [places[tensor] for tensor in self.order if tensor not in self.arrived]
        agreed = group.share(torch.tensor([*came, *late]), 0).tolist()
        self.order = [self.sliced[place] for place in agreed]


def _give_back_memory() -> None:
    """Have glibc give large pieces of memory back when they are freed.

    It keeps them otherwise once it has seen some, and wholes come and go.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**20)


def _keep_memory() -> None:
    """Have it keep them again, as it does once it has seen some."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 2**25)
        libc.mallopt(_TRIM_THRESHOLD, 2**26)


#: Of malloc.h.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1


def _missing(sizes: Sequence[float], room: float) -> list[int]:
    """Which parameters a backward pass has to gather again, after a forward pass in order."""
    held: OrderedDict[int, float] = OrderedDict()
    missing = []
    count = len(sizes)
    for turn, index in enumerate([*range(count), *reversed(range(count))]):
        if index in held:
            held.move_to_end(index)
            continue
        if turn >= count:
            missing.append(index)
        while held and sum(held.values()) + sizes[index] > room:
            held.popitem(last=False)
        held[index] = sizes[index]
    return missing
