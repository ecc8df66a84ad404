"""Tapes: steps that were written down are held against those before, and the same two make one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from reparto.runtime.accelerate._follower import Follower
from reparto.runtime.accelerate._tape import Recording
from reparto.runtime.accelerate._taped import NotTapedError, Tape, taped
from reparto.runtime.accelerate._trimmed import trimmed

#: So many steps are written down in vain before it is left at that.
IN_VAIN = 24
#: So many kinds of steps (batches of other sizes, several optimizers) are put on tape.
MOST_TAPES = 6


class Tapes:
    """The tapes of one training.

    Args:
        make_follower: Makes a tape ready to be followed; raises where it cannot.

    Attributes:
        followers: One for each tape, the newest first.
    """

    def __init__(self, make_follower: Callable[[Tape], Follower]) -> None:
        self.followers: list[Follower] = []
        self._make_follower = make_follower
        self._before: dict[Any, tuple[Recording, set[int]]] = {}
        self._latest: Recording | None = None
        self._in_vain = 0

    @property
    def are_wanted(self) -> bool:
        """Whether steps are to be written down."""
        return self._in_vain < IN_VAIN and len(self.followers) < MOST_TAPES

    def begin_again(self) -> None:
        """Another optimizer has come: what was in vain may not be so now."""
        self._in_vain, self._before = 0, {}

    def drop_unwanted(self) -> None:
        """Let go of tapes whose optimizers are gone."""
        if any(not one.is_wanted for one in self.followers):
            self.followers = [one for one in self.followers if one.is_wanted]

    def drop_with(self, tensor: Tensor) -> None:
        """Let go of tapes on which a tensor is."""
        self.followers = [
            one
            for one in self.followers
            if all(tensor is not kept for kept in one.tape.kept.values())
        ]

    def add(self, recording: Recording, reason: str) -> str:
        """Take a step that was written down whole.

        Args:
            recording: The step.
            reason: Why steps were not played so far.

        Returns:
            Why no tape was made of it; empty if one was.
        """
        why = self._why_not(recording, reason)
        self._in_vain = self._in_vain + 1 if why is not None else 0
        return why or ""

    def _why_not(self, recording: Recording, reason: str) -> str | None:
        recording, lasting = trimmed(recording, recording.lasting())
        names = tuple(getattr(call.func, "__name__", "") for call in recording.calls)
        key = names, tuple(tensor.shape for tensor in recording.given)
        before = self._before.get(key)
        self._before[key] = (recording, lasting)
        if before is None:
            latest, self._latest = self._latest, recording
            apart = "" if latest is None else latest.first_difference(recording)
            return recording.trouble or apart or reason
        if recording.trouble or (why := before[0].first_difference(recording)):
            return recording.trouble or why
        try:
            tape = taped(before[0], recording, lasting | before[1])
            self.followers.insert(0, self._make_follower(tape))
        except NotTapedError as error:
            return str(error)
        except Exception as error:  # whatever a capture meets, the script goes on without it
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        finally:
            del self._before[key]
        return None
