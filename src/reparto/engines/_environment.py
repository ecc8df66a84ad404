"""The environment of each worker: rank, threads, its GPU. Pure; shared by all engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reparto.errors import UsageError
from reparto.spec import Cluster, Line, Options, Plan, Program, to_json


def worker_environments(
    program: Program | None,
    plan: Plan,
    cluster: Cluster,
    options: Options,
    outer: Mapping[str, str],
) -> list[dict[str, str]]:
    """Decide what is added to the environment of each worker, by rank.

    Args:
        program: What will run; None if that is not known yet.
        plan: The number of workers, their places and threads.
        cluster: The hosts.
        options: How workers run.
        outer: The environment in which reparto was called; what the user set there holds.

    Raises:
        UsageError: If workers shall play a line that their script would not go over.
    """
    hosts = {host.name: host for host in cluster.hosts}
    on_host = Counter(plan.placement)
    nodes = list(dict.fromkeys(plan.placement))
    has_lines = any(host.line is not None for host in cluster.hosts if host.name in on_host)
    is_on_its_own = program is not None and program.launch == "torchrun"
    if is_on_its_own and plan.num_workers > 1 and (has_lines or outer.get("REPARTO_LINE")):
        raise UsageError(
            "the script distributes itself: its messages would not go over the emulated line",
            remedy="as root, `reparto lab` without --emulate limits real packets; or unset "
            "REPARTO_LINE",
        )
    seen: Counter[str] = Counter()
    environments = []
    for rank, name in enumerate(plan.placement):
        local_rank = seen[name]
        seen[name] += 1
        env = {
            "RANK": str(rank),
            "WORLD_SIZE": str(plan.num_workers),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(on_host[name]),
        }
        if plan.threads_per_worker > 0:  # 0: as many as plain Python would take
            env["OMP_NUM_THREADS"] = str(plan.threads_per_worker)
        if (plan.num_workers > 1 or options.record) and "PYTHONHASHSEED" not in outer:
            env["PYTHONHASHSEED"] = "0"  # sets iterate alike on all workers
        if options.record and plan.device == "cuda":
            env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # else sums may differ from run to run
        if has_lines:  # then for all of them: messages over a line are announced
            env["REPARTO_LINE"] = to_json(hosts[name].line or Line())
            env["REPARTO_HOST"] = name  # hosts that one machine plays have one address
        if is_on_its_own:
            env |= _torchrun(nodes.index(name), len(nodes), rank, plan.num_workers)
        elif plan.device == "cuda" and on_host[name] > 1:
            env["CUDA_VISIBLE_DEVICES"] = _own_gpu(local_rank, hosts[name].num_gpus, outer)
        environments.append(env)
    return environments


def _own_gpu(local_rank: int, num_gpus: int, outer: Mapping[str, str]) -> str:
    """Name the one GPU of a worker, so that ``cuda`` and ``cuda:0`` in scripts is its own."""
    given = outer.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        names = [name.strip() for name in given.split(",") if name.strip()]
    else:
        names = [str(index) for index in range(num_gpus)]
    return names[local_rank % len(names)] if names else ""


def _torchrun(node: int, num_nodes: int, rank: int, num_workers: int) -> dict[str, str]:
    """Add what frameworks look for when they ask whether torchrun started them."""
    return {
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(num_nodes),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(num_workers),
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": "reparto",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
