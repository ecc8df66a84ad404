"""``reparto simulate``: what every strategy would take on hosts that are not there."""

from __future__ import annotations

import argparse
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import (
    add_engine,
    add_json,
    add_script,
    count,
    job_of,
    new_parser,
    setting,
)

if TYPE_CHECKING:
    from reparto.plan._candidates import Candidate
    from reparto.spec import Simulation, Survey

_EXAMPLE = """\
  reparto simulate --hosts 1000 --rate 10gbit train.py
  reparto simulate --hosts 64 --rate 1gbit --relaxed --stragglers 0.01 --failures 0.1/h train.py
  reparto simulate --hosts 8 --rate 100mbit --strategy diloco --set sync_every=16 --relaxed \\
      train.py --epochs 3
  reparto simulate --hosts 8 --rate 1gbit --save-survey s.json train.py; reparto simulate \\
      --hosts 800 --rate 1gbit --survey s.json train.py      measured once, imagined twice\
"""

#: A script is measured with so many workers here; what they lack is imagined.
MEASURED_WORKERS = 2


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "simulate", COMMANDS["simulate"], _EXAMPLE)
    add = parser.add_argument
    add(
        "--hosts", type=hosts, required=True, metavar="N", help="with a worker each, alike to ours"
    )
    add("--rate", metavar="RATE", help="of each host's line, each way: 100mbit, 10gbit, none")
    add("--latency", metavar="TIME", help="of a message; default: as measured, or 0.1ms")
    add("--speed", metavar="FACTOR", help="processors are so many times as fast: 2x")
    add(
        "--strategy",
        metavar="KIND",
        help="one of `reparto strategies`; default: every one that is allowed",
    )
    add(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="a setting of the strategy; may be repeated",
    )
    add("--relaxed", action="store_true", help="allow strategies that change the mathematics")
    add("--steps", type=count, default=1000, metavar="K", help="to simulate (default: 1000)")
    add(
        "--stragglers",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="of the hosts that crawl at any time, such as 0.01 (default: 0)",
    )
    add(
        "--slowdown",
        type=factor,
        default=4.0,
        metavar="FACTOR",
        help="of a crawling host (default: 4)",
    )
    add(
        "--jitter",
        type=part,
        default=0.05,
        metavar="PART",
        help="by which computing varies from step to step (default: 0.05)",
    )
    add(
        "--failures",
        type=failures,
        default=0.0,
        metavar="COUNT/h",
        help="of one host, such as 0.1/h (default: 0/h)",
    )
    add("--restart", default="30s", metavar="TIME", help="after a failure (default: 30s)")
    add(
        "--checkpoint-every",
        type=count,
        default=100,
        metavar="K",
        help="steps, which are lost with a host at most (default: 100)",
    )
    add("--seed", type=seed, default=0, metavar="S", help="of all that is drawn (default: 0)")
    add("--threads", type=count, metavar="T", help="of each measured worker")
    add_engine(parser)
    add("--survey", metavar="FILE", help="take what was measured before, and start nothing")
    add("--save-survey", metavar="FILE", help="keep what was measured")
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def hosts(text: str) -> int:
    """Parse a number of hosts that have somebody to talk to."""
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError(f"{text} is not at least 2")
    return number


def share(text: str) -> float:
    """Parse a part of all that is not all."""
    return _between(text, 0, 1, "at least 0 and below 1")


def factor(text: str) -> float:
    """Parse how many times as long something takes."""
    return _between(text, 1, math.inf, "at least 1")


def part(text: str) -> float:
    """Parse by which part of itself something varies."""
    return _between(text, 0, 2, "at least 0 and below 2")


def seed(text: str) -> int:
    """Parse what is drawn from."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def _between(text: str, least: float, below: float, wanted: str) -> float:
    number = float(text)
    if not least <= number < below:
        raise argparse.ArgumentTypeError(f"{text} is not {wanted}")
    return number


def failures(text: str) -> float:
    """Parse how often a host fails, an hour."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*/\s*(h|d)\s*", text, re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 0.1/h or 2/d")
    return float(found[1]) / {"h": 1, "d": 24}[found[2].lower()]


