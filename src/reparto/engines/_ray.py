"""RayEngine: workers on the nodes of a Ray cluster.

    driver: RayRun, a supervisor             each host: an actor (`_post`, `_site`)
    ├─ look: what is here?  ─────────────────►  torch, the user's files, its clock
    ├─ start ────────────────────────────────►  worker processes, standing by
    ├─ ship, assign ─────────────────────────►  mirror of what is lacking; "go"
    ├─ a thread a host: poll, poll, poll … ◄─►  output of worker 0, events, ends
    └─ signal ───────────────────────────────►  SIGINT, SIGTERM, SIGKILL

Ray places, carries and notices when a host is gone. It does not run the script: that is done by
the same worker processes as everywhere else, which die with the actor, and the actor with us.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reparto.engines import _post
from reparto.engines._base import Engine, Launch, Run, WorkerLaunch
from reparto.engines._environment import worker_environments
from reparto.engines._needs import Need, needs
from reparto.engines._remote import RemoteWorker
from reparto.engines._site import Facts, News, Visit, Written
from reparto.engines._supervised import SupervisedRun
from reparto.engines._travel import CHUNK_BYTES, Item, items, pack, travelling
from reparto.engines._verdict import is_echo
from reparto.errors import EngineError, MissingExtraError, UsageError
from reparto.measure import local_host, num_cores
from reparto.spec import Assignment, Cluster, Failure, Host, Options, Plan, Program

REACH_LIMIT_S = 5.0
START_LIMIT_S = 90.0
ANSWER_LIMIT_S = 30.0
POLL_S = 0.5
SILENT_S = POLL_S + 1.0  # a host that has not answered for so long may be gone
LOST_S = 10.0  # and after so long it is
KILLED_LIMIT_S = 1.0  # a host has so long to tell that what was killed is dead
CLOSE_LIMIT_S = 0.5
OBJECT_STORE_BYTES = 128 << 20  # of a Ray of our own; of a run, only chunks go through it


@dataclass(frozen=True, kw_only=True)
class Place:
    """What is asked of a node.

    Attributes:
        host: Its name.
        address: Of the node, as others see it.
        num_cpus: CPUs to reserve.
        num_gpus: GPUs to reserve.
    """

    host: str
    address: str
    num_cpus: int
    num_gpus: int


@dataclass(frozen=True, kw_only=True)
class RayLaunch(Launch):
    """A launch, and what is asked of each node.

    Attributes:
        places: By host, that of worker 0 first.
    """

    places: tuple[Place, ...] = ()


class RayEngine(Engine):
    """Runs workers on a Ray cluster; without an address, on a Ray of its own on this machine.

    Args:
        address: ``auto``, ``host:port`` or ``ray://host:port``; empty for `$RAY_ADDRESS`, and
            where that is not set either for this machine alone.
        ship: Paths that travel to hosts that lack them.

    Raises:
        UsageError: If a path to ship does not exist.
    """

    kind = "ray"

    def __init__(self, *, address: str = "", ship: tuple[str, ...] = ()) -> None:
        super().__init__(address=address or os.environ.get("RAY_ADDRESS", ""), ship=ship)
        for path in ship:
            if not os.path.exists(path):
                raise UsageError(
                    f"there is no {path} to ship",
                    remedy="paths are relative to the current folder",
                )
        self._connected = False
        self._node_ids: dict[str, str] = {}

    def cluster(self) -> Cluster:
        """Look up the nodes that have CPUs or GPUs, this machine's first.

        Raises:
            MissingExtraError: If Ray is not installed.
            EngineError: If the cluster cannot be reached.
        """
        _import_ray()
        if not self.address:  # nothing has to be started to know this machine
            return Cluster(hosts=(local_host(),))
        self.connect()
        return Cluster(hosts=self._hosts())

    def prepare(
        self, program: Program | None, plan: Plan, cluster: Cluster, options: Options
    ) -> Launch:
        """Decide what is asked of each node, and the environment of each worker."""
        command = ("python", "-P", "-m", "reparto.runtime.worker")
        # Which GPUs we are given is known there only; here they are counted from 0.
        outer = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        environments = worker_environments(program, plan, cluster, options, outer)
        return RayLaunch(
            engine=self.kind,
            workers=tuple(
                WorkerLaunch(rank=rank, host=host, command=command, env=env)
                for rank, (host, env) in enumerate(zip(plan.placement, environments, strict=True))
            ),
            ship=self.ship,
            places=_places(plan, cluster),
        )

    def start(self, launch: Launch) -> Run:
        """Place an actor on each node, and start the workers there."""
        assert isinstance(launch, RayLaunch)
        self.connect()
        if not self._node_ids:
            self._node_ids = {launch.places[0].host: _import_ray().nodes()[0]["NodeID"]}
        return RayRun(launch, self._node_ids)

    def close(self) -> None:
        """Leave the cluster; end the Ray that was started here."""
        if self._connected:
            self._connected = False
            self._node_ids = {}
            _import_ray().shutdown()

    def connect(self, object_store_bytes: int = OBJECT_STORE_BYTES) -> None:
        """Join the cluster, or start a Ray of our own; does nothing where that is done.

        Args:
            object_store_bytes: Of a Ray of our own.
        """
        ray = _import_ray()
        if self._connected or ray.is_initialized():
            return
        own = {
            "num_cpus": num_cores(),
            "object_store_memory": object_store_bytes,
            "include_dashboard": False,
        }
        _reach(self.address)
        if not self.address:
            _make_private()
        try:
            ray.init(
                address=self.address or "local",
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                **({} if self.address else own),
            )
        except Exception as error:  # Ray raises whatever its parts raise
            raise _unreachable(self.address, str(error)) from error
        self._connected = True

    def _hosts(self) -> tuple[Host, ...]:
        ray = _import_ray()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        own = ray.get_runtime_context().get_node_id()
        nodes.sort(key=lambda node: (node["NodeID"] != own, node["NodeManagerAddress"]))
        hosts = hosts_of(nodes)
        if not hosts:
            raise EngineError(
                f"no node of the Ray cluster at {self.address} has a CPU or a GPU to give",
                remedy="ray start --num-cpus N",
            )
        self._node_ids = {host.name: node_id for node_id, host in hosts.items()}
        return tuple(hosts.values())


def hosts_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Host]:
    """Describe Ray's nodes as hosts, by node; those with nothing to give are left out."""
    names = Counter(node["NodeManagerHostname"] for node in nodes)
    places = Counter(node["NodeManagerAddress"] for node in nodes)
    hosts = {}
    for node in nodes:
        name, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
        if names[name] > 1:  # several nodes of one machine
            name = address if places[address] == 1 else f"{address}:{node['NodeManagerPort']}"
        resources = node["Resources"]
        host = Host(
            name=name,
            address=address,
            num_cores=int(resources.get("CPU", 0)),
            num_gpus=int(resources.get("GPU", 0)),
            memory_bytes=int(resources.get("memory", 0)),
        )
        if host.num_cores or host.num_gpus:
            hosts[node["NodeID"]] = host
    return hosts


