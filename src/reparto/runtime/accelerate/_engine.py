"""Engine: records training steps, and plays them when they repeat.

torch function mode: every call of the script passes here
│
├─ only looks (shape, dtype) ─────────────► answered at once
├─ a tape is followed: the expected call ─► a stand-in
│                      another call ──────► what was put off is computed, then this
└─ else ──────────────────────────────────► computed, and written down
optimizer.step
├─ the tape has come to its end ──────────► one launch of the graph
└─ else ──────────────────────────────────► a step; the same twice makes a tape
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate import _drawn
from reparto.runtime.accelerate._calls import (
    BACKWARD,
    HOOKS,
    OWN_LOOKS,
    READS,
    REFUSED,
    comes_anew,
    here,
    is_loading,
)
from reparto.runtime.accelerate._compare import MISS, Turn
from reparto.runtime.accelerate._follower import Follower
from reparto.runtime.accelerate._found import mapped, tensors_in
from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._later import Later, Ring
from reparto.runtime.accelerate._mode import Mode
from reparto.runtime.accelerate._opened import Opening
from reparto.runtime.accelerate._player import Player
from reparto.runtime.accelerate._pure import PureCalls, has_layer
from reparto.runtime.accelerate._run import modes_now
from reparto.runtime.accelerate._step_calls import StepOf, ZeroOf
from reparto.runtime.accelerate._steps import fast
from reparto.runtime.accelerate._tape import Recording, is_plain
from reparto.runtime.accelerate._taped import Tape
from reparto.runtime.accelerate._tapes import Tapes

#: After so many misses in a row a tape is left alone for some steps, which are written down.
MISSES = 2

#: References to a stand-in that nobody else holds: of the pair, and of the call that counts them.
HELD_HERE = 2

MakePlayer = Callable[[Tape], Player]


class Engine:
    """Records and plays the steps of one thread.

    Args:
        home: Knows where tensors belong.
        make_player: Makes a tape ready; raises where it cannot.
    """

    def __init__(self, home: Home, make_player: MakePlayer) -> None:
        self.home, self._make_player = home, make_player
        self.ring = Ring(home.device)
        self._kind = home.device.type
        self.turn = Turn(self._begins, self._put_off_back)
        self.tapes = Tapes(self._follower_of)
        self._following: Follower | None = None
        self._recording: Recording | None = None
        self._stand_for: dict[int, tuple[Tensor, Tensor]] = {}
        #: What launched last.
        self._launched: Follower | None = None
        self._step_calls: weakref.WeakKeyDictionary[Any, StepOf] = weakref.WeakKeyDictionary()
        self.zero_calls: weakref.WeakKeyDictionary[Any, ZeroOf] = weakref.WeakKeyDictionary()
        self._rest = 0
        self._may_record = False  # with the next call that is no tape's
        self.num_played = self.num_steps = 0
        self.is_busy = False
        self.thread, self.has_left = threading.get_ident(), False
        self.pure: PureCalls | None = None
        self.opening = Opening() if home.draws_on_cpu else None
        #: Told of each number that the script reads; None for nobody.
        self.on_read: Callable[[Any], None] | None = None
        #: Copies gradients behind each backward pass, as a call of the tape; None for nobody.
        self.snapshot: Callable[[], Any] | None = None
        self.gradients: Any = None
        #: Those of each backward pass of a closure; None outside of one.
        self.evaluations: list[Any] | None = None
        self.root: Tensor | None = None
        self.roots: list[Tensor] = []  # since the last step; kept where somebody is told of them
        self.reason = ""
        self.mode = Mode(self)

    @property
    def is_here(self) -> bool:
        """Whether the thread that asks is the one whose steps these are."""
        return threading.get_ident() == self.thread

    @property
    def followers(self) -> list[Follower]:
        """One for each tape."""
        return self.tapes.followers

    @property
    def launched(self) -> Follower | None:
        """What launched last; None between steps that were not played."""
        return None if self._following is not None else self._launched

    def _follower_of(self, tape: Tape) -> Follower:
        with self.busy():
            player = self._make_player(tape)
        return Follower(player, self.ring, self.home, self.turn)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """What is called inside is called by us, not by the script."""
        was, self.is_busy = self.is_busy, True
        try:
            yield
        finally:
            self.is_busy = was

    def exchange(self, follower: Follower, player: Player) -> Follower:
        """Play a tape by another player from the next step on; who followed it so far ends."""
        fresh = Follower(player, self.ring, self.home, self.turn)
        self.tapes.followers = [fresh if one is follower else one for one in self.followers]
        self._launched = None
        if self.turn.compare is follower.first:
            self.turn.compare = fresh.first
        follower.end()
        return fresh

    # Calls of the script; torch functions are disabled in all of these.

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call of the script's."""
        if self.home.draws_on_cpu and _drawn.draws(func):
            found = _drawn.on_cpu(func, args, kwargs)
            if type(found) is not tuple:
                return found
            func, args, kwargs = found
        answer = self._followed(func, args, kwargs)
        if answer is not MISS:
            return answer
        result = self._compute(func, args, kwargs)
        if func in BACKWARD:
            self._went_back(args)
        elif self.on_read is not None:
            if func in READS and not is_loading(sys._getframe(1)):
                self.on_read(result)
            elif func is Tensor.__format__ and not args[0].dim():
                self.on_read(self._real(args[0]).item())
        return result

    def _put_off_back(self, args: tuple[Any, ...]) -> None:
        """A backward pass was put off."""
        if self.snapshot is None:
            root = args[0] if args else None
            self.root = root if isinstance(root, Tensor) else None
            return
        with torch._C.DisableTorchFunction():
            self._went_back(args)

    def _went_back(self, args: tuple[Any, ...]) -> None:
        root = args[0] if args else None
        self.root = root if isinstance(root, Tensor) else None
        if self._recording is not None and self.root is not None:
            self._recording.outlives(self.root)
        if self.snapshot is not None:
            self.roots += [] if self.root is None else [self.root]
            self.gradients = self._answer(self.snapshot, (), {})
            if self.evaluations is not None:
                self.evaluations.append(self.gradients)

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = self._followed(func, args, kwargs)
        return self._compute(func, args, kwargs) if answer is MISS else answer

    def _followed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call by a tape; `MISS` if it is to be computed."""
        follower = self._following
        if follower is not None:
            compare = self.turn.compare
            assert compare is not None
            answer = compare(func, args, kwargs)
            if answer is not MISS:
                return answer
            if comes_anew(func, args) and not self._is_put_off(args):
                return self._run(func, self._real(args), self._real(kwargs))
            if func in OWN_LOOKS and id(args[0]) not in follower.ids:
                return func(*self._real(args), **kwargs)
            self._give_up(f"{_name(func)} comes only in some steps")
        elif self._rest <= 0:
            for one in self.followers:
                answer = one.first(func, args, kwargs)
                if answer is not MISS:
                    return answer
                one.fed.clear()
        return MISS

    def _begins(self, follower: Follower) -> None:
        """The first call of a tape was answered."""
        self._following, self._recording = follower, None

    def _is_put_off(self, args: tuple[Any, ...]) -> bool:
        assert self._following is not None
        return any(map(self._following.computes, tensors_in(args)))

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._stand_for or self.followers:
            args, kwargs = self._real(args), self._real(kwargs)
        if func in HOOKS:
            self._hooked(args[0])
        recording = self._recording
        if recording is None and self._may_record:
            self._may_record = False
            recording = self._recording = Recording()
        if recording is None or recording.trouble:
            return self._run(func, args, kwargs)
        is_outside = comes_anew(func, args) and not recording.has_made(args)
        if is_outside and not recording.has_changed(args):
            return self._run(func, args, kwargs)
        num_given = len(recording.given)
        call = recording.add(func, args, kwargs, modes_now(self._kind), here())
        result = self._run(func, args, kwargs)
        if result is not None and not tensors_in(result):
            recording.forget(num_given)
            if recording.has_made((args, kwargs)):
                asks = f"the script asks for a number within the step: {_name(func)}"
                why = REFUSED.get(func, asks)
                recording.trouble = f"{why} ({call.place})"
            return result
        recording.returned(call, result)
        return result

    def _hooked(self, tensor: Tensor) -> None:
        """A hook is hung on a tensor: tapes on which it is know nothing of it."""
        self.tapes.drop_with(tensor)
        self.turn.compare = None

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        was, self.is_busy = self.is_busy, True
        try:
            return self.home.run(func, args, kwargs)
        finally:
            self.is_busy = was

    def _real(self, value: Any) -> Any:
        """The same with computed tensors in the place of stand-ins."""

        def real(tensor: Tensor) -> Tensor:
            for follower in self.followers:
                follower.gives_away(tensor)
            found = self._stand_for.get(id(tensor))
            return tensor if found is None else found[1]

        return mapped(value, real)

    def _give_up(self, why: str = "") -> None:
        """The script does something else than the tape: compute what was put off."""
        if why and not self.reason:
            self.reason = f"{why} ({here()})"
        follower, self._following = self._following, None
        assert follower is not None
        was, self.is_busy = self.is_busy, True
        try:
            for stand_in, tensor in follower.give_up():
                self._stand_for[id(stand_in)] = (stand_in, tensor)
            self.root, self.roots = self._real(self.root), self._real(self.roots)
            self.gradients = self._real(self.gradients)
        finally:
            self.is_busy, self.turn.compare = was, None
        self._recording, self._may_record = None, False
        if follower.misses >= MISSES:
            follower.misses, self._rest = 0, 4

    # What does not pass through torch functions.

    def plainly(self, what: str, args: tuple[Any, ...], kwargs: Any) -> tuple[Any, Any]:
        """Something comes that no tape can hold: what it is to be given."""
        with torch._C.DisableTorchFunction():
            if self._following is not None:
                self._give_up()
            if self._recording is not None:
                trouble = self._recording.trouble
                self._recording.trouble = trouble or f"calls {what} ({here()})"
            return self._real(args), self._real(kwargs)

    def hand_over(self, value: Any) -> None:
        """Another thread may read all that there is now, and this value."""
        with torch._C.DisableTorchFunction():
            self._real(value)
            if self._following is not None:
                self._give_up("something is handed to another thread within the step")
            if self._kind == "cuda":
                torch.cuda.current_stream(self.home.device).synchronize()

    def changing(self, module: Any) -> None:
        """A layer is about to change: calls of it that were put off are made before."""
        if self.is_busy or not self.is_here:
            return
        with torch._C.DisableTorchFunction():
            follower, recording = self._following, self._recording
            if follower is not None and has_layer(follower.put_off, module):
                self._give_up()
            elif recording is not None and has_layer(recording.calls, module):
                name = type(module).__name__
                trouble = f"changes a layer within the step: {name} ({here()})"
                recording.trouble = recording.trouble or trouble

    # Events.

    def zero_grad(self, owner: Any, original: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        """Zero gradients, or put it off."""
        if not self.is_here:
            original(owner, *args, **kwargs)
            return
        with torch._C.DisableTorchFunction():
            call = self.zero_calls.get(owner)
            if call is None:
                call = self.zero_calls[owner] = ZeroOf(owner, original)
            self.call(call, args, kwargs)

    def module(self, module: Any, original: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Call a module: torch's own layers are one call, all others what they do inside."""
        if self.is_busy or torch.compiler.is_compiling() or not self.is_here:
            return original(module, *args, **kwargs)
        assert self.pure is not None
        call = self.pure.of(module) if _are_plain(args, kwargs) else None
        if call is None:
            return original(module, *args, **kwargs)
        with torch._C.DisableTorchFunction():
            return self.call(call, args, kwargs)

    def rows(self, cut: Any, index: Tensor) -> Any:
        """Cut a batch out of data."""
        compare = self.turn.compare
        if compare is not None and self.is_here:
            answer = compare(cut, (index,), None)
            if answer is not MISS:
                return answer
        with torch._C.DisableTorchFunction():
            return self.call(cut, (index,), {}) if self.is_here else cut(index)

    def plays(self, optimizer: Any) -> bool:
        """Launch a step that was followed to its end; called with torch functions disabled.

        Args:
            optimizer: Whose step has come, without a closure.

        Returns:
            Whether that was all; if not, ``step`` is to be called.
        """
        follower = self._following
        if follower is None or self.turn.compare is not follower.last or not self.is_here:
            return False
        call = self._step_calls.get(optimizer)
        if call is None:
            return False
        if why := follower.what_changed():
            self.reason = why
            return False
        if follower.last(call, (), None) is MISS:
            return False
        self._following = None
        self.is_busy = True
        try:
            follower.launch()
        finally:
            self.is_busy = False
        self._launched = follower
        self.turn.compare = follower.first if self._rest <= 0 else None
        self.num_played += 1
        self.num_steps += 1
        if self._stand_for:
            self._settle()
        self._recording, self._may_record = None, self.tapes.are_wanted
        return True

    def step(self, optimizer: Any, original: Callable[[], Any], *, is_plain: bool) -> Any:
        """Let an optimizer step that was not followed to its end.

        Args:
            optimizer: Which.
            original: Its step, with the script's own arguments.
            is_plain: Whether it is called without a closure.
        """
        if not self.is_here:
            with fast(optimizer, self._kind):
                return original()
        with torch._C.DisableTorchFunction():
            self.num_steps += 1
            if self._following is not None:
                self._give_up()
            return self._step_now(optimizer, original, is_plain)

    def _step_now(self, optimizer: Any, original: Callable[[], Any], is_plain: bool) -> Any:
        recording = self._recording
        if not is_plain:
            self.reason = "the optimizer is given a closure"
            if recording is not None:
                recording.trouble = self.reason
            self._begin_recording()
            self.evaluations = []
            with torch._C._EnableTorchFunction():
                return original()
        call = self._step_calls.get(optimizer)
        if call is None:
            call = self._step_calls[optimizer] = StepOf(optimizer, self._kind)
            self.tapes.begin_again()
        with fast(optimizer, self._kind):
            result = original()
        if recording is not None:
            if not recording.trouble:
                noted = recording.add(call, (), {}, modes_now(self._kind), here())
                recording.returned(noted, None)
            self.reason = self.tapes.add(recording, self.reason)
        self._settle()
        self._begin_recording()
        return result

    def _begin_recording(self) -> None:
        self._rest -= 1
        self.tapes.drop_unwanted()
        is_due = self.followers and self._rest <= 0
        self.turn.compare = self.followers[0].first if is_due else None
        self._may_record = False
        self._recording = Recording() if self.tapes.are_wanted else None

    def _settle(self) -> None:
        """A step is over: stand-ins that nobody holds any more are forgotten."""
        if self._stand_for:
            found = self._stand_for.items()
            gone = [key for key, pair in found if sys.getrefcount(pair[0]) <= HELD_HERE]
            for key in gone:
                del self._stand_for[key]

    # Numbers.

    def later(self, tensor: Tensor) -> Any:
        """A number that nothing in the loop depends on."""
        if self._launched is not None and self._following is None and self.is_here:
            later = self._launched.wrote(tensor)
            if later is not None:
                return later
        if not self.is_here or tensor.is_complex() or tensor.numel() != 1:
            return tensor.item()
        with torch._C.DisableTorchFunction():
            if self._following is not None:
                later = self._following.later(tensor)
                if later is not None:
                    follower = self._following
                    later.comes_from(self._forcing(follower, later))
                    return later
                if id(tensor) in self._following.ids:
                    self._give_up("a number is read and changed in place")
            for follower in self.followers:
                if (later := follower.wrote(tensor)) is not None:
                    return later
            found = self._stand_for.get(id(tensor))
            tensor = tensor if found is None else found[1]
            if tensor.device.type == "cpu" and self._kind != "cpu":
                return tensor.item()
            if self._recording is not None:
                self._recording.outlives(tensor)
            later = Later()
            self.ring.put(tensor, later)
            return later

    def _forcing(self, follower: Follower, later: Later) -> Callable[[], Any]:
        """How a number is had before its step was computed."""
        ref = weakref.ref(later)

        def forced() -> Any:
            with torch._C.DisableTorchFunction():
                if self._following is follower:
                    self._give_up()
                self.ring.fetch()
            one = ref()
            return None if one is None else one._value

        return forced

    def real(self, value: Any) -> Any:
        """What was computed, where the script's own tensors may only stand for it."""
        return self._real(value)

    @property
    def has_put_off(self) -> bool:
        """Whether anything but the zeroing of gradients is put off."""
        put_off = [] if self._following is None else self._following.put_off
        return any(not isinstance(call.func, ZeroOf) for call in put_off)

    def leave(self) -> None:
        """Be there for no thread from now on."""
        self.has_left = True
        self.thread, self._following = 0, None
        self.tapes.followers = []
        self.turn.compare = None
        self.mode.let_go()

    def flush(self) -> None:
        """Compute whatever was put off: somebody looks from outside."""
        with torch._C.DisableTorchFunction():
            if self._following is not None:
                self._give_up()


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func)).strip("_")


def _are_plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is given torch's own tensors, and nobody else listens to torch functions."""
    if torch._C._len_torch_function_stack() != 1:
        return False
    return all(type(one) is Tensor for one in args) or all(
        map(is_plain, tensors_in((args, kwargs)))
    )
