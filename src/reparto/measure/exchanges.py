"""What talking costs: operations over workers, timed at growing sizes.

Not part of the package's public list: it brings torch, and workers call it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from reparto.comm import MAX, Group
from reparto.spec import Exchange, Pattern

#: Payloads; beyond them follows what is really sent, as far as that takes no longer than so much.
SIZES = (4 * 1024, 64 * 1024, 512 * 1024, 4 * 1024 * 1024)
LONGEST_S = 0.8
#: How often each is done, the first time not counted: a line that was idle has to get going again.
#: What takes longer than so much is done twice.
REPEATS, LONG_S = 4, 0.15


def measure_exchanges(group: Group, largest: Mapping[Pattern, int]) -> list[Exchange]:
    """Time patterns over the members of a group; collective.

    Args:
        group: Who takes part.
        largest: For each pattern that is wanted, the largest payload that is.

    Returns:
        The same on every member.
    """
    operations: dict[Pattern, Callable[[Group, Tensor], None]] = {
        "all-reduce": _all_reduce,
        "gather": _gather,
        "exchange": _exchange,
        "swap": _swap,
        "push": _push,
        "pull": _pull,
    }
    found = []
    for pattern, operation in operations.items():
        if pattern not in largest:
            continue
        size: int | None = SIZES[0]
        measured: list[Exchange] = []
        while size is not None:
            measured.append(_timed(group, pattern, operation, size))
            size = _next(measured, largest[pattern])
        found += measured
    return found


def _next(measured: list[Exchange], largest: int) -> int | None:
    """The next size to try; None if that will do."""
    last = measured[-1]
    if last.size_bytes >= largest or last.seconds > LONGEST_S / 2:
        return None
    wanted = min(next((s for s in SIZES if s > last.size_bytes), largest), largest)
    a_byte_s = last.seconds / last.size_bytes
    affordable = int(LONGEST_S / a_byte_s) // 4096 * 4096
    size = min(wanted, affordable)
    return size if size > 1.2 * last.size_bytes else None


def _timed(
    group: Group, pattern: Pattern, operation: Callable[[Group, Tensor], None], size: int
) -> Exchange:
    payload = torch.zeros(max(1, size // 4))
    walls: list[float] = []
    cpus: list[float] = []
    while len(walls) < REPEATS:
        group.barrier().wait()
        began, cpu = time.perf_counter(), time.process_time()
        operation(group, payload)
        cpus.append(time.process_time() - cpu)
        walls.append(_slowest(group, time.perf_counter() - began))
        if len(walls) > 1 and walls[-1] > LONG_S:
            break
    cpu_s = group.sum(torch.tensor([sum(cpus[1:]) / len(cpus[1:])], dtype=torch.float64))
    return Exchange(
        pattern=pattern,
        num_workers=group.size(),
        size_bytes=size,
        seconds=typical_s(walls),
        cpu_s=float(cpu_s) / group.size(),
    )


def typical_s(walls: Sequence[float]) -> float:
    """What of several times counts.

    The median of all but the first. Of two that are long the shorter one: larger payloads are told
    from it, and what a lost packet or another's processor time holds up once would count as often
    as they are larger.

    Args:
        walls: In the order in which they were measured.
    """
    if len(walls) == 2 and walls[-1] > LONG_S:
        return min(walls)
    later = sorted(walls[1:])
    return later[len(later) // 2]


def _slowest(group: Group, seconds: float) -> float:
    return float(group.reduced(torch.tensor([seconds], dtype=torch.float64), MAX))


def _all_reduce(group: Group, payload: Tensor) -> None:
    group.sum(payload)


def _gather(group: Group, payload: Tensor) -> None:
    group.gather_all(payload)


def _exchange(group: Group, payload: Tensor) -> None:
    rows = payload[: len(payload) // group.size() * group.size()].view(group.size(), -1)
    group.exchange(rows)


def _swap(group: Group, payload: Tensor) -> None:
    """To the next, and from the one before."""
    rank, size = group.rank(), group.size()
    receiving = group.recv([torch.empty_like(payload)], (rank - 1) % size, 0)
    sending = group.send([payload], (rank + 1) % size, 0)
    receiving.wait()
    sending.wait()


def _push(group: Group, payload: Tensor) -> None:
    """Everyone to the first."""
    if group.rank():
        group.send([payload], 0, 0).wait()
    else:
        boxes = [torch.empty_like(payload) for _ in range(group.size() - 1)]
        works = [group.recv([box], rank + 1, 0) for rank, box in enumerate(boxes)]
        for work in works:
            work.wait()


def _pull(group: Group, payload: Tensor) -> None:
    """The first to everyone."""
    if group.rank():
        group.recv([torch.empty_like(payload)], 0, 0).wait()
    else:
        for work in [group.send([payload], rank, 0) for rank in range(1, group.size())]:
            work.wait()