def _places(plan: Plan, cluster: Cluster) -> tuple[Place, ...]:
    hosts = {host.name: host for host in cluster.hosts}
    on_host = Counter(plan.placement)
    return tuple(
        Place(
            host=name,
            address=hosts[name].address,
            # More workers than cores take turns: never ask for what cannot be given.
            num_cpus=min(count * max(1, plan.threads_per_worker), hosts[name].num_cores),
            num_gpus=min(count, hosts[name].num_gpus) if plan.device == "cuda" else 0,
        )
        for name, count in on_host.items()
    )


class RayRun(SupervisedRun):
    """The workers of a launch, on the nodes of a Ray cluster.

    Args:
        launch: What to start.
        node_ids: Ray's own name of each host.
    """

    stop_grace_s = 1.0  # hosts are asked, and answer, by messages that take their time

    def __init__(self, launch: RayLaunch, node_ids: Mapping[str, str]) -> None:
        self._ray = _import_ray()
        self._node_ids = node_ids
        self._links: dict[str, _Link] = {}
        self._ship = launch.ship
        self._cwd = launch.cwd or os.getcwd()
        super().__init__(launch)

    def _start(self, launch: Launch) -> None:
        assert isinstance(launch, RayLaunch)
        package = Path(__file__).parents[1]
        sources = self._ray.put(_post.archive(package))
        digest = _post.digest(package)
        for place in launch.places:
            self._links[place.host] = _Link(place, self._node_ids[place.host], digest, sources)
        self._look(items(launch.ship, self._cwd))
        main = launch.places[0]
        env = {
            "MASTER_ADDR": main.address,
            "MASTER_PORT": "0",
            # torch's store complains of every peer that has an address but no name.
            "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        }
        if len(launch.workers) > 1:
            env["MASTER_PORT"] = str(self._links[main.host].ask("listen", main.address))
        outer = travelling(os.environ)
        waiting = []
        for host, link in self._links.items():
            here = [worker for worker in launch.workers if worker.host == host]
            waiting.append(link.call("start", here, env, outer))
        self._ray.get(waiting, timeout=ANSWER_LIMIT_S)
        for worker in launch.workers:
            self._take_in(self._links[worker.host].stand_in(worker.rank))
        for link in self._links.values():
            link.listen(self._scratch.log)

    def _look(self, shipped: tuple[Item, ...]) -> None:
        visit = Visit(cwd=self._cwd, token=str(self._scratch.root), items=shipped)
        waiting = {link.call("look", visit): link for link in self._links.values()}
        until = time.monotonic() + START_LIMIT_S
        while waiting:
            ready, _ = self._ray.wait(list(waiting), timeout=0.5)
            for ref in ready:
                link = waiting.pop(ref)
                try:
                    link.facts = self._ray.get(ref)
                except self._ray.exceptions.RayError as error:
                    raise EngineError(f"host {link.host}: {_last_line(error)}") from error
                link.clock_ahead_s = link.facts.time_s - time.time()
            if waiting and time.monotonic() > until:
                raise _not_given(next(iter(waiting.values())).place)
        for link in self._links.values():
            if link.facts.missing:
                raise EngineError(
                    f"host {link.host} has no {', '.join(link.facts.missing)} "
                    f"for {link.facts.python}",
                    remedy="install there what this machine has: pip install reparto",
                )
        if len({link.facts.torch for link in self._links.values()}) > 1:
            found = ", ".join(f"{link.host} {link.facts.torch}" for link in self._links.values())
            self._notes.append(f"hosts have different versions of torch: {found}")

    # ------------------------------------------------------------------- what travels there

    def _hand_over(self, assignment: Assignment) -> None:
        self._check(needs(assignment.program, self._cwd))
        lacking: dict[tuple[Item, ...], list[_Link]] = {}
        for link in self._links.values():
            if link.facts.lacking:
                lacking.setdefault(link.facts.lacking, []).append(link)
        for wanted, links in lacking.items():
            self._send(wanted, links)
        self._ray.get([link.call("assign", assignment) for link in self._links.values()])

    def _check(self, needed: Sequence[Need]) -> None:
        """Tell before training what a host has not and will not get."""
        shipped = [os.path.abspath(os.path.join(self._cwd, path)) for path in self._ship]
        for link in self._links.values():
            wanted = {
                need.path: need
                for need in needed
                if need.fixed or not any(_lies_in(need.path, folder) for folder in shipped)
            }
            if not link.facts.mirror or not wanted:
                continue
            missing = [wanted[path] for path in link.ask("missing", list(wanted))]
            if missing:
                raise _missing(link.host, missing)

    def _send(self, wanted: Sequence[Item], links: Sequence[_Link]) -> None:
        num_bytes = 0

        def send(chunk: bytes) -> None:
            nonlocal num_bytes
            ref, is_first = self._ray.put(chunk), num_bytes == 0
            self._ray.get([link.call("take", ref, is_first) for link in links])
            num_bytes += len(chunk)

        pack(wanted, send)
        self._ray.get([link.call("unpack", list(wanted)) for link in links])
        num_files = sum(item.size_bytes >= 0 for item in wanted)
        size = sum(max(0, item.size_bytes) for item in wanted) / 1e6
        hosts = ", ".join(link.host for link in links)
        self._notes.append(f"shipped to {hosts}: {_files(num_files)} ({size:.1f} MB)")

    # --------------------------------------------------------------------------- how it ends

    def _look_after(self) -> None:
        super()._look_after()
        if self._is_overdue(KILLED_LIMIT_S):
            for link in self._links.values():
                link.lose("its host does not answer any more", kill=True)

    def _grace_s(self, failures: Sequence[Failure]) -> float:
        grace_s = super()._grace_s(failures)
        if all(map(is_echo, failures)) and any(link.is_silent() for link in self._links.values()):
            return LOST_S  # that host may be what broke the connection
        return grace_s

    def _wind_up(self) -> None:
        main = self._workers[0].host if self._workers else ""
        link = self._links.get(main)
        if link is not None and link.facts.mirror and self._assigned and not link.is_lost:
            with contextlib.suppress(self._ray.exceptions.RayError, OSError):
                self._bring_home(link)
        for each in self._links.values():
            each.leave()
        waiting = [each.closing for each in self._links.values() if each.closing is not None]
        if waiting:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.wait(waiting, num_returns=len(waiting), timeout=CLOSE_LIMIT_S)
        for each in self._links.values():
            each.kill()

    def _bring_home(self, link: _Link) -> None:
        """Copy what worker 0 wrote on another machine to where the user expects it."""
        brought = 0
        for file in link.ask("outputs"):
            if not _is_same(file):
                brought += 1
                self._copy(link, file)
        if brought:
            self._notes.append(f"brought here from {link.host}: {_files(brought)}")

    def _copy(self, link: _Link, file: Written) -> None:
        path = Path(file.home)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as target:
            while data := link.ask("read", file.path, target.tell(), CHUNK_BYTES):
                target.write(data)


class _Link:
    """The connection to one host: its actor, and a thread that listens to it."""

    facts: Facts

    def __init__(self, place: Place, node_id: str, digest: str, sources: Any) -> None:
        self._ray = _import_ray()
        self.place, self.host, self._node_id = place, place.host, node_id
        self.clock_ahead_s = 0.0
        self.is_lost = False
        self.closing: Any = None
        self._workers: dict[int, RemoteWorker] = {}
        self._heard_at = time.monotonic()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._actor = (
            self._ray.remote(_post.Post)
            .options(
                num_cpus=place.num_cpus,
                num_gpus=place.num_gpus,
                max_restarts=0,
                max_concurrency=4,  # it is polled, and told other things meanwhile
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            )
            .remote(digest, sources)
        )

    def call(self, name: str, *args: Any) -> Any:
        """Begin to do something there; return Ray's promise."""
        return self._actor.call.remote(name, *args)

    def ask(self, name: str, *args: Any) -> Any:
        """Do something there, and wait for what it returns."""
        return self._ray.get(self.call(name, *args), timeout=ANSWER_LIMIT_S)

    def stand_in(self, rank: int) -> RemoteWorker:
        """Make the stand-in for a worker of that host."""
        self._workers[rank] = RemoteWorker(
            rank,
            self.host,
            send_signal=lambda rank, number: self.call("signal", rank, int(number)),
            mirror=self.facts.mirror,
            clock_ahead_s=self.clock_ahead_s,
        )
        return self._workers[rank]

    def listen(self, log: Any) -> None:
        """Listen until all workers there have ended."""
        name = f"reparto-{self.host}"
        threading.Thread(target=self._listen, args=(log,), name=name, daemon=True).start()

    def _listen(self, log: Any) -> None:
        while not all(worker.has_died() for worker in self._workers.values()):
            try:
                news: News = self._ray.get(self.call("poll", POLL_S))
            except Exception as error:  # Ray's, or its own end in another thread
                self.lose(self._why(error))
                return
            self._heard_at = time.monotonic()
            for rank, stream, data in news.told:
                self._workers[rank].feed(stream, data)
            for rank, status, text in news.ended:
                if text:
                    log(rank).write_bytes(text)
                self._workers[rank].end(status)

    def is_silent(self) -> bool:
        """Whether it should have answered by now."""
        waiting = not all(worker.has_died() for worker in self._workers.values())
        return waiting and time.monotonic() - self._heard_at > SILENT_S

    def lose(self, why: str, *, kill: bool = False) -> None:
        """Give up that host, if any of its workers still counts as running."""
        for worker in self._workers.values():
            if not worker.has_died():
                self.is_lost = True
                worker.lose(why)
        if kill and self.is_lost:
            self.kill()

    def _why(self, error: Exception) -> str:
        with contextlib.suppress(Exception):  # we may be cut off ourselves
            alive = {node["NodeID"]: node["Alive"] for node in self._ray.nodes()}
            if alive.get(self._node_id):
                return f"the process that held its workers was killed ({_last_line(error)})"
        return f"its Ray node died or cannot be reached ({_last_line(error)})"

    def leave(self) -> None:
        """Ask it to remove what is left there."""
        if not self.is_lost:
            self.closing = self._actor.close.remote()

    def kill(self) -> None:
        """End the actor; what it started dies with it."""
        with contextlib.suppress(Exception):  # it may be gone
            self._ray.kill(self._actor)


# ---------------------------------------------------------------------------------- Ray itself


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("ray", "ray") from error
    ray.cloudpickle.register_pickle_by_value(_post)
    return ray


def _make_private() -> None:
    """Let a Ray that we start ourselves be ours alone."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # there is nobody to give way to
    if "RAY_AUTH_MODE" not in os.environ:
        # Else Ray writes a token into the user's home, and later clusters ask for it.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _reach(address: str) -> None:
    """Fail at once where Ray would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_LIMIT_S).close()
    except OSError as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str, why: str) -> EngineError:
    if not address:
        return EngineError(f"Ray could not be started on this machine: {_line(why)}")
    return EngineError(
        f"no Ray cluster was found at {address}: {_line(why)}",
        remedy="`ray start --head` on one machine, `ray start --address=HOST:6379` on the others, "
        "this one too; from a machine outside the cluster use --address ray://HOST:10001",
    )


def _not_given(place: Place) -> EngineError:
    wanted = f"{place.num_cpus} CPUs" + (f" and {place.num_gpus} GPUs" * bool(place.num_gpus))
    return EngineError(
        f"host {place.host} has not given {wanted} within {START_LIMIT_S:.0f} s",
        remedy="other jobs may hold them: see `ray status`; --workers or --threads ask for less",
    )


def _missing(host: str, missing: Sequence[Need]) -> UsageError:
    told = ", ".join(f"{need.named} ({need.where})" for need in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    fixed = [need.named for need in missing if need.fixed]
    if fixed:
        remedy = f"put {fixed[0]} there: the script names it by its absolute path"
    else:
        remedy = "send along what it lacks: " + " ".join(
            f"--ship {each.named}" for each in missing
        )
    return UsageError(f"host {host} lacks {told}{more}", remedy=remedy)


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_same(file: Written) -> bool:
    """Whether a file of another host is the one that we see: on a shared disk."""
    with contextlib.suppress(OSError):
        here = os.stat(file.home)
        return (here.st_size, here.st_mtime_ns) == (file.size_bytes, file.time_ns)
    return False


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()


def _line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]
