"""World: one worker's view of the run."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from reparto import strategies
from reparto.comm import Stopwatch
from reparto.errors import RefusedError
from reparto.runtime import _rules, _tensors
from reparto.runtime._agreement import Agreement
from reparto.runtime._balance import Balance
from reparto.runtime._gradients import Gradients, Owner
from reparto.runtime._layout import Placement, Split, take
from reparto.runtime._own_draws import OwnDraws
from reparto.runtime._regions import Regions
from reparto.runtime._stopping import Stopping
from reparto.runtime._tensors import Cell, Shard, Summand, number, shard
from reparto.spec import Options, StepRecord

T = TypeVar("T")

_rules_loaded = _rules


class World:
    """One worker's view of the run.

    Args:
        rank: This worker.
        size: Number of workers.
        data: Group for what the script itself needs of other workers.
        strategy: How gradients are agreed on.
        options: The same on every worker.
        on_step: Told of each optimizer step.
        on_note: Told what the user should know.
    """

    def __init__(
        self,
        *,
        rank: int = 0,
        size: int = 1,
        data: Any = None,
        strategy: Any = None,
        options: Options | None = None,
        on_step: Callable[[StepRecord], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self.rank, self.size, self.data = rank, size, data
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        self.options = options or Options()
        self.strategy = strategy
        self.gradients = Gradients(self)
        self.regions = Regions()
        self.has_regions = os.environ.get("REPARTO_REGIONS", "1") != "0"
        self.in_step = self.in_plain_step = self.is_reading = False
        self.last_batch = 0
        self.on_step, self.on_note = on_step, on_note
        self.has_hooks = False
        self.recorder: Any = None
        self.accelerator: Any = None
        self.batch_rows: Any = None
        self.groups: list[Any] = []
        self.num_steps = self.num_samples = 0
        self._told_waited_s = self._told_wire_bytes = 0.0
        self.began = time.perf_counter()
        self.first_step = self.last_step = 0.0
        self.loss: Cell | None = None
        self.loss_scale = self.scaled_by = 1.0
        self.gathered_operations: dict[str, int] = {}
        self.mirrors: list[Any] = []
        self.has_leaves = False
        self.modules: list[Any] = []
        self.module_depth = 0
        self._samples = 0
        self._site_dims: dict[Any, int] = {}
        self.share = 1 / size
        self.has_no_rows = False
        self.settled = True
        self.waiting = Stopwatch()
        if data is not None:
            data.waiting = self.waiting
        self.draws = OwnDraws(self.options.seed, rank, is_off=self.options.shared_draws)
        self.agreement = Agreement(self)
        self.balance = Balance(self)
        self.stopping = Stopping(self)
        self.batches_a_step = 1
        #: Batches that this worker has loaded whole, and the processor time of that; whether it
        #: would have to load those of others, too, where each takes one of its own.
        self.num_whole_loads, self.whole_load_s = 0, 0.0
        self.loads_all = False
        self.rate_at: Callable[[int], float] = lambda step: 1.0

    # Sharing out.

    def split(self, total: int) -> Split:
        """How so many rows are shared out."""
        return self.balance.split(total)

    def saw_split(self, split: Split) -> None:
        """A batch is shared out so."""
        self.last_batch = split.total
        self.has_no_rows = split.is_ghost(self.rank)
        self.share = split.rows(self.rank) / max(split.total, 1)

    def use(self, config: strategies.Config) -> None:
        """Go by a strategy's settings."""
        config.check(self.size + config.num_serving)
        if isinstance(config, strategies.Shared):
            self.batches_a_step = config.batches_a_step(self.size)
            self.rate_at = lambda step: config.rate_at(step, self.size)
            if (rate := config.rate_for(self.size)) != 1.0:
                self.note(f"learning rates are multiplied by {rate:g}")
            self.stopping.lead = config.lead(self.size)
            is_fixed = config.balance != "auto"
            self.balance = Balance(self, config.balance if config.waits or is_fixed else "even")

    @property
    def strategy(self) -> Any:
        """How gradients are agreed on."""
        return self._strategy

    @strategy.setter
    def strategy(self, strategy: Any) -> None:
        self._strategy = strategy
        base = strategies.Strategy
        self.strategy_adopts = getattr(type(strategy), "adopt", base.adopt) is not base.adopt

    # Replicas that are apart.

    @property
    def apart(self) -> bool:
        """Whether this worker's parameters are its own now, and so are its gradients."""
        return not self.settled and self.strategy is not None and self.strategy.apart

    def refuse_by_hand(self) -> None:
        """Parameters are updated without an optimizer, and replicas are apart."""
        raise RefusedError(
            "parameters are updated without an optimizer, which a strategy that lets replicas "
            "differ could not bring together again",
            remedy="take an exact strategy: --strategy all-reduce",
        )

    def settle(self) -> None:
        """Make replicas equal, for an evaluation, a checkpoint, the end.

        The next backward pass parts them again.
        """
        is_apart = self.apart
        if self.settled or not (is_apart or self.strategy.shows):
            return
        self.settled = True
        with self.gradients.unseen(), torch.no_grad():
            with self.waiting:
                self.strategy.settle()
            for module in self.modules if is_apart else ():
                self._average_buffers(module)

    def resume(self) -> None:
        """A training step begins: replicas may part again."""
        if self.settled:
            self.settled = False
            if self.strategy is not None and (self.strategy.apart or self.strategy.shows):
                with self.gradients.unseen():
                    self.strategy.resume()

    def _average_buffers(self, module: Any) -> None:
        found = [one for one in module.buffers() if one.is_floating_point() and one.numel()]
        for buffer in found:
            if not isinstance(buffer, _tensors.Tracked):
                buffer.copy_(self.data.sum(buffer.detach() / self.size))

    @contextlib.contextmanager
    def agreeing(self) -> Iterator[None]:
        """What is read inside is the same on every worker."""
        was, self.settled = self.settled, True
        try:
            yield
        finally:
            self.settled = was

    def agree_on(self, term: float) -> float:
        """The sum over workers."""
        return number(self.data.sum(torch.tensor([term], dtype=torch.float64)))

    def place_for(self, total: int, dim: int) -> Placement:
        """A fresh sharing-out of a dimension."""
        return Placement(self.split(total), dim)

    def rows_of(self, tensor: Tensor, place: Placement) -> Tensor:
        """This worker's rows of a replicated tensor."""
        rows = take(tensor, place, self.rank)
        if self.options.sabotage and tensor.is_floating_point() and rows.shape[place.dim] > 1:
            rows = self._sabotaged(rows, place)
        return rows

    def _sabotaged(self, rows: Tensor, place: Placement) -> Tensor:
        if self.options.sabotage == "doubled-sample" and self.rank == 0:
            first = rows.narrow(place.dim, 0, 1)
            return torch.cat([first, first, rows.narrow(place.dim, 2, rows.shape[place.dim] - 2)])
        if self.options.sabotage == "dropped-sample" and self.rank == 0:
            return torch.cat(
                [rows.narrow(place.dim, 0, 1) * 0, rows.narrow(place.dim, 1, len(rows) - 1)]
            )
        return rows

    def slice_of(self, whole: Tensor, place: Placement) -> Shard:
        """A replicated result as a Shard."""
        return shard(take(whole, place, self.rank), place)

    def dim_of_site(self, site: Any, dim: int, ndim: int) -> int:
        """The dimension to cut at a place in the script; layers may have asked for another."""
        found = self._site_dims.get(site, dim) if site is not None else dim
        return found if found < ndim else dim

    def move_site(self, site: Any, dim: int) -> None:
        """Cut along another dimension at this place in the script from now on."""
        self._site_dims[site] = dim

    # What rules tell.

    def impure(self, why: str) -> None:
        """Something looked across the batch."""
        if self.regions.watches:
            watch = self.regions.watches[-1]
            watch.impure = watch.impure or why

    def used_as_number(self) -> None:
        """The batch size was used in arithmetic."""
        self.impure("uses the batch size as a number")

    def saw_gather(self, name: str) -> None:
        """An operation ran on the whole batch on every worker."""
        self.gathered_operations[name] = self.gathered_operations.get(name, 0) + 1

    def on_whole(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run on gathered tensors with the memory layout that the sequential script has.

        Draws fill memory in order, so the layout decides which element gets which number.
        """
        gathered = _tensors.mapped(args, self._whole_alike)
        return func(*gathered, **_tensors.mapped(kwargs, self._whole_alike))

    def _whole_alike(self, tensor: Tensor) -> Tensor:
        whole = _tensors.whole(self, tensor)
        if not isinstance(tensor, Shard) or whole.dim() < 2:
            return whole
        strides: list[int] = list(tensor.stride())
        order = sorted(range(whole.dim()), key=lambda dim: (-strides[dim], dim))
        # The layout of a single row is ambiguous: whoever has the most rows tells.
        sizes = tensor._place.split.sizes
        order = self.data.share(torch.tensor(order), sizes.index(max(sizes))).tolist()
        if order == list(range(whole.dim())):
            return whole
        inverse = [order.index(dim) for dim in range(whole.dim())]
        return whole.permute(order).contiguous().permute(inverse)

    def on_whole_and_slice(self, func: Any, args: Any, kwargs: Any, place: Placement) -> Any:
        """Run on gathered tensors and keep this worker's rows of the result."""
        return self.slice_of(self.on_whole(func, args, kwargs), place)

    def region_place(self, tensor: Tensor) -> Placement:
        """Where the batch stands in a tensor inside a region: first, maybe merged with others."""
        place = self.regions.active
        assert place is not None
        rows = place.split.rows(self.rank)
        return Placement(place.split, 0, 1, tensor.shape[0] // rows)

    # Steps.

    def before_backward(self, roots: list[Tensor]) -> None:
        """A backward pass begins."""
        self.resume()
        cell, divisor = None, None
        self.loss_scale = 1.0
        if len(roots) == 1 and isinstance(roots[0], Summand):
            cell, divisor = roots[0]._cell, roots[0]._cell.divisor
            self.loss_scale = roots[0]._scale
        elif any(isinstance(root, Summand) and root._cell.divisor for root in roots):
            roots[:] = [self.exact(root) for root in roots]
        if divisor is not None and not self.gradients.may_defer():
            roots[:], divisor = [self.exact(root) for root in roots], None
        self.saw_loss(cell, roots)
        self.gradients.before_backward(cell, divisor)
        if self.recorder is not None or self.options.record:
            self._record_loss()

    def saw_loss(self, cell: Cell | None, roots: list[Tensor]) -> None:
        """A backward pass begins at these."""
        self.loss_scale, self.scaled_by = self.loss_scale / self.scaled_by, 1.0
        if cell is not None:
            self.loss = cell
        elif len(roots) == 1 and not isinstance(roots[0], Shard) and roots[0].numel() == 1:
            self.loss = Cell(roots[0].detach())
            self.loss.total = self.loss.local
        self._samples += self.last_batch

    def exact(self, tensor: Tensor) -> Tensor:
        """A Summand with its divisor settled; anything else as it is."""
        if isinstance(tensor, Summand) and tensor._cell.divisor is not None:
            with torch._C.DisableTorchFunctionSubclass():
                return _tensors.summand(_tensors.exact_summand(self, tensor))
        return tensor

    def _record_loss(self) -> None:
        if self.loss is not None:
            value = number(self.loss.value(self)) * self.loss_scale
            if self.recorder is not None:
                self.recorder.loss(value)

    def optimizer_step(self, optimizer: Any, hooked: Any, args: Any, kwargs: Any) -> Any:
        """Run an optimizer's step through the strategy."""
        owner = self.gradients.owner_of(optimizer)
        if self.accelerator is not None:
            return self.accelerator.stepped(owner, optimizer, hooked, args, kwargs)
        closure = args[0] if args else kwargs.get("closure")
        if closure is not None and self.size > 1:
            args, kwargs = (self._global_closure(closure, owner), *args[1:]), dict(kwargs)
            kwargs.pop("closure", None)
        self.in_step = True
        self.in_plain_step = closure is None  # what an optimizer reads is its own affair
        try:
            owner.has_closure = closure is not None
            if owner.pending and closure is None:
                owner.is_stepping = not self.options.record
                self.gradients.needed(owner)
                owner.is_stepping = False
            with self._at_rate(optimizer, owner):
                result = self._step(owner, lambda: hooked(optimizer, *args, **kwargs))
        finally:
            self.in_step = self.in_plain_step = False
        with self.waiting:
            self.strategy.after_step(owner)
        owner.num_steps += 1
        self.stepped(owner)
        if owner.num_steps >= self.num_steps:
            self.leave_if_done()
        return result

    def _step(self, owner: Owner, local_step: Callable[[], Any]) -> Any:
        """Step; what the strategy takes beyond the local step is waiting."""
        local_s = 0.0

        def timed() -> Any:
            nonlocal local_s
            began = time.perf_counter()
            try:
                return local_step()
            finally:
                local_s += time.perf_counter() - began

        began, waited_s = time.perf_counter(), self.waiting.seconds
        result = self.strategy.step(owner, timed)
        # What the strategy counts itself, outside of the local step, is not counted twice.
        counted_s = self.waiting.seconds - waited_s
        self.waiting.seconds += max(0.0, time.perf_counter() - began - local_s - counted_s)
        return result

    @contextlib.contextmanager
    def _at_rate(self, optimizer: Any, owner: Owner) -> Iterator[None]:
        """Step with learning rates that the strategy's settings change; the script's stay."""
        factor = 1.0 if self.strategy.has_own_rates else self.rate_at(owner.num_steps)
        if factor == 1.0:
            yield
            return
        with strategies.rescaled(optimizer, factor):
            yield

    def _global_closure(self, closure: Any, owner: Owner) -> Any:
        def run() -> Any:
            loss = closure()
            if owner.pending:
                self.gradients.needed(owner)
            return _tensors.whole(self, loss.detach()) if isinstance(loss, Tensor) else loss

        return run

    def stepped(self, owner: Owner) -> None:
        """An optimizer has stepped; the one that steps most often counts."""
        if owner.num_steps <= self.num_steps:
            return
        now = time.perf_counter()
        self.num_steps = owner.num_steps
        self.num_samples += self._samples
        if self.num_steps == 1:
            self.first_step = now
        self.last_step = now
        if self.data is not None:
            self.data.at_step(self.num_steps)
        if self.options.losses or self.options.stops_early:
            self._learn_loss()
        if self.on_step is not None:
            self.on_step(self._record(now))
        self._samples = 0
        self.balance.after_step()

    def _record(self, now: float) -> StepRecord:
        waited_s, wire_bytes = self.waiting.seconds, self.wire_bytes
        record = StepRecord(
            step=self.num_steps,
            time_s=now - self.began,
            samples=self._samples,
            loss=self.known_loss(),
            waited_s=waited_s - self._told_waited_s,
            wire_bytes=wire_bytes - self._told_wire_bytes,
        )
        self._told_waited_s, self._told_wire_bytes = waited_s, wire_bytes
        return record

    def _learn_loss(self) -> None:
        """Make the loss of a step known; mostly it has come along with the gradients."""
        if self.loss is None or (self.apart and self.has_no_rows):
            return
        with self.gradients.unseen(), torch.no_grad():
            self.loss.value(self)

    def known_loss(self) -> float | None:
        """The last loss, if every worker knows it already."""
        if self.loss is None:
            return None
        known = self.loss.total if self.loss.total is not None else self.loss.estimate
        return None if known is None else number(known) * self.loss_scale

    def leave_if_done(self) -> None:
        """Leave the script when it has done what it may, or is asked to stop."""
        self.stopping.at_boundary()
        steps, samples = self.options.steps, self.options.samples
        if steps is not None and self.num_steps >= steps:
            raise SystemExit(0)
        if samples is not None and self.num_samples >= samples:
            raise SystemExit(0)

    def saw_batch(self, batch: Any) -> None:
        """A loader has yielded; remember how many samples."""
        while isinstance(batch, (tuple, list)) and batch:
            batch = batch[0]
        if isinstance(batch, dict) and batch:
            batch = next(iter(batch.values()))
        if isinstance(batch, Tensor) and batch.dim():
            self.last_batch = batch.shape[0]

    # What talking costs.

    @property
    def wire_bytes(self) -> float:
        """Bytes put on the wire so far, see `StepRecord`."""
        return float(sum(group.wire_bytes for group in self.groups))

    def note(self, text: str) -> None:
        """Tell the user something."""
        if self.on_note is not None:
            self.on_note(text)

    # Recording, for verify.

    def recorded_gradients(self, owner: Owner, grads: list[Any] | None = None) -> None:
        """The gradients of an owner have become global."""
        if self.recorder is None and not self.options.record:
            return
        found = grads or [self._whole_gradient(tensor) for tensor in owner.tensors]
        if self.recorder is not None:
            owner.num_reductions += 1
            names = self._parameter_names(owner)
            self.recorder.gradients(owner.num_reductions, owner.name, found, names=names)

    def _whole_gradient(self, tensor: Tensor) -> Tensor | None:
        grad = strategies.grad_of(tensor)
        return None if grad is None else self.strategy.whole(grad)

    def _parameter_names(self, owner: Owner) -> list[str]:
        """Names as the script's modules have them; empty where a tensor is in none."""
        known = {id(p): name for module in self.modules for name, p in module.named_parameters()}
        names = [known.get(id(tensor), "") for tensor in owner.tensors]
        return names if all(names) else []

    def saw_module(self, module: Any) -> None:
        """A module was called; those that the script calls itself are compared at the end."""
        if self.gradients.quiet:
            return  # a transform that a data set applies
        if self.module_depth == 0 and not any(module is one for one in self.modules):
            self.modules.append(module)

    def recorded_value(self, value: Any) -> None:
        """The script has read a number from a tensor."""
        if self.recorder is None or self.gradients.quiet or self.in_plain_step:
            return
        for one in _numbers(value):
            self.recorder.value(one)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, list):
        for part in value[:1000]:
            yield from _numbers(part)
