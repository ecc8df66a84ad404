"""A recording as a table, one row a host: the same cells on the screen and on the page."""

from __future__ import annotations

from reparto.spec import HostUsage, Recording
from reparto.sweep._table import NONE, aligned, size


def usage_cells(recording: Recording) -> list[tuple[str, ...]]:
    """What stands above the columns, and one row a host; about GPUs only if there are any."""
    summary = recording.summary()
    has_gpus = any(one.mean_gpu_share is not None for one in summary)
    over = " over lo" if recording.over_loopback else ""
    network = (f"sent{over}", f"received{over}")
    gpu = ("GPU mean", "GPU memory peak") if has_gpus else ()
    header = ("host", "CPU mean", "CPU peak", "memory peak", *gpu, *network)
    return [header, *(_row(one, has_gpus) for one in summary)]


def usage_table(recording: Recording) -> str:
    """The table as text; CPU in cores."""
    return "\n".join(aligned(usage_cells(recording), words={0}))


def _row(one: HostUsage, has_gpus: bool) -> tuple[str, ...]:
    gpu = (_percent(one.mean_gpu_share), _size(one.peak_gpu_memory_bytes)) if has_gpus else ()
    return (
        one.host,
        f"{one.mean_cpu_cores:.2f} of {one.cpu_limit_cores:g}",
        f"{one.peak_cpu_cores:.2f}",
        f"{_size(one.peak_memory_bytes)} of {_size(one.memory_limit_bytes)}",
        *gpu,
        *(_size(one.sent_bytes), _size(one.received_bytes)),
    )


def _size(num_bytes: int | None) -> str:
    return NONE if num_bytes is None else size(num_bytes)


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.0f} %"
