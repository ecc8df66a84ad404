"""Surveys and predictions that nobody has measured."""

from dataclasses import replace

from reparto.spec import (
    Cluster,
    Host,
    Link,
    Prediction,
    Profile,
    SliceTime,
    Span,
    StrategyConfig,
    Survey,
    WorkerProfile,
)

ROWS = 64


def slice_time(rows=ROWS, step_s=0.1, fixed_s=0.01):
    """A step that takes some time however few rows there are."""
    whole = fixed_s + (step_s - fixed_s) * rows / ROWS
    return SliceTime(
        rows=rows,
        forward_s=0.3 * whole,
        backward_s=0.6 * whole,
        update_s=0.1 * whole,
        cpu_s=whole,
    )


def links(*names, rate=94e6, latency_s=2e-4):
    """Between each two hosts, both ways."""
    return tuple(
        Link(source=a, target=b, rate_bits_per_s=rate, latency_s=latency_s)
        for a in names
        for b in names
        if a != b
    )


def survey(hosts=4, *, rate=94e6, speeds=(), step_s=0.1, num_steps=1000, **changes):
    """Hosts a, b, c … with a worker each.

    Args:
        hosts: How many.
        rate: Of the links between them; None for no links.
        speeds: How many times as fast as the first host each one is; 1 where nothing is said.
        step_s: Of the plain script on the first host.
        num_steps: Of the whole script.
        changes: Any field of the survey, instead.
    """
    names = tuple(chr(ord("a") + index) for index in range(hosts))
    speed = dict(zip(names, speeds, strict=False))
    workers = tuple(
        WorkerProfile(
            rank=rank,
            host=name,
            num_workers=hosts,
            slices=tuple(
                slice_time(rows, step_s / speed.get(name, 1.0)) for rows in (ROWS // 4, ROWS)
            ),
        )
        for rank, name in enumerate(names)
    )
    made = {
        "script": "/there/train.py",
        "args": ("--epochs", "3"),
        "cluster": Cluster(
            hosts=tuple(Host(name=name, num_cores=2) for name in names),
            links=() if rate is None else links(*names, rate=rate),
        ),
        "placement": names,
        "profile": Profile(
            num_parameters=1_250_000,
            gradient_bytes=5_000_000,
            step_s={ROWS: step_s},
            batch_rows=ROWS,
            base_bytes=60_000_000,
            row_bytes=1e6,
        ),
        "alone": slice_time(ROWS, step_s),
        "alone_host": names[0],
        "workers": workers if hosts > 1 else (),
        "num_steps": num_steps,
        "took_s": 21.0,
    }
    return Survey(**{**made, **changes})


def way(label="all-reduce", num_workers=4, step_s=0.1, *, num_steps=1000, **changes):
    """A prediction; what is not exact says so by its name."""
    kind, *_ = label.split()
    exact = kind in ("single", "all-reduce", "parameter-server", "sharded")
    compute_s = min(step_s, 0.1 / num_workers)
    exchange_s = step_s - compute_s
    made = {
        "strategy": StrategyConfig(kind=kind),
        "label": label,
        "num_workers": num_workers,
        "exact": exact,
        "changes": "" if exact else f"what {kind} changes",
        "quality": "" if exact else f"what {kind} loses, as it was measured",
        "samples_a_step": ROWS,
        "compute_s": compute_s,
        "exchange_s": exchange_s,
        "step_s": step_s,
        "wire_bytes": 0.0 if num_workers == 1 else 7.5e6,
        "peak_bytes": 100_000_000,
        "num_steps": num_steps,
        "total_s": None if num_steps is None else num_steps * step_s,
        "speed_up": 0.1 / step_s,
        "timeline": _timeline(compute_s, step_s),
    }
    return Prediction(**{**made, **changes})


def alone(step_s=0.1, **changes):
    """The plain script on one machine; the others' speed-up is over one of 0.1 s."""
    return way("single", 1, step_s, **changes)


def unknown(*ways):
    """The same, of a script whose steps cannot be counted."""
    return tuple(replace(one, num_steps=None, total_s=None) for one in ways)


def _timeline(compute_s, step_s):
    computed = Span(what="compute", begin_s=0.0, end_s=compute_s)
    if step_s <= compute_s:
        return (computed,)
    return (
        computed,
        Span(what="communicate", begin_s=compute_s / 2, end_s=step_s),
        Span(what="wait", begin_s=compute_s, end_s=step_s),
    )
