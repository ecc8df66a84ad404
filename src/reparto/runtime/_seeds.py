"""The same random numbers on every worker, outside of the model too.

All workers run the same script, so all of them ask for the same numbers in the same places. What
would draw from the operating system, the clock or the process id draws from a stream of the run
instead. There is one stream a *site* (module, function, line), so that a library which only
worker 0 uses, such as a tracker, does not shift what the script draws::

    train.py:12  uuid4() ──► os.urandom ──► SHAKE(seed, forks, "__main__:main:12", 1st call)
    train.py:30  default_rng() ──► secrets ──► random._urandom ──► SHAKE(seed, …, ":30", 1st)
    tempfile.py  Random() ──► private: the operating system, as two workers of one host must not
                              choose the same name

A seed that the script gives may come from the clock: those of `torch.manual_seed`, `random.seed`
and `numpy.random.seed` are agreed upon, worker 0's wins. Not covered: `default_generator.seed()`,
other generators seeded with a time, and the order of sets of strings, for which workers need the
same ``PYTHONHASHSEED``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import struct
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

#: Modules through which a site asks.
_TRANSPARENT = frozenset({__name__, "random", "secrets", "uuid"})
#: Packages whose numbers are names and keys of one process, or of one run at a server.
_PRIVATE = (
    *("tempfile.", "multiprocessing.", "concurrent.", "asyncio.", "socket.", "ssl.", "filelock."),
    *("http.", "urllib.", "urllib3.", "requests.", "aiohttp.", "websockets.", "grpc.", "email."),
    *("torch.multiprocessing.", "torch.distributed.", "torch._inductor.", "triton.", "reparto."),
    *("wandb.", "mlflow.", "comet_ml.", "neptune.", "clearml.", "swanlab.", "ray.", "joblib."),
)
_BITS_63 = 2**63 - 1


def share_randomness(seed: int, agree: Callable[[int], int]) -> None:
    """Seeds all generators and lets this worker draw what the others draw, until `restore`.

    Call it once on every worker, before the script runs.

    Args:
        seed: The run's seed, the same on all workers. Take a new one for every run: names that
            the script makes with `uuid` follow from it.
        agree: Returns worker 0's value of the argument; a collective call. The arguments are 64
            bit signed integers, and it is only called in the main thread of the worker.

    Example:
        >>> share_randomness(seed, agree=lambda value: group.broadcast_int(value))
    """
    global _shared
    restore()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    _shared = _Shared(seed, agree)
    _shared.install()


def restore() -> None:
    """Undoes all patches of `share_randomness`; the generators keep their states."""
    global _shared
    if _shared is not None:
        _shared.uninstall()
        _shared = None


class _Shared:
    """The streams of one run, and the functions that draw from them."""

    def __init__(self, seed: int, agree: Callable[[int], int]) -> None:
        self._seed = seed
        self._agree = agree
        self._counts: Counter[str] = Counter()
        self._pid = os.getpid()
        self._undo: list[Callable[[], None]] = []
        self.num_forks = 0
        self.branch: tuple[int, ...] = ()  # which fork of which fork this process is

    def install(self) -> None:
        self._patch(os, "urandom", self._urandom)
        self._patch(os, "getrandom", self._urandom)
        self._patch(random, "_urandom", self._urandom)  # of SystemRandom, secrets and numpy
        self._patch(random.Random, "seed", self._instance_seed)
        self._patch(random, "seed", self._random_seed)
        self._patch(uuid, "uuid1", self._uuid1)
        for numpy_module in (np.random, np.random.mtrand):
            self._patch(numpy_module, "seed", self._given)
        torch_seed = self._drawn(torch.manual_seed)
        for torch_module in (torch, torch.random):
            self._patch(torch_module, "seed", torch_seed)
            self._patch(torch_module, "manual_seed", self._given)
        self._patch(torch.cuda, "seed", self._drawn(torch.cuda.manual_seed))
        self._patch(torch.cuda, "seed_all", self._drawn(torch.cuda.manual_seed_all))
        self._replace(torch, "Generator", _generator_class(self))

    def uninstall(self) -> None:
        while self._undo:
            self._undo.pop()()

    def draw(self, size: int) -> bytes | None:
        """The next bytes of the asking site's stream; None if they are to be private."""
        site = _site()
        if site is None or not self._undo:
            return None
        self._counts[site] += 1
        place = (self._seed, self.branch, site, self._counts[site])
        return hashlib.shake_256(repr(place).encode()).digest(size)

    def draw_int(self) -> int | None:
        drawn = self.draw(8)
        return None if drawn is None else int.from_bytes(drawn, "little") & _BITS_63

    def agreed(self, value: Any) -> Any:
        """Worker 0's value, of the same type, if it is a number that can be sent."""
        # DataLoader's children and threads seed themselves, where no other worker waits.
        is_alone = os.getpid() != self._pid or _site() is None or not self._undo
        if is_alone or threading.current_thread() is not threading.main_thread():
            return value
        if isinstance(value, float):
            bits = self._agree(struct.unpack("q", struct.pack("d", value))[0])
            return struct.unpack("d", struct.pack("q", bits))[0]
        if isinstance(value, int | np.integer) and abs(int(value)) <= _BITS_63:
            return type(value)(self._agree(int(value)))
        return value

    # Each of these stands in for an original, which it gets as its first argument.

    def _urandom(self, original: Callable[..., bytes], size: int, *flags: int) -> bytes:
        drawn = self.draw(size) if size >= 0 else None
        return original(size, *flags) if drawn is None else drawn

    def _instance_seed(self, original: Any, rng: Any, a: Any = None, version: int = 2) -> None:
        original(rng, self.draw_int() if a is None else a, version)

    def _random_seed(self, original: Any, a: Any = None, version: int = 2) -> None:
        original(self.draw_int() if a is None else self.agreed(a), version)

    def _given(self, original: Any, seed: Any = None) -> Any:
        return original(self.agreed(seed))

    def _uuid1(self, original: Any, *args: Any, **kwargs: Any) -> uuid.UUID:
        drawn = self.draw(16)
        made = None if drawn is None else uuid.UUID(bytes=drawn, version=1)
        return made or original(*args, **kwargs)

    def _drawn(self, manual_seed: Callable[[int], Any]) -> Callable[..., Any]:
        def seed(original: Callable[[], Any]) -> Any:
            drawn = self.draw_int()
            if drawn is None:
                return original()
            manual_seed(drawn)
            return drawn

        return seed

    def _patch(self, owner: Any, name: str, stand_in: Callable[..., Any]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def patched(*args: Any, **kwargs: Any) -> Any:
            return stand_in(original, *args, **kwargs)

        self._replace(owner, name, patched)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, value)


