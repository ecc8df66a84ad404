"""Outcome: what the calls of a tape come to, so that two ways of computing them can be compared.

Parameters are left out: an optimizer that divides by small numbers makes much of little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._player import Player, Stage
from reparto.runtime.accelerate._precision import kept_state
from reparto.runtime.accelerate._taped import Tape

#: By name; None for a tensor that a step does not touch.
Outcome = dict[str, list[Tensor | None]]


def outcome_of(tape: Tape, player: Player, home: Home) -> Outcome:
    """Make the calls of a tape once, on a player's batch; all is as it was afterwards.

    Args:
        tape: What is to be played.
        player: Of the same steps; it has a batch.
        home: Knows where tensors belong.

    Returns:
        Gradients, buffers that were changed, and what the script still holds behind the step.
    """
    with torch.random.fork_rng(drawing_on(home.device)), kept_state(tape):
        stage = Stage(tape, home.device, home)
        stage.rest()
        for index, slot in stage.slots.items():
            slot.copy_(player.slots[index])
        floating = [one for one in tape.known() if one.is_floating_point()]
        leaves = [one for one in floating if one.is_leaf and one.requires_grad]
        buffers = [(one, one.detach().clone()) for one in floating if not one.requires_grad]
        made = stage.play()
        results = [made[index] for index in sorted(tape.lasting)]
        return {
            "gradients": _copies(leaf.grad for leaf in leaves),
            # Not by their versions: batch norm counts none where it is computed as a whole.
            "buffers": _copies(None if torch.equal(one, then) else one for one, then in buffers),
            "results": _copies(
                one for one in results if one is not None and one.is_floating_point()
            ),
        }


def drawing_on(device: torch.device) -> list[torch.device]:
    """Which GPUs draw random numbers."""
    return [device] if device.type == "cuda" else []


def _copies(tensors: Iterable[Tensor | None]) -> list[Tensor | None]:
    return [None if one is None else one.detach().clone() for one in tensors]


def apart(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> float:
    """How far tensors are apart, as a share of the norm of the first; infinite if some miss."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if [a is None for a in one] != [b is None for b in other]:
        return float("inf")
    if not pairs:
        return 0.0
    far: Any = sum((a.double() - b.double()).square().sum() for a, b in pairs)
    norm: Any = sum(a.double().square().sum() for a, _ in pairs)
    share = float((far / norm.clamp(min=1e-60)).sqrt())
    return share if share == share else float("inf")  # no numbers are not the same numbers
