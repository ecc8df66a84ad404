"""One worker of wire.py, in a network namespace of its own: trains, and reads its interface."""

import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

import reparto
from reparto.runtime._current import current
from reparto.spec import Cluster, Host, Profile, StrategyConfig
from reparto.strategies import from_spec

WARM_UP = 4
SIZE = int(os.environ["WORLD_SIZE"])  # those who only serve are counted, as in the traffic


def sent():
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def counted(world):
    return sum(group.wire_bytes for group in world.groups)


def foretold_bytes(kind, settings, shapes):
    parameters = sum(math.prod(shape) for shape in shapes)
    profile = Profile(
        num_parameters=parameters, gradient_bytes=4 * parameters, shapes=tuple(shapes)
    )
    cluster = Cluster(hosts=tuple(Host(name=str(rank)) for rank in range(SIZE)))
    config = from_spec(StrategyConfig(kind=kind, settings=settings))
    return sum(one.wire_bytes(SIZE) / one.every for one in config.traffic(profile, cluster))


def serve_row(out, interface_bytes, served, num_steps):
    kind, settings, width = sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[5])
    row = {
        "place": int(os.environ["RANK"]),
        "interface_bytes": interface_bytes,
        "counted_bytes": served.summary["wire_bytes"] / num_steps,
        "foretold_bytes": foretold_bytes(kind, settings, [(width, width)] * 8),
        "is_server": True,
    }
    Path(f"{out}.server{row['place']}").write_text(json.dumps(row))


def main():
    out, kind, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    num_steps, width = int(sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(1)
    before = sent()
    try:
        reparto.init(kind, **settings)
    except SystemExit as served:  # a server that runs no script, when all is over
        serve_row(out, (sent() - before) / (WARM_UP + num_steps), served, WARM_UP + num_steps)
        return
    world = current()
    torch.manual_seed(0)
    layers = [nn.Linear(width, width, bias=False) for _ in range(8)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(16, width)

    def step():
        batch = reparto.shard(x)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    reparto.barrier()
    before, counted_before, seconds = sent(), counted(world), []
    for _ in range(num_steps):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    reparto.barrier()
    parameters = sum(one.numel() for one in model.parameters())
    foretold = foretold_bytes(kind, settings, [tuple(one.shape) for one in model.parameters()])
    row = {
        "place": world.strategy.group.rank(),
        "interface_bytes": (sent() - before) / num_steps,
        "counted_bytes": (counted(world) - counted_before) / num_steps,
        "foretold_bytes": foretold,
        "parameter_bytes": 4 * parameters,
        "step_s": statistics.median(seconds),
    }
    mine = torch.tensor(list(row.values()), dtype=torch.float64)
    rows = [dict(zip(row, one.tolist(), strict=True)) for one in world.data.gather_all(mine)]
    Path(out).write_text(json.dumps(rows))  # worker 0 does
    reparto.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
