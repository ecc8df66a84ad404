"""``reparto run``: train a script, shared out over workers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Literal

from reparto.cli import COMMANDS, EXIT_INTERRUPTED
from reparto.cli._arguments import (
    add_engine,
    add_hosts,
    add_json,
    add_script,
    add_strategy,
    count,
    job_of,
    loss,
    new_parser,
)

if TYPE_CHECKING:
    from reparto.spec import Cluster

_ACCELERATE: dict[bool | None, Literal["auto", "on", "off"]] = {
    None: "auto",
    True: "on",
    False: "off",
}
_EXAMPLE = """\
  reparto run train.py --epochs 3
  reparto run --workers 4 --steps 100 --json result.json train.py --lr 0.1
  reparto run --record usage train.py      draw CPU, memory, GPU and network of each host
  reparto run --dry-run train.py           say what would be done, and stop\
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "run", COMMANDS["run"], _EXAMPLE)
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="default: all cores, or all GPUs; on peers one on each host",
    )
    add_engine(
        parser,
        "local, peers or ray; default: peers where TF_CONFIG names hosts, else local",
    )
    parser.set_defaults(engine="")  # not given: TF_CONFIG may have a say
    add_hosts(parser)
    add_training(parser)
    parser.add_argument(
        "--no-probe", action="store_true", help="do not check the first step for equality"
    )
    parser.add_argument(
        "--accelerate",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="one worker makes the most of its device: batches cut on the GPU, steps captured, "
        "optimizers in one kernel; default: where there is one GPU",
    )
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def add_training(parser: argparse.ArgumentParser, *, threads: str = "cores / workers") -> None:
    """Add how a run trains, wherever its workers are.

    Args:
        parser: Of the command.
        threads: How many threads a worker has by default, in words.
    """
    add = parser.add_argument
    add_strategy(parser)
    add("--relaxed", action="store_true", help="allow strategies that change the mathematics")
    add("--steps", type=count, metavar="K", help="leave after that many optimizer steps")
    add("--target", type=loss, metavar="LOSS", help="leave when the smoothed loss is that low")
    add("--patience", type=count, metavar="K", help="leave when it fell no more for K steps")
    add("--seed", type=int, default=0, metavar="S", help="for scripts that set none (default: 0)")
    add("--threads", type=count, metavar="T", help=f"of each worker; default: {threads}")
    add(
        "--record",
        metavar="FOLDER",
        help="record CPU, memory, GPU and network of each host, and draw them there",
    )
    add("--dry-run", action="store_true", help="say what would be done, and stop")


def command(args: argparse.Namespace) -> int:
    """Run the job that the arguments describe."""
    from reparto.cli._hosts_file import hosts_of
    from reparto.cli._screen import Screen
    from reparto.errors import UsageError

    if not _takes_part(args):
        return 0
    try:
        cluster = hosts_of(args)
    except UsageError as error:
        Screen(json_target=args.json).write_error(error)
        raise
    return train(args, cluster)


def _takes_part(args: argparse.Namespace) -> bool:
    """Choose the engine; tell if TF_CONFIG had a say, and whether it leaves us anything to do."""
    import os

    from reparto.cli._screen import Screen
    from reparto.engines import engine_for, task_of
    from reparto.spec import Note

    args.engine = engine_for(args.engine, os.environ)
    task = task_of(os.environ) if args.engine == "peers" else None
    if task is None:
        return True
    screen = Screen(json_target=args.json)
    screen.event(Note(rank=0, text=task.told()))
    if task.position is None:
        screen.write_json(status="done")
    return task.position is not None


def train(args: argparse.Namespace, cluster: Cluster | None = None) -> int:
    """Run the job that the arguments describe, on given hosts or on those of its engine."""
    from reparto import api
    from reparto.cli._record import Record
    from reparto.cli._screen import Screen
    from reparto.errors import RepartoError
    from reparto.spec import Options, to_plain

    screen = Screen(json_target=args.json)
    record = Record(None if args.dry_run else args.record, screen)
    job = job_of(
        args,
        Options(
            steps=args.steps,
            seed=args.seed,
            target=args.target,
            patience=args.patience,
            usage_every_s=record.every_s,
        ),
        strategy=args.strategy,
        settings=dict(args.settings),
        probe=not args.no_probe,
        accelerate=_ACCELERATE[getattr(args, "accelerate", False)],
    )
    try:
        if args.dry_run:
            launch = api.dry_run(job, screen, cluster=cluster)
            screen.launch(launch)
            screen.write_json(status="planned", launch=to_plain(launch))
            return 0
        result = api.run(job, record.watcher, cluster=cluster)
    except RepartoError as error:
        screen.write_error(error)
        record.abandon()
        raise
    screen.result(result)
    usage = record.finish(job.script)
    screen.write_json(status=result.status, result=to_plain(result), **usage)
    return {"done": 0, "failed": 1, "stopped": EXIT_INTERRUPTED}[result.status]
