"""What strategies put on the wire: foretold, counted, and by the interfaces' own counters.

    python benchmarks/strategies/wire.py           as root: network namespaces
    python benchmarks/strategies/wire.py --rings   two switches with a slow line between

Each worker is a process in a network namespace with an interface of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIZE = 4
WIDTH = 512  # eight layers of a megabyte
Json = dict[str, Any]

CELLS: dict[str, tuple[str, Json]] = {
    "all-reduce": ("all-reduce", {}),
    "all-reduce, f16": ("all-reduce", {"compressor.kind": "cast"}),
    "all-reduce, 8 bits": ("all-reduce", {"compressor.kind": "quantize"}),
    "all-reduce, top-k 1 %": ("all-reduce", {"compressor.kind": "topk"}),
    "parameter-server, 1": ("parameter-server", {"servers": 1}),
    "parameter-server, 2": ("parameter-server", {"servers": 2}),
    "dedicated, 1": ("parameter-server", {"servers": 1, "dedicated": True}),
    "dedicated, 2": ("parameter-server", {"servers": 2, "dedicated": True}),
    "stale server": ("parameter-server", {"mode": "stale"}),
    "local-sgd, each 4": ("local-sgd", {"sync_every": 4, "moments": "keep"}),
    "diloco, each 4": ("diloco", {"sync_every": 4}),
    "gossip": ("gossip", {}),
    "sharded": ("sharded", {}),
}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def network(slow_bits_per_s: float | None = None, size: int = SIZE) -> Iterator[list[str]]:
    """Namespaces on one bridge, or on two with a slow line between; even and odd ones apart."""
    name = f"rw{os.getpid() % 10000}"
    switch, spaces = f"{name}-sw", [f"{name}-{rank}" for rank in range(size)]
    inside = ("netns", "exec", switch, "ip")
    try:
        ip("netns", "add", switch)
        bridges = ["even", "odd"] if slow_bits_per_s else ["even"]
        for bridge in bridges:
            ip(*inside, "link", "add", bridge, "type", "bridge")
            ip(*inside, "link", "set", bridge, "up")
        for rank, space in enumerate(spaces):
            ip("netns", "add", space)
            ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"p{rank}",
               "netns", switch)  # fmt: skip
            here = ("netns", "exec", space, "ip")
            ip(*here, "addr", "add", f"198.18.77.{rank + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip(*here, "link", "set", device, "up")
            ip(*inside, "link", "set", f"p{rank}", "master", bridges[rank % len(bridges)], "up")
        if slow_bits_per_s:
            ip(*inside, "link", "add", "one", "type", "veth", "peer", "name", "two")
            for device, bridge in (("one", "even"), ("two", "odd")):
                ip(*inside, "link", "set", device, "master", bridge, "up")
                subprocess.run(
                    ["ip", "netns", "exec", switch, "tc", "qdisc", "add", "dev", device, "root",
                     "tbf", "rate", f"{slow_bits_per_s:.0f}", "burst", "128k", "latency", "200ms"],
                    check=True,
                )  # fmt: skip
        yield spaces
    finally:
        for space in (switch, *spaces):
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def trained(spaces: list[str], kind: str, settings: Json, num_steps: int) -> list[Json]:
    """What each worker saw."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "row")
        port = str(20000 + time.time_ns() % 20000)
        workers = [
            subprocess.Popen(
                ["ip", "netns", "exec", space, sys.executable, str(HERE / "wire_worker.py"),
                 str(out), kind, json.dumps(settings), str(num_steps), str(WIDTH)],
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(spaces)),
                     "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "198.18.77.1",
                     "MASTER_PORT": port},
                stderr=subprocess.PIPE, text=True,
            )
            for rank, space in enumerate(spaces)
        ]  # fmt: skip
        errors = [worker.communicate(timeout=300)[1] for worker in workers]
        if any(worker.returncode for worker in workers):
            raise SystemExit("\n".join(errors))
        rows: list[Json] = json.loads(out.read_text())
        for server in sorted(Path(folder).glob("row.server*")):
            rows.append(json.loads(server.read_text()))
        return rows


def wire(args: argparse.Namespace) -> Json:
    """A row a strategy."""
    rows: Json = {}
    with network(size=SIZE + 2) as spaces:
        for name, (kind, settings) in CELLS.items():
            if args.only not in name:
                continue
            size = SIZE + (settings["servers"] if "dedicated" in settings else 0)
            workers = trained(spaces[:size], kind, settings, 8)
            mean = {
                key: statistics.mean(worker[key] for worker in workers)
                for key in ("interface_bytes", "counted_bytes", "foretold_bytes")
            }
            rows[name] = {
                **mean,
                "hottest_bytes": max(worker["interface_bytes"] for worker in workers),
                "counted_over_foretold": mean["counted_bytes"] / mean["foretold_bytes"],
                "interface_over_counted": mean["interface_bytes"] / mean["counted_bytes"],
                "workers": workers,
            }
            print(f"{name:<24} foretold {mean['foretold_bytes'] / 1e6:8.3f} MB a step  "
                  f"counted {rows[name]['counted_over_foretold']:.4f} of it  "
                  f"interface {rows[name]['interface_over_counted']:.4f} of that  "
                  f"hottest {rows[name]['hottest_bytes'] / 1e6:.3f} MB", flush=True)  # fmt: skip
    return rows


def rings(args: argparse.Namespace) -> Json:
    """All-reduce by rank, and by measured links, over two switches."""
    rows: Json = {"given": [], "auto": []}
    with network(slow_bits_per_s=1e8) as spaces:
        for _ in range(args.rounds):
            for topology in rows:
                workers = trained(spaces, "all-reduce", {"topology": topology}, 10)
                rows[topology].append(max(worker["step_s"] for worker in workers))
                print(f"{topology}: {rows[topology][-1]:.3f} s a step", flush=True)
    rows["gain"] = statistics.median(rows["given"]) / statistics.median(rows["auto"])
    print(f"{rows['gain']:.2f} × as fast by measured links")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rings", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    args = parser.parse_args()
    name, found = ("rings", rings(args)) if args.rings else ("wire", wire(args))
    if not args.only:
        (args.results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
