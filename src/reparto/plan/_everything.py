"""How a job is shared out when nothing was measured: all cores, or all GPUs. Pure.

What was measured is weighed in `choose`; how its choice is started is decided here as well.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from reparto.errors import UsageError
from reparto.spec import Cluster, Host, Job, Plan, Program, StrategyConfig

_LAUNCHES = {
    "torchrun": "the script distributes itself: started as torchrun would",
    "plain": "the script is started as it is, in one process",
}


def plan_run(
    job: Job, cluster: Cluster, program: Program, env: Mapping[str, str] = os.environ
) -> Plan:
    """Decide strategy, number of workers, places, threads and device.

    Args:
        job: What the user asked for.
        cluster: The hosts that there are.
        program: The script, converted or as it was read.
        env: The environment in which reparto was called.

    Raises:
        UsageError: If the job asks for less than one worker or thread, or for workers that cannot
            be shared out.
    """
    if any(number is not None and number < 1 for number in (job.workers, job.threads)):
        raise UsageError("at least one worker and one thread are needed")
    device, reasons = _device(cluster, program)
    accelerate = _accelerates(job, cluster, program)
    if accelerate and any(host.num_gpus for host in cluster.hosts):
        device, reasons = "cuda", []
    capacity = sum(_places(host, device) for host in cluster.hosts)
    num_workers = job.workers or capacity
    what = "GPU" if device == "cuda" else "core"
    if job.strategy == "single" or program.launch == "plain" or accelerate:
        num_workers = 1
    elif cluster.alike:
        num_workers = _evenly(job, cluster)
        reasons.append(f"{_count(num_workers // len(cluster.hosts), 'worker')} on each host")
    elif job.workers is None:
        reasons.append(f"one worker for each of {_count(capacity, what)}")
    if num_workers > 1 and num_workers > capacity:
        reasons.append(
            f"{num_workers} workers on {_count(capacity, what)}: they take turns, "
            f"{capacity} would be as fast"
        )
    if program.launch != "reparto":
        reasons.append(_LAUNCHES[program.launch])
    placement = place(num_workers, cluster.hosts, device)
    return Plan(
        strategy=_strategy(job, program, num_workers),
        num_workers=num_workers,
        placement=placement,
        threads_per_worker=_threads(job, cluster, placement, env),
        device=device,
        accelerate=accelerate,
        reasons=tuple(reasons),
    )


def _accelerates(job: Job, cluster: Cluster, program: Program) -> Literal["", "exact", "relaxed"]:
    """Whether one worker makes the most of its device.

    Raises:
        UsageError: If that is asked for, and several workers.
    """
    wished: Literal["exact", "relaxed"] = "relaxed" if job.relaxed else "exact"
    is_shared = (job.workers or 1) > 1 or job.strategy not in ("all-reduce", "single")
    if job.accelerate == "on" and is_shared:
        raise UsageError(
            "acceleration is for one worker, and sharing out is for several",
            remedy="leave out --accelerate, or --workers and --strategy",
        )
    if job.accelerate == "off" or program.launch != "reparto":
        return ""
    if job.accelerate == "on":
        return wished
    num_gpus = sum(host.num_gpus for host in cluster.hosts)
    return wished if num_gpus == 1 and len(cluster.hosts) == 1 and not is_shared else ""


def place(num_workers: int, hosts: Sequence[Host], device: str) -> tuple[str, ...]:
    """Name the host of each rank: shared out by size, ranks of a host side by side."""
    load: Counter[str] = Counter()
    for _ in range(num_workers):
        least = min(hosts, key=lambda host: (load[host.name] + 1) / _places(host, device, 1))
        load[least.name] += 1
    return tuple(host.name for host in hosts for _ in range(load[host.name]))


def _device(cluster: Cluster, program: Program) -> tuple[Literal["cpu", "cuda"], list[str]]:
    if not any(host.num_gpus for host in cluster.hosts):
        return "cpu", []
    if program.names_gpu:
        return "cuda", []
    return "cpu", ["there are GPUs, but the script never asks for one"]


def _evenly(job: Job, cluster: Cluster) -> int:
    num_hosts = len(cluster.hosts)
    num_workers = job.workers or num_hosts
    if num_workers % num_hosts:
        raise UsageError(
            f"{_count(num_workers, 'worker')} on {_count(num_hosts, 'host')}: how large the other "
            "hosts are is not known here, so each has to run as many",
            remedy=f"--workers {num_hosts}, or a multiple of that, on all hosts",
        )
    return num_workers


def _places(host: Host, device: str, at_least: int = 0) -> int:
    return max(at_least, host.num_gpus if device == "cuda" else host.num_cores)


def _strategy(job: Job, program: Program, num_workers: int) -> StrategyConfig:
    if program.launch != "reparto":
        return StrategyConfig(kind="script")  # its own affair
    if num_workers == 1:
        return StrategyConfig(kind="single")
    return StrategyConfig(kind=job.strategy, settings=job.settings)


def _threads(job: Job, cluster: Cluster, placement: Sequence[str], env: Mapping[str, str]) -> int:
    if job.threads is not None:
        return job.threads
    if len(placement) == 1:
        return 0  # whatever plain Python would take
    given = env.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    on_host = Counter(placement)
    return min(
        max(1, host.num_cores // on_host[host.name])
        for host in cluster.hosts
        if on_host[host.name]
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
