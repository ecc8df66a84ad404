"""PeersEngine: the same command on several machines, which find each other by TF_CONFIG.

    machine 0                               machine 1
    reparto run ◄────── circle ───────────► reparto run        see `_circle`
      ├─ worker 0 ◄─── store, gloo ──────►    └─ worker 1
      └─ stand-in of worker 1                    stand-in of worker 0

Each command starts the workers of its own machine, and has a stand-in for each of the others. What
a worker tells, and how it ends, is passed on to all machines, so that each of them comes to the
same verdict by the same rules as if all workers were its own.

Machine 0 listens at its port of TF_CONFIG: first for the commands, and when all are there worker 0
takes the port over, for the store at which workers meet.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import os
import socket
import sys
import time
from typing import Any

from reparto.engines._base import Engine, Launch, Run, WorkerLaunch
from reparto.engines._circle import Circle, Hub, Message, Spoke
from reparto.engines._environment import worker_environments
from reparto.engines._stand_in import OwnWorker, StandIn
from reparto.engines._statement import statement_of
from reparto.engines._supervised import SupervisedRun
from reparto.engines._tf_config import Peer, task_of
from reparto.engines._worker import Worker
from reparto.errors import UsageError
from reparto.measure import local_host
from reparto.spec import (
    Assignment,
    Cluster,
    Event,
    Note,
    Options,
    Plan,
    Program,
    to_json,
)

TELL_AFTER_S = 2.0  # whoever waits so long is told for whom
HEARD_LIMIT_S = 0.5  # all machines have heard of a request to stop by then
KILLED_LIMIT_S = 2.0  # other machines have so long to tell that what they ended is dead


class PeersEngine(Engine):
    """Runs the workers of this machine, one of those that TF_CONFIG names.

    Raises:
        UsageError: If TF_CONFIG is not set, cannot be understood, or gives this machine no part.
    """

    kind = "peers"

    def __init__(self, *, address: str = "", ship: tuple[str, ...] = ()) -> None:
        if address or ship:
            raise UsageError(
                "the peers engine takes neither --address nor --ship",
                remedy="TF_CONFIG names the hosts; what the script reads has to be on all of them",
            )
        super().__init__()
        task = task_of(os.environ)
        if task is None:
            raise UsageError(
                "the peers engine needs TF_CONFIG",
                remedy="set it on each machine, as docs/how-to/machines-without-a-cluster.md says",
            )
        if task.position is None:
            raise UsageError(task.told(), remedy="start chief and workers only")
        self._peers, self._position = task.peers, task.position

    def cluster(self) -> Cluster:
        """The hosts of TF_CONFIG, each taken to be as large as this one."""
        here = local_host()
        hosts = (
            dataclasses.replace(here, name=peer.name, address=peer.address) for peer in self._peers
        )
        return Cluster(hosts=tuple(hosts), alike=True)

    def prepare(
        self, program: Program | None, plan: Plan, cluster: Cluster, options: Options
    ) -> Launch:
        """Decide the command and the environment of each worker, on all machines."""
        if options.discard_writes:
            raise UsageError(
                "only `reparto run` runs on peers",
                remedy="verify and compare with --engine local or ray",
            )
        command = (sys.executable, "-P", "-m", "reparto.runtime.worker")
        environments = worker_environments(program, plan, cluster, options, os.environ)
        workers = tuple(
            WorkerLaunch(rank=rank, host=name, command=command, env=env)
            for rank, (name, env) in enumerate(zip(plan.placement, environments, strict=True))
        )
        return Launch(engine=self.kind, workers=workers)

    def start(self, launch: Launch) -> Run:
        """Start the workers of this machine."""
        return PeersRun(launch, self._peers, self._position)


class PeersRun(SupervisedRun):
    """The workers of a launch: processes of this machine, and stand-ins for all others.

    Args:
        launch: What is started, on all machines together.
        peers: The machines.
        position: Of this one among them.
    """

    stop_grace_s = 3.0  # what workers say of a stop comes from another machine

    def __init__(self, launch: Launch, peers: tuple[Peer, ...], position: int) -> None:
        self._peers, self._position = peers, position
        self.has_main = position == 0
        self._listen: socket.socket | None = None
        self._circle: Circle | None = None
        self._is_under_way = False
        self._tell_at: float | None = None
        self._notices: list[str] = []
        self._ends_told: set[int] = set()
        self._untold: list[Message] = []  # others take it in when all are there
        self._stop_asked = 0  # once, or twice for at once
        self._heard: set[int] = set()
        self._hear_until = 0.0
        super().__init__(launch)

    def _start(self, launch: Launch) -> None:
        here, first = self._peers[self._position].name, self._peers[0]
        if all(worker.host != here for worker in launch.workers):
            self._notes.append(f"the only worker is on {first.name}: nothing to do here")
            return
        if len(launch.workers) > 1 and self.has_main:
            self._listen = _listen(first)
        env = {
            "MASTER_ADDR": self._meeting_address(),
            "MASTER_PORT": str(first.port),
            "REPARTO_ASSIGNMENT": str(self._scratch.assignment),
            "REPARTO_SINCE_NS": str(int(self._launched_at * 1e9)),
            # torch's store complains of every peer that has an address but no name.
            "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        }
        for worker in launch.workers:
            if worker.host != here:
                self._take_in(StandIn(worker.rank, worker.host))
                continue
            # A script that distributes itself listens there by itself, when we are done with it.
            meets = worker.rank == 0 and "TORCHELASTIC_RUN_ID" not in worker.env
            listen = self._listen if meets else None
            own = OwnWorker(worker, launch.cwd, env, listen, self._scratch)
            own.tell = self._tell
            self._take_in(own)

    def _meeting_address(self) -> str:
        if not self.has_main:
            return self._peers[0].address
        own = self._listen.getsockname()[0] if self._listen is not None else "0.0.0.0"
        return _own_address(self._peers) if own == "0.0.0.0" else str(own)

    def _hand_over(self, assignment: Assignment) -> None:
        self._scratch.write_assignment(to_json(assignment))
        if not self._stand_ins():
            self._go()
            return
        statement = statement_of(assignment, self._peers)
        if self._listen is not None:
            self._circle = Hub(self._listen, self._peers, statement)
        else:
            self._circle = Spoke(self._peers, self._position, statement)
        self._tell_at = time.monotonic() + TELL_AFTER_S

    def _go(self) -> None:
        self._tell_at = None
        if self._listen is not None:  # worker 0 has it, too
            self._listen.setblocking(True)
            self._listen.close()
        self._is_under_way = True
        for message in self._untold:
            self._tell(**message)
        self._untold = []
        for worker in self._workers:
            worker.go()

    def _own(self) -> list[OwnWorker]:
        return [worker for worker in self._workers if isinstance(worker, OwnWorker)]

    def _stand_ins(self) -> list[StandIn]:
        return [worker for worker in self._workers if isinstance(worker, StandIn)]

    # ------------------------------------------------------------- what other machines tell

    def _read(self, timeout_s: float) -> list[Event]:
        events = super()._read(timeout_s)
        if self._circle is not None and self.result is None:
            for message in self._circle.turn():
                events += self._hear(message)
            if self._tell_at is not None and time.monotonic() > self._tell_at:
                self._tell_at = None
                self._notices.append(f"waiting for {self._circle.missing()}")
        notices, self._notices = self._notices, []
        return [*events, *(Note(rank=0, text=text) for text in notices)]

    def _hear(self, message: Message) -> list[Event]:
        kind, origin = message["kind"], message["from"]
        events: list[Event] = []
        if kind == "complete":
            self._join_in()
        elif kind == "told":
            events = self._stand_in(message["rank"]).decode(message["data"].encode("latin-1"))
        elif kind == "ended":
            self._stand_in(message["rank"]).end(message["status"])
        elif kind == "gone":
            self._miss(origin)
        elif kind == "stop":
            self._heard.add(origin)
            if not self._stop_asked:
                self._notices.append(f"asked to stop on {self._peers[origin].name}")
            self._stop_here(now=message["now"])
            if not self.has_main:
                self._tell(kind="stopping")
        elif kind == "stopping":
            self._heard.add(origin)
        for event in events:
            self._take_note(event)
        return events

    def _join_in(self) -> None:
        assert self._circle is not None
        clocks = self._circle.clocks
        for worker in self._stand_ins():
            worker.clock_ahead_s = clocks[self._place(worker)] - clocks[self._position]
        self._go()
        own = [worker.rank for worker in self._own()]
        who = f"worker {own[0]}" if len(own) == 1 else f"workers {own[0]} to {own[-1]}"
        output = "" if self.has_main else f"; {self._peers[0].name} shows the script's output"
        self._notices.append(
            f"all are here; this machine has {who} of {len(self._workers)}{output}"
        )

    def _stand_in(self, rank: int) -> StandIn:
        worker = self._workers[rank]
        assert isinstance(worker, StandIn), "only its own machine tells of a worker"
        return worker

    def _miss(self, position: int) -> None:
        """A machine is gone; with the first one, all are."""
        for worker in self._stand_ins():
            if position in (0, self._place(worker)):
                worker.lose("`reparto run` there has ended, or that machine cannot be reached")

    def _place(self, worker: Worker) -> int:
        return [peer.name for peer in self._peers].index(worker.host)

    def _tell(self, **message: Any) -> None:
        if not self._is_under_way and message["kind"] != "stop":
            self._untold.append(message)
        elif self._circle is not None:
            self._circle.tell(**message)

    # --------------------------------------------------------------------------- how it ends

    def stop(self, *, now: bool = False) -> None:
        """End all workers, on all machines.

        Worker 0, who decides when all end, is asked when all other machines have heard of it.
        """
        if (2 if now else 1) > self._stop_asked:
            self._tell(kind="stop", now=now)
        self._stop_here(now=now)

    def _stop_here(self, *, now: bool) -> None:
        self._hear_until = self._hear_until or time.monotonic() + HEARD_LIMIT_S
        self._stop_asked = max(self._stop_asked, 2 if now else 1)
        if not self._is_under_way:  # workers stand by, and elsewhere they are not ours to end
            for worker in self._stand_ins():
                worker.end(0)
            super().stop(now=True)
        elif now or not self.has_main or self._all_have_heard():
            super().stop(now=now)

    def _all_have_heard(self) -> bool:
        others = len(self._peers) - 1
        return len(self._heard) >= others or time.monotonic() >= self._hear_until

    def _reap(self) -> list[Event]:
        events = super()._reap()
        for worker in self._own():
            if worker.status is not None and worker.rank not in self._ends_told:
                self._ends_told.add(worker.rank)
                # One that we ended ourselves did not fail.
                status = worker.status if self._kill_at is None else 0
                self._tell(kind="ended", rank=worker.rank, status=status)
        return events

    def _look_after(self) -> None:
        if self._stop_asked and not self._stopped:
            self.stop()
        super()._look_after()
        if self._is_overdue(KILLED_LIMIT_S):
            for worker in self._stand_ins():
                worker.lose("that machine does not tell how it ended")

    def _wind_up(self) -> None:
        if self._circle is not None:
            self._circle.close()
        if self._listen is not None:
            self._listen.close()


def _listen(first: Peer) -> socket.socket:
    """Listen at the address of TF_CONFIG if it is this machine's own, else at all of them.

    A name is no such address: many machines resolve their own to one that only they can reach.
    """
    try:
        own = str(ipaddress.IPv4Address(first.address))
        return socket.create_server((own, first.port), backlog=1024)
    except ValueError:
        pass
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise _taken(first, error) from error
    try:
        return socket.create_server(("", first.port), backlog=1024)
    except OSError as error:
        raise _taken(first, error) from error


def _taken(first: Peer, error: OSError) -> UsageError:
    return UsageError(
        f"this machine cannot listen at port {first.port}, as TF_CONFIG says: {error.strerror}",
        remedy="is another run under way? else give the first host another port, on all machines",
    )


def _own_address(peers: tuple[Peer, ...]) -> str:
    """The address of this machine on the way to the others; they are not asked."""
    for peer in peers[1:]:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
                way.connect((peer.address, peer.port))
                return str(way.getsockname()[0])
        except OSError:
            continue
    return peers[0].address
