"""The forward part of a tape, compiled into few kernels by torch's compiler (Inductor).

    zero_grad   rows   linear   tanh   linear   loss   backward   step        as recorded
    zero_grad   rows   └──────── compiled ─────────┘   backward   step        here

What is compiled is what the calls compute, not the script: they are made once with tensors that
hold no numbers, and the operations that this comes to, forward and backward, are put together.
Parameters, random numbers and the order of everything else stay as they are.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from operator import getitem
from typing import Any

import torch
from torch import Tensor, nn

from reparto.runtime.accelerate._calls import BACKWARD, FACTORIES, SET_GRAD
from reparto.runtime.accelerate._channels_last import Convolving, is_in_place
from reparto.runtime.accelerate._pure import PureCall
from reparto.runtime.accelerate._resident import Rows
from reparto.runtime.accelerate._run import Run, make_calls, refs_in
from reparto.runtime.accelerate._step_calls import StepOf, ZeroOf
from reparto.runtime.accelerate._tape import Call, Given, Look, Made
from reparto.runtime.accelerate._taped import Tape

#: The same random numbers as without a compiler.
_PATCHES = {"fallback_random": True}


def compiled(tape: Tape, device: str, run: Run) -> Tape | None:
    """The same tape with its forward part as one call, which is compiled when it is first made.

    Args:
        tape: As it was recorded, or as it was changed to be less precise.
        device: Whose autocast it is.
        run: Makes one call.

    Returns:
        None where there is nothing to gain; where gradients go back more than once: what is
        compiled is one operation to autograd, whose parts cannot be gone back through by turns;
        and where it changes what was there before: the compiler may read that again for gradients
        when it has been changed already.
    """
    positions = [at for at, call in enumerate(tape.calls) if call.func in BACKWARD]
    if len(positions) != 1 or tape.calls[positions[0]].func is torch.autograd.grad:
        return None
    before, behind = tape.calls[: positions[0]], tape.calls[positions[0] :]
    first: list[Call] = []
    part: list[Call] = []
    for call in before:
        (part if _is_forward(call) else first).append(call)
    made = _made(part) - _made(first)  # a call may return what it was given
    if len(part) < 2 or any(made & set(_used(call)) for call in first):
        return None
    if any(_changes_what_was_there(call, tape.looks) for call in part):
        return None
    wanted = {ref for call in behind for ref in _used(call)}
    wanted |= {Made(index) for index in tape.lasting}
    results = sorted(made & wanted, key=lambda ref: ref.index)
    given = dict.fromkeys(ref for call in part for ref in _used(call) if ref not in made)
    func = Compiled(_Part(part, [*given], results, len(tape.looks), device, run))
    modes = (True, False, part[0].modes[2])
    whole = Call(func, tuple(given), {}, modes, result=tuple(results), place=part[0].place)
    return dataclasses.replace(tape, calls=[*first, whole, *behind])


def _is_forward(call: Call) -> bool:
    return not isinstance(call.func, (Rows, ZeroOf, StepOf)) and (
        call.func not in FACTORIES and call.func != SET_GRAD
    )


def _changes_what_was_there(call: Call, looks: Sequence[Look]) -> bool:
    """Whether a call writes into a tensor of before the step, or into a view of one.

    Layers of torch's own do so only with numbers that no gradient depends on.
    """
    if isinstance(call.func, (PureCall, Convolving)):
        return False
    written = [call.kwargs["out"]] if "out" in call.kwargs else []
    if is_in_place(call.func, call.kwargs):
        written += call.args[:1]
    refs = [ref for one in written for ref in refs_in(one)]
    return any(type(ref) is Given or not looks[ref.index].requires_grad for ref in refs)


def _made(calls: Sequence[Call]) -> set[Made]:
    return {ref for call in calls for ref in refs_in(call.result) if type(ref) is Made}


def _used(call: Call) -> list[Made | Given]:
    return refs_in((call.args, call.kwargs))


class Compiled:
    """Calls of a tape as one, which is compiled when it is made for the first time.

    Args:
        part: What it does.
    """

    __name__ = "compiled"

    def __init__(self, part: _Part) -> None:
        self._part = part
        #: Of its layers.
        self.tensors: list[Tensor] = [*part.parameters(), *part.buffers()]
        self._run: Any = None

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        if self._run is None:
            self._run = _compile(self._part, tensors, len(self._part.results))
        return tuple(self._run(*tensors))


def _compile(part: nn.Module, tensors: Sequence[Tensor], num_results: int) -> Any:
    from torch._inductor.compile_fx import compile_fx

    graph = torch.fx.Graph()
    given = [graph.placeholder(f"given_{index}") for index in range(len(tensors))]
    made = graph.call_module("part", tuple(given))
    graph.output(tuple(graph.call_function(getitem, (made, i)) for i in range(num_results)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.fx.GraphModule({"part": part}, graph)
        return compile_fx(module, list(tensors), config_patches=_PATCHES)


class _Part(nn.Module):
    """Calls of a tape, as the compiler wants them: a module with all of its parameters.

    Args:
        calls: What it does.
        given: The tensors that it is given, as the tape names them.
        results: Those that it returns.
        num_made: How many tensors all calls of the tape make.
        device: Whose autocast it is.
        run: Makes one of them.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        given: Sequence[Made | Given],
        results: Sequence[Made],
        num_made: int,
        device: str,
        run: Run,
    ) -> None:
        super().__init__()
        self._calls, self._given, self.results = calls, given, results
        self._num_made, self._device, self._run = num_made, device, run
        layers = {id(one): one for call in calls for one in _modules(call.func)}
        self.layers = nn.ModuleList(layers.values())

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Make the calls."""
        pairs = list(zip(self._given, tensors, strict=True))
        given = {ref.index: tensor for ref, tensor in pairs if type(ref) is Given}
        earlier = {ref.index: tensor for ref, tensor in pairs if type(ref) is Made}
        made = make_calls(
            self._calls, given, self._num_made, self._device, self._run, earlier=earlier
        )
        return tuple(_there(made[ref.index]) for ref in self.results)


def _there(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _modules(func: Any) -> list[nn.Module]:
    """The layer that a call calls, whose parameters the compiler has to know."""
    if isinstance(func, Convolving):
        func = func.func
    module = func.module if isinstance(func, PureCall) else None
    return [] if module is None else [module]
