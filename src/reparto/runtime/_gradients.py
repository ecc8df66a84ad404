"""Who owns which gradient, and when it becomes the global one.

After ``backward()`` a parameter's ``.grad`` holds this worker's term. It becomes the sum over
workers at the *first reader*: ``Tensor.grad`` is a property while a run lasts, so clipping,
unscaling, the optimizer's step and the script's own code all count as readers, and none of them
is rewritten. Until then terms add up locally (accumulation sends once). A backward pass that
comes after a reader is kept apart and added afterwards, so only what is new is sent:

    backward  backward  read          backward              read
    ── local + local ─► Σ ─► .grad    set .grad aside, local ─► Σ + aside ─► .grad

In the backward pass that is known to be the last before a reader (it was so in the cycle before)
the strategy hears of each gradient as it comes and may start sending.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._collective import gathered, summed
from reparto.runtime._tensors import Cell, Divisor, Tracked, number
from reparto.runtime._tensors import whole as whole_of
from reparto.strategies import ParameterSet, grad_of, set_grad

if TYPE_CHECKING:
    from reparto.runtime._world import World

# As they are before the runtime watches the script's.
_tensor = torch.tensor
register_arrival_hook: Any = Tensor.register_post_accumulate_grad_hook


class Owner(ParameterSet):
    """A set of parameters with the state of its gradients."""

    def __init__(self, name: str, tensors: list[Tensor]) -> None:
        super().__init__(name, tensors)
        self.started = False
        self.pending = False
        self.reduced = False
        self.eager = False
        self.may_be_eager = True
        self.backwards = 0
        self.expected = 0
        self.cells: list[Cell] = []
        self.divisor: Divisor | None = None
        self.num_steps = 0
        self.num_reductions = 0
        self.touched = -1
        self.num_known = 0
        self.wanted: list[bool] = []


class Gradients:
    """All gradients of one worker.

    Args:
        world: The worker's world.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.owners: list[Owner] = []
        self.loose = Owner("loose", [])
        self.quiet = 0
        self.in_pass = False
        self.num_backwards = 0
        self._counted_at = -1
        self._num_loose = 0
        self._owner_of: dict[int, tuple[Owner, int]] = {}
        self._owner_of_optimizer: weakref.WeakKeyDictionary[Any, Owner] = (
            weakref.WeakKeyDictionary()
        )
        self._cell: Cell | None = None
        self._divisor: Divisor | None = None
        self._arrived: dict[int, Callable[[Tensor], None]] = {}
        self._told: set[int] = set()
        self._adopted: set[int] = set()
        self._handed_over: weakref.WeakSet[Any] = weakref.WeakSet()

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """What is read inside is read by us, not by the script."""
        self.quiet += 1
        try:
            yield
        finally:
            self.quiet -= 1

    # Owners.

    def adopt(self, optimizer: Any, tensors: list[Tensor]) -> None:
        """An optimizer was made, or has got more parameters."""
        owner = self._owner_of_optimizer.get(optimizer)
        if owner is None:
            owner = Owner(f"optimizer{len(self.owners)}", [])
            owner.optimizer_ref = weakref.ref(optimizer)
            owner.loss_ref = self.world.known_loss
            self._owner_of_optimizer[optimizer] = owner
            self.owners.append(owner)
        for tensor in tensors:
            is_new = isinstance(tensor, Tensor) and id(tensor) not in self._owner_of
            if is_new and not isinstance(tensor, Tracked):  # whose gradients are global already
                self._take_in(owner, tensor)
        owner.started = False
        self._handed_over.clear()
        if self.world.options.nudge:
            from reparto.runtime._promote import nudge

            nudge(tensors, self.world.options.nudge)

    def hand_over(self, module: Any) -> None:
        """A module is about to be called: a strategy may take over its parameters.

        That is those that optimizers have, and those that nobody updates.
        """
        if module in self._handed_over:
            return
        self._handed_over.add(module)
        parts: dict[str, ParameterSet] = {}
        units = [list(child.parameters(recurse=False)) for child in module.modules()]
        for unit in units:
            for tensor in unit:
                found = self._owner_of.get(id(tensor))
                if id(tensor) in self._adopted or (found is None and tensor.requires_grad):
                    continue
                owner = found[0] if found is not None else Owner("frozen", [])
                part = parts.setdefault(owner.name, ParameterSet(owner.name, []))
                part.optimizer_ref = owner.optimizer_ref
                part.tensors.append(tensor)
                self._adopted.add(id(tensor))
                weakref.finalize(tensor, self._adopted.discard, id(tensor))
        for part in parts.values():
            with self.unseen(), torch.no_grad(), torch._C._DisableAutocast():
                self.world.agreement.check_replicas(part.tensors)
                self.world.strategy.adopt(part)
        self.world.strategy.link(units)

    def __contains__(self, optimizer: Any) -> bool:
        return optimizer in self._owner_of_optimizer

    def own_any(self, tensors: Iterable[Tensor]) -> bool:
        """Whether an optimizer updates any of these."""
        return any(id(tensor) in self._owner_of for tensor in tensors)

    def owner_of(self, optimizer: Any) -> Owner:
        """The owner that belongs to an optimizer."""
        if optimizer not in self._owner_of_optimizer:
            self.adopt(optimizer, [p for group in optimizer.param_groups for p in group["params"]])
        return self._owner_of_optimizer[optimizer]

    def _take_in(self, owner: Owner, tensor: Tensor) -> None:
        index = len(owner.tensors)
        owner.tensors.append(tensor)
        key = id(tensor)
        self._owner_of[key] = (owner, index)
        weakref.finalize(tensor, self._owner_of.pop, key, None)
        weakref.finalize(tensor, self._arrived.pop, key, None)
        owner.wanted.append(tensor.requires_grad)
        if tensor.requires_grad and tensor.is_leaf:
            self._watch(owner, tensor)

    def _see_frozen(self, owner: Owner) -> None:
        """Layers may have been frozen, or have thawed, since the last pass."""
        wanted = [tensor.requires_grad for tensor in owner.tensors]
        if wanted == owner.wanted:
            return
        owner.wanted, owner.started = wanted, False
        for tensor in owner.tensors:
            if tensor.requires_grad and tensor.is_leaf and id(tensor) not in self._arrived:
                self._watch(owner, tensor)

    def _watch(self, owner: Owner, tensor: Tensor) -> None:
        key = id(tensor)

        def arrived(tensor: Tensor) -> None:
            if key in self._told:
                self._told.remove(key)
                return  # a hook of the script's came first
            if owner.touched != self.num_backwards:
                self._first_arrival(owner)
            elif not owner.pending:
                self._late_arrival(owner, tensor)
            strategy = self.world.strategy
            if owner.eager or strategy.hears_all:
                strategy.on_gradient(owner, self._owner_of[key][1])

        arrived._reparto = True  # type: ignore[attr-defined]
        self._arrived[key] = arrived
        register_arrival_hook(tensor, arrived)

    def arrives(self, tensor: Tensor) -> None:
        """A hook of the script's is about to see a gradient, maybe before ours does."""
        arrived = self._arrived.get(id(tensor))
        if arrived is not None:
            self._told.discard(id(tensor))
            arrived(tensor)
            self._told.add(id(tensor))

    def _first_arrival(self, owner: Owner) -> None:
        owner.touched = self.num_backwards
        owner.pending = True
        owner.backwards += 1
        if self._cell is not None:
            owner.cells.append(self._cell)
        owner.divisor = self._divisor

    def _late_arrival(self, owner: Owner, late: Tensor) -> None:
        """A gradient comes after others of its pass were read: those are global already."""
        for index, tensor in enumerate(owner.tensors):
            grad = None if tensor is late else grad_of(tensor)
            if grad is not None:
                owner.aside[index] = grad
                set_grad(tensor, None)
        owner.pending, owner.reduced = True, False
        owner.divisor = self._divisor

    # The backward pass.

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """A backward pass runs inside."""
        was, self.in_pass = self.in_pass, True
        try:
            yield
        finally:
            self.in_pass = was
            if not was:
                self.world.strategy.backward_ends()
        if not was:
            for owner in (*self.owners, self.loose):
                if owner.aside and not owner.pending:
                    self._put_back(owner)
                    owner.reduced = True  # as they were: the pass brought nothing new

    def before_backward(self, cell: Cell | None, divisor: Divisor | None) -> None:
        """A backward pass is about to begin."""
        self.world.leave_if_done()
        self.num_backwards += 1
        self._cell, self._divisor = cell, divisor
        self._drop_forgotten()
        self._told.clear()
        for owner in (*self.owners, self.loose):
            if owner.pending and owner.eager:
                self.needed(owner)  # it was not the last one after all
            self._see_frozen(owner)
            if owner.pending and (owner.divisor or divisor):
                self._set_right(owner)
            if owner.reduced:
                self._complete(owner)
                self._set_aside(owner)
            self._decide_overlap(owner)
        self.world.strategy.backward_begins()

    def may_defer(self) -> bool:
        """Whether gradients of a pass may lack the divisor's correction until they are read.

        Not where terms of another pass lie there already, nor where gradients arrive at tensors
        that no optimizer owns: nobody would set those right. Nor where code of the script's looks
        at gradients on their way.
        """
        if self.world.has_hooks:
            return False
        owned = bool(self.owners) and not self.loose.tensors and not self.world.has_leaves
        return owned and not any(owner.pending for owner in self.owners)

    def _drop_forgotten(self) -> None:
        """Let go of tensors updated by hand that the script itself no longer holds."""
        kept = [t for t in self.loose.tensors if sys.getrefcount(t) > 3]
        if len(kept) == len(self.loose.tensors):
            return
        self.loose.tensors, self.loose.started = kept, False
        self.loose.aside.clear()
        for index, tensor in enumerate(kept):
            self._owner_of[id(tensor)] = (self.loose, index)
        self.loose.wanted = [tensor.requires_grad for tensor in kept]

    def _decide_overlap(self, owner: Owner) -> None:
        last = owner.expected > 0 and owner.backwards + 1 == owner.expected
        owner.eager = last and owner.may_be_eager and owner.started and not owner.pending
        if owner.eager and owner.expected > 1:
            owner.eager = False  # earlier terms lie on .grad already; the sum is sent at once

    def _set_aside(self, owner: Owner) -> None:
        for index, tensor in enumerate(owner.tensors):
            grad = grad_of(tensor)
            if grad is not None:
                owner.aside[index] = grad
                set_grad(tensor, None)
        owner.reduced = False

    def _set_right(self, owner: Owner) -> None:
        """Terms with different divisors are about to be added: correct what lies there now."""
        if owner.divisor is None:
            return
        divisor, world = owner.divisor, self.world
        factor = divisor.estimate(world) if world.apart else divisor.resolve(world)
        owner.divisor = None
        if factor != 1.0:
            _scale(owner, factor)

    # Readers.

    def has_aside(self) -> bool:
        """Whether a gradient lies aside that its reader must find in its place."""
        if self.in_pass and self.world.strategy.hears_all:
            return True  # the strategy has it
        return any(owner.aside for owner in self.owners) or bool(self.loose.aside)

    def read(self, tensor: Tensor) -> bool:
        """The gradient of a tensor is about to be read; says whether it is another one now."""
        found = self._owner_of.get(id(tensor))
        if found is not None:
            if not found[0].pending:
                return self._complete(found[0])
            self.needed(found[0])
        elif tensor.requires_grad and self.num_backwards and not _is_traced(tensor):
            if tensor.is_leaf:
                self._discover(tensor)
            else:
                self._read_retained(tensor)
        return True

    def _complete(self, owner: Owner) -> bool:
        """Somebody looks after a step that needed sums at their servers only."""
        if not owner.is_partial or self.world.in_step:
            return False
        owner.is_partial = False
        with self.unseen(), self.world.waiting:
            self.world.strategy.complete(owner)
        return True

    def _read_retained(self, tensor: Tensor) -> None:
        """The gradient of a tensor within the graph; nobody steps by it."""
        grad = grad_of(tensor)
        if grad is None or getattr(tensor, "_read_at", -1) == self.num_backwards:
            return
        tensor._read_at = self.num_backwards  # type: ignore[attr-defined]
        world, divisor = self.world, self._divisor
        if world.apart:
            factor = divisor.estimate(world) if divisor else 1.0
            set_grad(tensor, grad * (factor / world.share))
            return
        factor = divisor.resolve(world) if divisor else 1.0
        set_grad(tensor, summed(grad, world.data) * factor)

    def put_by_hand(self, tensor: Tensor, value: Tensor | None) -> None:
        """The script puts a global gradient, or none, where a pass may have left a term."""
        if self.world.strategy.hears_all:
            self.world.strategy.forget(tensor)
        found = self._owner_of.get(id(tensor))
        if found is None:
            if value is None or not (tensor.requires_grad and tensor.is_leaf):
                return
            if _is_traced(tensor):
                return
            self._take_in(self.loose, tensor)
            self.loose.started = False
            found = (self.loose, -1)
        owner = found[0]
        if owner.pending and (owner.eager or value is not None):
            self.needed(owner)
        owner.reduced = owner.reduced or value is not None

    def _discover(self, tensor: Tensor) -> None:
        """A tensor that no optimizer owns is updated by hand: reduce it, and watch it from now."""
        self._take_in(self.loose, tensor)
        self.loose.started = False
        self._num_loose += 1
        alone = Owner(f"loose{self._num_loose}", [tensor])
        alone.pending = True
        alone.cells = [self._cell] if self._cell is not None else []
        alone.divisor = self._divisor
        self.needed(alone)
        self.loose.reduced = True
        self._count_by_hand()

    def read_rows(self, tensor: Any, grad: Tensor) -> None:
        """The gradient of a leaf Shard is read: as in ``_discover``, but it is global already."""
        if getattr(tensor, "_read_at", -1) >= 0 or not tensor.is_leaf or not self.num_backwards:
            return
        if self.in_pass:  # a checkpointed part reads what it will pass on
            return
        tensor._read_at = self.num_backwards
        self._num_loose += 1
        if self.world.options.record:
            whole = gathered(grad, tensor._place, self.world.data)
            alone = Owner(f"loose{self._num_loose}", [tensor])
            self.world.recorded_gradients(alone, [whole])
        if not self.world.apart:  # else it is an input, as in adversarial training
            self._count_by_hand()

    def needed(self, owner: Owner) -> None:
        """Make the gradients of an owner global."""
        owner.pending = False
        world = self.world
        with self.unseen(), world.waiting:
            self._reduce(owner)
        self._put_back(owner)
        owner.expected, owner.backwards = owner.backwards, 0
        owner.reduced, owner.eager = True, False
        owner.cells.clear()
        owner.divisor = None
        world.recorded_gradients(owner)
        if owner is self.loose:
            self._count_by_hand()

    def _put_back(self, owner: Owner) -> None:
        """Add what was set aside."""
        for index, grad in list(owner.aside.items()):
            tensor = owner.tensors[index]
            new = grad_of(tensor)
            if new is not None or not self.in_pass:  # else its new term has yet to come
                set_grad(tensor, grad if new is None else new + grad)
                del owner.aside[index]

    def _reduce(self, owner: Owner) -> None:
        world = self.world
        if not owner.started:
            self._start(owner)
        owner.share = 0.0 if world.has_no_rows else world.share
        if world.apart:
            self._estimate(owner)
            return
        riders, cell = self._riders(owner)
        if world.options.sabotage == "missing-reduction":
            totals: Any = [world.size * rider for rider in riders]
        else:
            totals = world.strategy.gradients_needed(owner, riders)
        self._take_riders(owner, cell, totals)

    def _start(self, owner: Owner) -> None:
        world = self.world
        owner.started = True
        is_known = owner.num_known == len(owner.tensors)
        if is_known and world.strategy.apart:
            return  # layers were frozen or have thawed: rounds go on as they were
        if not owner.num_known:
            world.agreement.check_replicas(
                [t for t in owner.tensors if id(t) not in self._adopted]
            )
        if owner.num_known and world.apart:  # it has grown: all begin anew from the same place
            world.strategy.settle()
            world.strategy.reload()
        owner.num_known = len(owner.tensors)
        world.strategy.start(owner)

    def _estimate(self, owner: Owner) -> None:
        """This worker's own estimate of the global gradient, from its share of the batch."""
        world = self.world
        factor = 0.0 if world.has_no_rows else 1 / world.share
        if owner.divisor is not None:
            factor *= owner.divisor.estimate(world)
        _scale(owner, factor)
        world.strategy.gradients_needed(owner, ())

    def _riders(self, owner: Owner) -> tuple[list[float], Cell | None]:
        cell = owner.cells[-1] if owner.cells else None
        if cell is not None and (cell.total is not None or cell.local.numel() != 1):
            cell = None
        riders = list(self.world.agreement.digest())
        riders.append(number(cell.local) if cell is not None else 0.0)
        divisor = owner.divisor
        unknown = divisor is not None and divisor.factor is None
        riders.append(number(divisor.local) if unknown else 0.0)  # type: ignore[union-attr]
        return riders, cell

    def _take_riders(self, owner: Owner, cell: Cell | None, totals: Any) -> None:
        self.world.agreement.compare(totals[:2])
        divisor = owner.divisor
        if divisor is not None:
            if divisor.factor is None:
                divisor.settle(float(totals[3]))
            if divisor.factor is not None and divisor.factor != 1.0:
                _scale(owner, divisor.factor)
                if owner.is_partial:
                    self.world.strategy.scaled(owner, divisor.factor)
        if cell is not None and (cell.divisor is None or cell.divisor.factor is not None):
            cell.settle(_tensor(totals[2], dtype=cell.local.dtype))

    def made_by_hand(self, grads: Any) -> None:
        """``torch.autograd.grad`` gave global gradients of leaves: a step written by hand."""
        self.num_backwards += 1
        if self.world.options.record:
            whole = [None if one is None else whole_of(self.world, one) for one in grads]
            self.world.recorded_gradients(self.loose, whole)
        self._count_by_hand()

    def lone_pass(self) -> None:
        """A backward pass of the only worker is over; without optimizers it is a step by hand."""
        if not self.owners:
            self.num_backwards += 1
            self._count_by_hand()

    def _count_by_hand(self) -> None:
        if self.world.apart:
            self.world.refuse_by_hand()
        if self.owners and self.world.accelerator is not None:
            return  # an accelerated run counts steps of optimizers alone
        if self._counted_at != self.num_backwards:
            self._counted_at = self.num_backwards
            self.loose.num_steps += 1
            self.world.stepped(self.loose)

    # Zeroing.

    def zeroed(self, tensors: Any) -> None:
        """The script has zeroed these gradients itself."""
        tensors = list(tensors)
        owners = {id(found[0]): found[0] for t in tensors if (found := self._owner_of.get(id(t)))}
        for tensor in tensors if self.world.strategy.hears_all else ():
            self.world.strategy.forget(tensor)
        for owner in owners.values():
            left = (grad for tensor in owner.tensors if (grad := grad_of(tensor)) is not None)
            if all(map(_is_zero, left)):
                self._forget(owner)
            elif owner.eager and owner.pending:
                self._send_again(owner)

    def _send_again(self, owner: Owner) -> None:
        """What was sent early is not what will be read."""
        self.world.strategy.discard(owner)
        owner.eager = owner.may_be_eager = False

    def _forget(self, owner: Owner) -> None:
        owner.is_partial = False
        for tensor in owner.tensors if self.world.strategy.hears_all else ():
            self.world.strategy.forget(tensor)
        if owner.eager and owner.pending:
            self._send_again(owner)
        owner.pending, owner.reduced, owner.eager = False, False, False
        owner.backwards = 0
        owner.aside.clear()
        owner.cells.clear()
        owner.divisor = None


def _scale(owner: Owner, factor: float) -> None:
    for tensor in owner.tensors:
        grad = grad_of(tensor)
        if grad is not None:
            grad.mul_(factor)


def _is_traced(tensor: Tensor) -> bool:
    """Whether a tensor only stands for one, while torch.compile looks at the script."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def _is_zero(grad: Tensor) -> bool:
    return grad.is_sparse or not number(grad.count_nonzero())
