"""``reparto run``: train a script, shared out over workers."""

from __future__ import annotations

import argparse
from typing import Any

from reparto.cli import COMMANDS, EXIT_INTERRUPTED
from reparto.cli._arguments import (
    add_engine,
    add_json,
    add_script,
    add_strategy,
    count,
    job_of,
    new_parser,
)

_EXAMPLE = """\
  reparto run train.py --epochs 3
  reparto run --workers 4 --steps 100 --json result.json train.py --lr 0.1
  reparto run --dry-run train.py           say what would be done, and stop\
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "run", COMMANDS["run"], _EXAMPLE)
    add = parser.add_argument
    add("--workers", type=count, metavar="N", help="default: all cores, or all GPUs")
    add_engine(parser)
    add_strategy(parser)
    add("--relaxed", action="store_true", help="allow strategies that change the mathematics")
    add("--steps", type=count, metavar="K", help="leave after that many optimizer steps")
    add("--target", type=float, metavar="LOSS", help="leave when the smoothed loss is that low")
    add("--patience", type=count, metavar="K", help="leave when it fell no more for K steps")
    add("--seed", type=int, default=0, metavar="S", help="for scripts that set none (default: 0)")
    add("--threads", type=count, metavar="T", help="of each worker; default: cores / workers")
    add("--no-probe", action="store_true", help="do not check the first step for equality")
    add("--dry-run", action="store_true", help="say what would be done, and stop")
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Run the job that the arguments describe."""
    from reparto import api
    from reparto.cli._screen import Screen
    from reparto.errors import RepartoError
    from reparto.spec import Options, to_plain

    job = job_of(
        args,
        Options(steps=args.steps, seed=args.seed, target=args.target, patience=args.patience),
        strategy=args.strategy,
        settings=dict(args.settings),
        probe=not args.no_probe,
    )
    screen = Screen(json_target=args.json)
    try:
        if args.dry_run:
            launch = api.dry_run(job, screen)
            screen.launch(launch)
            screen.write_json(status="planned", launch=to_plain(launch))
            return 0
        result = api.run(job, screen)
    except RepartoError as error:
        status = "refused" if error.exit_status == 3 else "failed"
        screen.write_json(status=status, error=error.message, remedy=error.remedy)
        raise
    screen.result(result)
    screen.write_json(status=result.status, result=to_plain(result))
    return {"done": 0, "failed": 1, "stopped": EXIT_INTERRUPTED}[result.status]
