"""Several workers in one process: for tests, with no socket and no second interpreter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from reparto import strategies
from reparto.comm import CountingGroup, Meeting, ThreadGroup
from reparto.runtime import _current, _patches, _settling
from reparto.runtime._balance import Balance
from reparto.runtime._world import World
from reparto.spec import Options, StrategyConfig
from reparto.testing._turns import Place, Turns, random_state, set_random_state

T = TypeVar("T")


def run_workers(
    size: int,
    function: Callable[[], T],
    *,
    strategy: StrategyConfig | None = None,
    regions: bool = True,
    all_generators: bool = False,
    timeout_s: float = 60.0,
    **options: Any,
) -> list[T]:
    """Run a function as a script would run on so many workers.

    Workers are threads that take turns, each with a random generator of its own that begins
    where that of the process stands now. That of the process is left as it was.

    Args:
        size: Number of workers; with one it runs as ``reparto run`` runs one.
        function: Called once a worker, with no arguments; may call ``reparto.shard`` and so on.
        strategy: How gradients are agreed on; all-reduce if not given.
        regions: Whether modules may run as regions.
        all_generators: Whether Python's and numpy's generators are each worker's own, too.
        timeout_s: How long a worker may compute without waiting for another.
        **options: Fields of ``reparto.spec.Options``.

    Returns:
        What the function returned, by worker.

    Raises:
        BaseException: The first that a worker raised.

    Example:
        >>> run_workers(2, lambda: reparto.shard(torch.arange(4.0)).sum().item())
        [6.0, 6.0]
    """
    turns = Turns(size, timeout_s, all_generators)
    crew = _Crew(size, strategy or StrategyConfig(kind="all-reduce"), turns)
    before = random_state(all_generators)
    _patches.install(_current.current, tracking=size > 1)
    if size > 1:
        _settling.install(_current.current)
    if options.get("losses") or Options(**options).stops_early:
        _patches.install_losses(_current.current)
    try:
        return crew.run(function, Options(**options), regions)
    finally:
        _patches.uninstall()
        set_random_state(before)


class _Crew:
    """The threads of one call and what they share."""

    def __init__(self, size: int, strategy: StrategyConfig, turns: Turns) -> None:
        self.size = size
        self.strategy = strategy if size > 1 else StrategyConfig(kind="single")
        self.turns = turns
        self.meetings = {name: self._meeting(name) for name in ("data", "gradients")}
        self.results: list[Any] = [None] * size
        self.errors: list[BaseException] = []

    def _meeting(self, name: str) -> Meeting:
        return Meeting(self.size, barrier=Place(self.turns, name))

    def run(self, function: Callable[[], T], options: Options, regions: bool) -> list[T]:
        """Start the threads, wait for them, and hand over their results."""
        threads = [
            threading.Thread(target=self._work, args=(rank, function, options, regions))
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        return self.results

    def _work(self, rank: int, function: Any, options: Options, regions: bool) -> None:
        try:
            self.turns.enter(rank)
            world = self._world(rank, options)
            world.has_regions = regions
            _current.enter_thread(world)
            self.results[rank] = function()
            world.settle()
            world.strategy.finish()
        except threading.BrokenBarrierError as error:
            self.errors.append(error)  # follows from the first, unless the others hang
        except BaseException as error:
            self.errors.insert(self._num_own(), error)
            self.turns.abort()
        finally:
            _current.enter_thread(None)
            self.turns.leave(rank)

    def _num_own(self) -> int:
        return sum(not isinstance(error, threading.BrokenBarrierError) for error in self.errors)

    def _world(self, rank: int, options: Options) -> World:
        groups = {
            name: CountingGroup(ThreadGroup(meeting, rank))
            for name, meeting in self.meetings.items()
        }
        config = strategies.from_spec(self.strategy)
        world = World(
            rank=rank,
            size=self.size,
            data=groups["data"] if self.size > 1 else None,
            strategy=config.build(groups["gradients"]),
            options=options,
        )
        world.strategy.outside = _current.outside
        world.use(config)
        if isinstance(config, strategies.Shared) and config.balance == "auto":
            world.balance = Balance(world)  # threads that take turns have no speeds
        world.groups = list(groups.values())
        return world