def _site() -> str | None:
    """Which place asks for random numbers; None if the answer is nobody else's business."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in _TRANSPARENT and frame.f_back is not None:
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__"))
    if f"{module}.".startswith(_PRIVATE):
        return None
    return f"{module}:{frame.f_code.co_qualname}:{frame.f_lineno}"


def _generator_class(shared: _Shared) -> type:
    """A `torch.Generator` whose `seed` draws; the C type itself cannot be changed."""
    base = torch.Generator

    def is_instance(cls: type, instance: object) -> bool:
        # What C makes, the default generator for one, is of the base type.
        kind = type(base)
        return bool(kind.__instancecheck__(base if cls is made else cls, instance))

    def seed(self: torch.Generator) -> int:
        drawn = shared.draw_int()
        if drawn is None:
            return base.seed(self)
        self.manual_seed(drawn)
        return drawn

    kind = type("GeneratorType", (type(base),), {"__instancecheck__": is_instance})
    content = {"seed": seed, "__module__": "torch", "__doc__": base.__doc__}
    made: type = kind("Generator", (base,), content)
    return made


_shared: _Shared | None = None


def _before_fork() -> None:
    if _shared is not None:
        _shared.num_forks += 1


def _after_fork() -> None:
    # Siblings would otherwise draw the same numbers as each other.
    if _shared is not None:
        _shared.branch += (_shared.num_forks,)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
