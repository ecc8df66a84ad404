"""RayActors: objects of ours that live on the nodes of a Ray cluster, and are called from here.

driver: RayActors                     a node: an actor for each object (`_post.Lodger`)
├─ share(array) ──once──► object store ──► read there without a copy, by all of a node
├─ start(make, …) ──────────────────────►  our sources at hand; make(…)
├─ actor.call("name", …) ───────────────►  its methods, one at a time
└─ wait(…) ◄────────────────────────────  what came first, or that the actor is gone
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reparto.engines import _post
from reparto.engines._ray import OBJECT_STORE_BYTES, RayEngine, _import_ray


class Lost(Exception):
    """An actor is gone: its process was killed, its node died, or what it was to be failed."""


class RayActor:
    """An object that lives elsewhere.

    Args:
        handle: Ray's.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def call(self, name: str, *given: Any) -> Any:
        """Begin to call a method; returns a promise for `RayActors.wait`."""
        return self._handle.call.remote(name, pickle.dumps(given, protocol=5))

    def close(self) -> Any:
        """Let it remove what lies there; what was called before is done first."""
        return self._handle.close.remote()

    def kill(self) -> None:
        """End its process, at once."""
        with contextlib.suppress(Exception):  # Ray's, where it is gone
            _import_ray().kill(self._handle)


class RayActors:
    """A Ray cluster as a place for objects; without an address, a Ray of its own here.

    Args:
        address: As of `RayEngine`.
        shared_bytes: About what will be shared; a Ray of our own has room for it.

    Raises:
        MissingExtraError: If Ray is not installed.
        EngineError: If the cluster cannot be reached.
    """

    def __init__(self, address: str = "", shared_bytes: int = 0) -> None:
        self._ray = _import_ray()
        self._engine = RayEngine(address=address)
        self._engine.connect(OBJECT_STORE_BYTES + int(1.1 * shared_bytes))
        package = Path(_post.__file__).parents[1]
        self._sources = self._ray.put(_post.archive(package))
        self._digest = _post.digest(package)

    def num_cpus(self) -> int:
        """CPUs of all nodes that are there now."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def share(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Put arrays where all actors of a node read them without a copy."""
        return {name: self._ray.put(array) for name, array in arrays.items()}

    def start(
        self,
        make: Callable[..., Any],
        *given: Any,
        shared: Sequence[Any] = (),
        num_cpus: int = 1,
    ) -> RayActor:
        """Begin to make an object somewhere; returns at once.

        Args:
            make: Something that can be imported there.
            given: Its first arguments.
            shared: The others: what `share` has returned.
            num_cpus: To reserve.
        """
        packed = pickle.dumps((make, given), protocol=5)
        path = tuple(each for each in sys.path if each)
        options = {"num_cpus": num_cpus, "max_restarts": 0, "max_task_retries": 0}
        made = self._ray.remote(_post.Lodger).options(**options)
        return RayActor(made.remote(self._digest, self._sources, path, packed, *shared))

    def wait(self, promises: Sequence[Any], timeout_s: float) -> list[tuple[Any, Any]]:
        """What of these is there; waits so long for the first.

        Returns:
            Each promise that is kept, with what came, or with the exception: `Lost` if the actor
            is gone.
        """
        if not promises:
            return []
        ready, _ = self._ray.wait(list(promises), timeout=timeout_s)
        others = [one for one in promises if one not in ready]
        if others:
            more, _ = self._ray.wait(others, num_returns=len(others), timeout=0)
            ready += more
        return [(one, self._kept(one)) for one in ready]

    def _kept(self, promise: Any) -> Any:
        try:
            return self._ray.get(promise)
        except self._ray.exceptions.RayTaskError as error:
            return error.cause if error.cause is not None else error
        except self._ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return Lost(lines[0] if lines else type(error).__name__)

    def close(self) -> None:
        """Leave the cluster; end the Ray that was started here."""
        self._engine.close()
