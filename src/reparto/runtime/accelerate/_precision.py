"""Less precise numbers, where the user has agreed to them: TF32, and bf16 if it is faster.

TF32 is a switch of torch's. For bf16 the forward part of a tape is captured once more under
autocast; parameters, gradients and the optimizer's state stay float32. Where it convolves, that
is captured once more with channels side by side. Graphs are timed on the state of now, which is
put back, and the fastest one is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._calls import BACKWARD
from reparto.runtime.accelerate._channels_last import in_channels_last
from reparto.runtime.accelerate._player import Player
from reparto.runtime.accelerate._resident import Rows
from reparto.runtime.accelerate._step_calls import StepOf, ZeroOf
from reparto.runtime.accelerate._taped import Tape

#: bf16 is taken if it is faster by so much.
WORTH = 1.05
ROUNDS = 5

Timed = Callable[[Player], float]


def allow_tf32() -> None:
    """Let matrix products and convolutions of float32 round their factors to TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def in_bf16(tape: Tape) -> Tape:
    """The same tape with its forward part under autocast.

    Args:
        tape: As it was recorded.
    """
    calls = []
    for call in tape.calls:
        is_forward = call.func not in BACKWARD and not isinstance(call.func, (StepOf, ZeroOf))
        modes = (call.modes[0], True, torch.bfloat16) if is_forward else call.modes
        changed = dataclasses.replace(call, modes=modes)
        calls.append(changed)
    return dataclasses.replace(tape, calls=calls)


def faster(
    tape: Tape, make: Callable[[Tape], Player], first: Callable[[Tape], object], timed: Timed
) -> tuple[Player, str]:
    """The player that is faster: in TF32, or in bf16.

    Args:
        tape: As it was recorded.
        make: Captures a tape.
        first: Makes the calls of a tape once, before it is captured: libraries that see an
            operation for the first time try ways of computing it, which a capture does not allow.
        timed: Seconds of a launch.

    Returns:
        The player, and its precision in words.
    """
    best, precision = make(tape), "TF32"
    if any(call.modes[1] for call in tape.calls):
        return best, "the script's own autocast"
    lower = in_bf16(tape)
    for changed in (lower, in_channels_last(lower)):
        if changed is None:
            continue
        try:
            with kept_state(best.tape):
                first(changed)
                player = make(changed)
                is_faster = WORTH * timed(player) <= timed(best)
        except (RuntimeError, torch.cuda.OutOfMemoryError):
            continue
        if is_faster:
            best, precision = player, "bf16"
    best.tape = dataclasses.replace(best.tape, calls=tape.calls)
    return best, precision


@contextmanager
def kept_state(tape: Tape) -> Iterator[None]:
    """Put parameters, buffers, gradients and optimizers back; random numbers go on."""
    data = {id(t) for call in tape.calls if isinstance(call.func, Rows) for t in call.func.tensors}
    tensors: list[Tensor] = [one for one in tape.kept.values() if id(one) not in data]
    for ref in tape.optimizers:
        optimizer: Any = ref()
        for state in optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
    leaves = [one for one in tape.kept.values() if one.is_leaf]
    grads = [one.grad for one in leaves]
    tensors += [grad for grad in grads if grad is not None]
    copies = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        for leaf, grad in zip(leaves, grads, strict=True):
            leaf.grad = grad
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.detach().copy_(copy)


def seconds(player: Player) -> float:
    """Seconds of a launch, by the GPU's own clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    player.rest()
    player.launch()
    begin.record()
    for _ in range(ROUNDS):
        player.rest()
        player.launch()
    end.record()
    end.synchronize()
    player.rest()
    player.rewind()
    return float(begin.elapsed_time(end)) / 1000 / ROUNDS
