"""Slices in proportion to speed: who is slow gets fewer rows, and the global batch stays the same.

    steps      2 … 9 … 17 … 33 …  every 32
               each worker: seconds of computing, waiting left out
                    └ gather ─► share ← share / seconds, scaled to add up to 1
    batches    drawn ahead keep their split; the next one that no worker has drawn gets the new

A worker's seconds are its fixed costs and its rows' costs; repeating that step makes the seconds
of all workers equal, whatever the mixture.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from reparto.runtime._layout import Split, split_evenly

if TYPE_CHECKING:
    from reparto.runtime._world import World

#: Equal slices are kept unless others would gain so much, twice in a row: equal machines differ
#: by chance.
WORTH_BEGINNING = 1.10
#: Steps that are shorter say nothing about speed.
LEAST_S = 0.005
#: Once they are unequal, smaller gains count.
WORTH_CHANGING = 1.03
#: Steps between two looks, at first and in the end.
FIRST, LAST = 8, 32
#: Passes over loaders that a change can still reach.
PASSES = 4

Weights = tuple[float, ...]


class Balance:
    """How batches are shared out, now and from which batch on.

    Args:
        world: The worker's world.
        how: ``auto``, ``even``, or a weight for each rank, as in ``2:1:1``.
    """

    def __init__(self, world: World, how: str = "even") -> None:
        self.world = world
        self.weights: Weights = weights_of(how, world.size)
        self._is_on = how == "auto" and world.size > 1
        self._seconds: list[float] = []
        self._shares: list[float] = []
        self._last_s = self._last_waited_s = 0.0
        self._look_at = 1 + FIRST
        self._passes: deque[Pass] = deque(maxlen=PASSES)
        self._has_begun = self._is_likely = False

    def split(self, total: int) -> Split:
        """How so many rows are shared out now."""
        return shared_out(total, self.weights)

    def new_pass(self) -> Pass:
        """A pass over a loader begins, on every worker alike."""
        begun = Pass(self.weights)
        self._passes.append(begun)
        return begun

    def after_step(self) -> None:
        """A step was made on every worker; look, if it is time to."""
        if not self._is_on:
            return
        world = self.world
        now, waited = time.perf_counter(), world.waiting.seconds
        if world.num_steps > 1:  # the first one sets up everything
            self._seconds.append(max(1e-9, now - self._last_s - (waited - self._last_waited_s)))
            self._shares.append(max(world.share, 1e-3 / world.size))
        if world.num_steps >= self._look_at:
            self._look()
            now, waited = time.perf_counter(), world.waiting.seconds
        self._last_s, self._last_waited_s = now, waited

    def _look(self) -> None:
        """Compare speeds with the others, and change the slices if that is worth it."""
        speed = statistics.median(
            share / seconds for share, seconds in zip(self._shares, self._seconds, strict=True)
        )
        seconds = statistics.median(self._seconds)
        drawn = [0.0] * (PASSES - len(self._passes)) + [one.num_drawn for one in self._passes]
        mine = torch.tensor([speed, seconds, *drawn], dtype=torch.float64)
        everyone = torch.stack(self.world.data.gather_all(mine))
        speeds: list[float] = everyone[:, 0].tolist()
        slowest_s = float(everyone[:, 1].max())
        gain = slowest_s * sum(speeds)  # whole batches a second, over those of now
        was_likely, self._is_likely = self._is_likely, gain > WORTH_BEGINNING
        is_worth_it = gain > WORTH_CHANGING if self._has_begun else was_likely and self._is_likely
        if is_worth_it and slowest_s > LEAST_S:
            self._change(speeds, gain, everyone[:, 2:].amax(0).tolist())
        if self._has_begun or not self._is_likely:  # else the next look sees these steps, too
            self._seconds.clear()
            self._shares.clear()
        self._look_at = self.world.num_steps + min(LAST, self.world.num_steps - 1)

    def _change(self, speeds: list[float], gain: float, drawn: list[float]) -> None:
        total = sum(speeds)
        self.weights = tuple(speed / total for speed in speeds)
        for one, num_drawn in zip(self._passes, drawn[PASSES - len(self._passes) :], strict=True):
            one.change_after(int(num_drawn), self.weights)
        if not self._has_begun:
            self._has_begun = True
            told = " : ".join(f"{100 * weight:.0f}" for weight in self.weights)
            self.world.note(
                f"workers differ in speed: slices in proportion {told} from step "
                f"{self.world.num_steps + 1} on, about {gain:.2f} × as fast as equal ones"
            )


class Pass:
    """One pass over a loader, which may be drawn ahead of its use.

    Args:
        weights: With which it begins.
    """

    def __init__(self, weights: Weights) -> None:
        self.num_drawn = 0
        self._changes: deque[tuple[int, Weights]] = deque([(0, weights)])

    def change_after(self, num_drawn: int, weights: Weights) -> None:
        """Batches from that one on are shared out otherwise; nobody has drawn it yet."""
        self._changes.append((num_drawn, weights))

    def next_split(self, total: int) -> Split:
        """How the next batch is shared out."""
        while len(self._changes) > 1 and self._changes[1][0] <= self.num_drawn:
            self._changes.popleft()
        self.num_drawn += 1
        return shared_out(total, self._changes[0][1])


def weights_of(how: str, size: int) -> Weights:
    """What a setting that was checked says: weights that add up to 1."""
    if how in ("auto", "even"):
        return (1 / size,) * size
    given = [float(part) for part in how.split(":")]
    return tuple(one / sum(given) for one in given)


@lru_cache(maxsize=4096)
def shared_out(total: int, weights: Weights) -> Split:
    """Share out rows by weight; every worker gets one where there are enough."""
    size = len(weights)
    if total < size or max(weights) == min(weights):
        return split_evenly(total, size)
    spare = total - size  # beyond the one of each
    wished = [max(0.0, total * weight - 1) for weight in weights]
    scale = spare / sum(wished)
    sizes = [1 + int(scale * wish) for wish in wished]
    left = sorted(range(size), key=lambda rank: int(scale * wished[rank]) - scale * wished[rank])
    for rank in left[: total - sum(sizes)]:
        sizes[rank] += 1
    return Split(total, tuple(sizes))