def command(args: argparse.Namespace) -> int:
    """Measure, imagine, simulate, print."""
    from reparto.cli._screen import Screen
    from reparto.errors import RepartoError
    from reparto.plan import imagine, parse_changes
    from reparto.spec import finite, parse_time, to_plain
    from reparto.sweep import simulation_lines

    screen = Screen(json_target=args.json)
    out = sys.stderr if args.json == "-" else sys.stdout
    what_if = _changes(args)
    try:
        parse_changes(what_if)  # before a minute has gone by
        restart_s = parse_time(args.restart, "--restart")
        wanted = _wanted(args)
        survey = imagine(_survey(args, screen), what_if)
        simulations = _simulated(args, survey, wanted, restart_s)
    except RepartoError as error:
        screen.write_error(error)
        raise
    print(f"{args.hosts} hosts that are not there: {what_if}; {args.steps} steps each", file=out)
    print("\n".join(simulation_lines(survey, simulations)), file=out)
    rows = survey.profile.batch_rows
    if rows < args.hosts and any(one.samples_a_step <= rows for one in simulations):
        print(f"note: a batch of {rows} rows leaves most hosts with nothing to do", file=out)
    screen.write_json(
        status="simulated",
        what_if=what_if,
        simulations=[finite(to_plain(one)) for one in simulations],
    )
    return 0


def _changes(args: argparse.Namespace) -> str:
    """The same, as ``reparto plan --what-if`` would be told."""
    keys = ("hosts", "rate", "latency", "speed")
    return ",".join(
        f"{key}={getattr(args, key)}" for key in keys if getattr(args, key) is not None
    )


def _wanted(args: argparse.Namespace) -> tuple[Candidate, ...]:
    """What is to be simulated."""
    from reparto.errors import UsageError
    from reparto.plan._candidates import Candidate, candidates
    from reparto.spec import StrategyConfig
    from reparto.strategies import from_spec

    if args.strategy is None:
        if args.settings:
            raise UsageError("--set without --strategy", remedy="name the strategy that it sets")
        return candidates(relaxed=args.relaxed)
    strategy = StrategyConfig(kind=args.strategy, settings=dict(args.settings))
    if args.strategy == "single":
        raise UsageError(
            "single is one worker, which all others are compared with anyway",
            remedy="leave it out, or name a strategy of several workers",
        )
    exact = from_spec(strategy).exact
    if not exact and not args.relaxed:
        raise UsageError(
            f"{args.strategy}, as it is set, changes the mathematics", remedy="allow it: --relaxed"
        )
    return (Candidate(args.strategy, strategy, exact),)


def _survey(args: argparse.Namespace, screen: Any) -> Survey:
    from reparto import api
    from reparto.cli._survey_file import check_folder, given_survey, write_survey
    from reparto.spec import Options

    if args.survey:
        return given_survey(args, ("address", "ship", "threads", "save_survey"))
    check_folder(args.save_survey)
    job = job_of(argparse.Namespace(**{**vars(args), "workers": None, "relaxed": True}), Options())
    found = api.survey(job, (MEASURED_WORKERS,), screen)
    if args.save_survey:
        write_survey(Path(args.save_survey), found)
    return found


def _simulated(
    args: argparse.Namespace, survey: Survey, wanted: tuple[Candidate, ...], restart_s: float
) -> list[Simulation]:
    from reparto.errors import UsageError
    from reparto.plan.simulate import simulate
    from reparto.strategies import from_spec

    found = []
    for one in wanted:
        try:
            from_spec(one.strategy).check(args.hosts)
        except UsageError:
            if len(wanted) == 1:
                raise
            continue  # its settings do not suit so many workers
        print(f"  simulating {one.label} on {args.hosts} hosts", file=sys.stderr)
        found.append(
            simulate(
                survey,
                one.strategy,
                args.hosts,
                args.steps,
                label=one.label,
                stragglers=args.stragglers,
                straggler_slowdown=args.slowdown,
                jitter=args.jitter,
                failures_per_hour=args.failures,
                restart_s=restart_s,
                checkpoint_every=args.checkpoint_every,
                seed=args.seed,
            )
        )
    return found
