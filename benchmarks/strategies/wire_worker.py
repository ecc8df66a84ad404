"""One worker of wire.py, in a network namespace of its own: trains, and reads its interface."""

import json
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


def sent():
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def counted(world):
    return sum(group.wire_bytes for group in world.groups)


def main():
    out, kind, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    num_steps, width = int(sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(1)
    reparto.init(kind, **settings)
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

    for _ in range(4):
        step()
    reparto.barrier()
    before, counted_before, seconds = sent(), counted(world), []
    for _ in range(num_steps):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    reparto.barrier()
    size = int(os.environ["WORLD_SIZE"])
    parameters = sum(one.numel() for one in model.parameters())
    profile = Profile(
        num_parameters=parameters,
        gradient_bytes=4 * parameters,
        shapes=tuple(tuple(one.shape) for one in model.parameters()),
    )
    cluster = Cluster(hosts=tuple(Host(name=str(rank)) for rank in range(size)))
    config = from_spec(StrategyConfig(kind=kind, settings=settings))
    foretold = sum(one.wire_bytes(size) / one.every for one in config.traffic(profile, cluster))
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
