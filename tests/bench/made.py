"""A made-up report in the likeness of a real one: the whole grid on a CPU and a GPU."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from reparto.spec import BenchReport, Measurement, Work

SHAPES = ((50,), (50, 25), (50, 25, 13))
NAMES = {"cpu": "Xeon Platinum, 16 cores", "cuda:0": "NVIDIA H200"}
PEAK = {"cpu": 1.1e12, "cuda:0": 4.6e13}
CNN_PARAMETERS = 4_352_641


def num_parameters(hidden):
    return sum((a + 1) * b for a, b in pairwise((50, *hidden, 1)))


def train_row(hidden, device, batch, random, **changed):
    """A perceptron's row, or with no `hidden` the CNN's; times follow launch, memory, peak."""
    size = num_parameters(hidden) if hidden else CNN_PARAMETERS
    flops = 6.0 * batch * (size if hidden else 40e6)
    if device == "cpu":
        step_s = 2.5e-4 * (1 + len(hidden) / 3) + 24 * size / 4e10 + flops / (0.6 * PEAK["cpu"])
    else:
        step_s = 1.4e-3 + 24 * size / 3e12 + flops / (0.5 * PEAK["cuda:0"])
    step_s *= float(np.exp(random.normal(0, 0.03)))
    num_samples, spread = 10_000, 0.01 + 0.01 * random.random()
    steps = -(-num_samples // batch)
    fields = {
        "work": Work(
            suite="grid" if hidden else "cnn",
            model="-".join(map(str, hidden)) or "cnn",
            num_parameters=size,
            num_samples=num_samples,
            batch_rows=batch,
            data="9f2c",
            target_steps=steps,
        ),
        "hidden": hidden,
        "device": device,
        "device_name": NAMES[device],
        "threads": 16 if device == "cpu" else 0,
        "num_steps": 100,
        "step_s": step_s,
        "low_s": step_s * (1 - spread),
        "high_s": step_s * (1 + spread),
        "epoch_s": step_s * steps,
        "samples_per_s": batch / step_s,
        "flops_a_step": flops,
        "share_of_peak": flops / step_s / PEAK[device],
        "peak_bytes": int(16 * size + 4 * batch * 200 + 3e6),
        "energy_j": None if device == "cpu" else step_s * 310,
        "loss_first": 1.31,
        "loss_last": 0.12,
        "loss_constant": 1.02,
    }
    return Measurement(**(fields | changed))


def infer_row(hidden, device, samples, form, random):
    """A row of inference: no epoch, no loss."""
    own = train_row(hidden, device, samples, random)
    step_s = (own.step_s or 0) / (3.2 if form == "eager" else 4.5)
    return Measurement(
        work=Work(
            suite=own.work.suite,
            model=own.work.model,
            num_parameters=own.work.num_parameters,
            num_samples=samples,
            batch_rows=samples,
            data="9f2c",
            target_steps=0,
        ),
        hidden=hidden,
        mode="infer",
        form=form,
        device=device,
        device_name=own.device_name,
        threads=own.threads,
        num_steps=200,
        step_s=step_s,
        low_s=step_s * 0.98,
        high_s=step_s * 1.03,
        p99_s=step_s * (1.3 + 0.5 * random.random()),
        samples_per_s=samples / step_s,
        peak_bytes=own.peak_bytes // 2,
    )


def report(widths=10, batches=(2, 8, 32, 128, 512, 1024), forms=("plain",)):
    """The grid, the CNN, inference, and some rows with whom something is wrong."""
    random = np.random.default_rng(0)
    models = [tuple(w * 2**k for w in shape) for shape in SHAPES for k in range(widths)]
    rows = [
        train_row(hidden, device, batch, random, form=form)
        for device in NAMES
        for form in forms
        for hidden in [*models, ()]
        for batch in batches
    ]
    rows += [
        infer_row(hidden, device, samples, form, random)
        for device in NAMES
        for form in ("eager", "compiled")
        for hidden in [*models[::4], ()]
        for samples in (1, 2, 64, 512, 1024)
    ]
    environment = {
        "python": "3.12.3",
        "torch": "2.11.0",
        "host": "bench-1",
        "load": 0.03,
        "devices": {
            device: {"name": NAMES[device], "peak_flops_f32": PEAK[device]} for device in NAMES
        },
        "threads": [1, 16],
    }
    return BenchReport(
        environment=environment,
        measurements=tuple(_spoilt(rows)),
        planned=len(rows) + 4,
        took_s=487.0,
    )


def _spoilt(rows):
    """The same rows with flags upon some, as `bench` sets them."""
    blank = dict.fromkeys(
        ("step_s", "low_s", "high_s", "p99_s", "epoch_s", "samples_per_s", "share_of_peak")
    )
    every = len(rows) // 9 or 1
    kinds = [
        {"flags": ("did-not-learn",), "loss_last": 1.03},
        {"flags": ("noisy",), "notes": ("the 95 % interval is 48 % wide",)},
        {"flags": ("failed",), "failure": "out of memory on the device", **blank},
        {"flags": ("throttled",), "notes": ("the clock fell to 1.1 GHz",)},
        {"flags": ("not-like-for-like",), "notes": ("not like for like: 5000 samples of data",)},
    ]
    changed = list(rows)
    for number, place in enumerate(range(3, len(rows), every)):
        row, kind = rows[place], dict(kinds[number % len(kinds)])
        if kind["flags"] == ("noisy",):
            kind |= {"low_s": row.step_s * 0.8, "high_s": row.step_s * 1.28}
        changed[place] = replace(row, **kind)
    return changed
