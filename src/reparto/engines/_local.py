"""LocalEngine: workers as processes of this machine.

control pipe of each worker: "go" when the assignment is there; EOF when we are gone
"""

from __future__ import annotations

import os
import socket
import sys

from reparto.engines._base import Engine, Launch, Run, WorkerLaunch
from reparto.engines._environment import worker_environments
from reparto.engines._process import WorkerProcess
from reparto.engines._supervised import SupervisedRun
from reparto.errors import UsageError
from reparto.measure import is_loopback, local_host
from reparto.spec import Assignment, Cluster, Options, Plan, Program, to_json


class LocalEngine(Engine):
    """Runs workers on this machine."""

    kind = "local"

    def __init__(self, *, address: str = "", ship: tuple[str, ...] = ()) -> None:
        super().__init__(address=address, ship=ship)
        if address:
            raise UsageError(
                "the local engine has no address", remedy="leave out --address, or --engine ray"
            )

    def cluster(self) -> Cluster:
        """This machine alone."""
        return Cluster(hosts=(local_host(),))

    def prepare(
        self, program: Program | None, plan: Plan, cluster: Cluster, options: Options
    ) -> Launch:
        """Decide the command and the environment of each worker."""
        enter = {host.name: host.enter for host in cluster.hosts}
        # -P: the user's folder does not come on the path before torch is imported.
        command = (sys.executable, "-P", "-m", "reparto.runtime.worker")
        environments = worker_environments(program, plan, cluster, options, os.environ)
        first = next(host for host in cluster.hosts if host.name == plan.placement[0])
        if not is_loopback(first.address):  # a lab's host, with a network of its own
            environments = [{**env, "MASTER_ADDR": first.address} for env in environments]
        workers = tuple(
            WorkerLaunch(rank=rank, host=name, command=(*enter[name], *command), env=env)
            for rank, (name, env) in enumerate(zip(plan.placement, environments, strict=True))
        )
        return Launch(engine=self.kind, workers=workers, ship=self.ship)

    def start(self, launch: Launch) -> Run:
        """Start the processes."""
        return LocalRun(launch)


class LocalRun(SupervisedRun):
    """The workers of a launch, as processes of this machine."""

    def _start(self, launch: Launch) -> None:
        # Listening since before anyone knows the port: nobody can take it away. In a network of
        # its own, which this process is not part of, worker 0 listens by itself.
        elsewhere = "MASTER_ADDR" in launch.workers[0].env
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
            env = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(server.getsockname()[1]),
                "REPARTO_ASSIGNMENT": str(self._scratch.assignment),
                "REPARTO_SINCE_NS": str(int(self._launched_at * 1e9)),
            }
            for worker in launch.workers:
                meets = worker.rank == 0 and len(launch.workers) > 1 and not elsewhere
                listen = server if meets else None
                self._take_in(WorkerProcess(worker, launch.cwd, env, listen, self._scratch))

    def _hand_over(self, assignment: Assignment) -> None:
        self._scratch.write_assignment(to_json(assignment))
        for worker in self._workers:
            worker.go()
