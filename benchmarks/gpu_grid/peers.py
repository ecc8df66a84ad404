"""What a GPU's owner may write by hand: the plain loop, and the captured step of ANCHORS.

    python peers.py plain|slices|f32|tf32|bf16 --models all --seconds 1 --out plain.jsonl

`plain` is `grid.py` with its tensors sent to the GPU batch by batch; `slices` cuts batches out of
tensors on the host, without a loader; the others keep the data on the GPU and replay a captured
step with a fused Adam, in that precision.
"""

import argparse
import json
import time

import grid
import torch
import torch.nn.functional as F


def slices(name, seconds):
    """The plain loop on data on the host, cut by hand."""
    torch.manual_seed(0)
    x, y = grid.data_of(name, grid.samples_of(name))
    model = grid.model_of(name).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    losses, times = [], []
    began = time.perf_counter()
    while len(times) < 4 or time.perf_counter() - began < seconds:
        epoch_began, total, steps = time.perf_counter(), 0.0, 0
        for index in torch.randperm(len(x)).split(grid.batch_of(name)):
            inputs, targets = x[index].cuda(), y[index].cuda()
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(inputs)
            steps += 1
        losses.append(total / len(x))
        times.append((time.perf_counter() - epoch_began) / steps)
    return {"model": name, "step_s": times, "loss": [losses[0], losses[-1]]}


def captured(name, seconds, precision):
    """A captured step over data on the GPU; batches are gathered into its memory."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = precision != "f32"
    torch.backends.cudnn.allow_tf32 = precision != "f32"
    batch = grid.batch_of(name)
    x, y = (one.cuda() for one in grid.data_of(name, grid.samples_of(name)))
    model = grid.model_of(name).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True, capturable=True)
    inputs, targets = x[:batch].clone(), y[:batch].clone()
    total = torch.zeros((), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total.add_(loss.detach(), alpha=batch)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    losses, times = [], []
    began = time.perf_counter()
    while len(times) < 4 or time.perf_counter() - began < seconds:
        epoch_began, steps = time.perf_counter(), 0
        total.zero_()
        for index in torch.randperm(len(x)).cuda().split(batch):
            torch.index_select(x, 0, index, out=inputs)
            torch.index_select(y, 0, index, out=targets)
            graph.replay()
            steps += 1
        losses.append(total.item() / len(x))
        times.append((time.perf_counter() - epoch_began) / steps)
    return {"model": name, "step_s": times, "loss": [losses[0], losses[-1]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("how", choices=("plain", "slices", "f32", "tf32", "bf16"))
    parser.add_argument("--models", default="all")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    chosen = grid.names() if args.models == "all" else args.models.split(",")
    grid.DEVICE = "cuda"
    with open(args.out, "w") as file:
        for name in chosen:
            if args.how == "plain":
                found = grid.train(name, args.seconds)
            elif args.how == "slices":
                found = slices(name, args.seconds)
            else:
                found = captured(name, args.seconds, args.how)
            file.write(json.dumps(found) + "\n")
            file.flush()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
