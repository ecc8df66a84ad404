"""``reparto plan``: measure a script and the hosts, and predict what every strategy would take."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import (
    add_engine,
    add_hosts,
    add_json,
    add_script,
    count,
    job_of,
    new_parser,
)

if TYPE_CHECKING:
    from reparto.spec import Cluster, Forecast, Wish

_EXAMPLE = """\
  reparto plan train.py
  reparto plan --workers 2,4,8 --relaxed --engine ray train.py --epochs 30
  reparto plan --lab office.toml --out plan train.py        draw it, into a folder
  reparto plan --price 0.40/h --deadline 2h train.py        the cheapest that is done by then
  reparto plan --save-survey s.json train.py; reparto plan --survey s.json \\
      --what-if "rate=1gbit,hosts=8" train.py               of hosts that are not there\
"""


#: Options that mean nothing where a survey is given.
_MEASURING = ("hosts", "lab", "address", "ship", "threads", "save_survey")


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "plan", COMMANDS["plan"], _EXAMPLE)
    add = parser.add_argument
    add(
        "--workers",
        type=counts,
        default=(),
        metavar="N,N,…",
        help="numbers of workers to weigh; default: half and all of the cores or GPUs",
    )
    add_engine(parser)
    add_hosts(parser)
    add("--lab", metavar="lab.toml", help="plan for a lab: one that is up, or as long as it takes")
    add("--relaxed", action="store_true", help="allow strategies that change the mathematics")
    add("--steps", type=count, metavar="K", help="of the whole script, where it cannot be told")
    add("--threads", type=count, metavar="T", help="of each worker; default: cores / workers")
    add(
        "--price",
        action="append",
        default=[],
        metavar="[HOST=]PRICE/h",
        help="of an hour of a host, or of any; may be repeated",
    )
    add("--deadline", metavar="TIME", help="the cheapest plan that is done by then: 2h, 90m")
    add("--budget", type=amount, metavar="PRICE", help="the fastest plan that costs no more")
    add(
        "--what-if",
        default="",
        metavar="CHANGES",
        help='predict for hosts that are not there: "rate=1gbit,hosts=8,latency=2ms,speed=2x"',
    )
    add("--survey", metavar="FILE", help="take what was measured before, and start nothing")
    add("--save-survey", metavar="FILE", help="keep what was measured")
    add("--out", metavar="FOLDER", help="draw the predicted steps, and write a page")
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def counts(text: str) -> tuple[int, ...]:
    """Parse numbers of workers, as ``1,2,4``."""
    return tuple(sorted({count(part) for part in text.split(",")}))


def amount(text: str) -> float:
    """Parse an amount of money."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no amount of money")
    return number


def command(args: argparse.Namespace) -> int:
    """Plan the job that the arguments describe."""
    from reparto.cli._output import write_json
    from reparto.cli._screen import Screen
    from reparto.errors import RepartoError
    from reparto.spec import finite, to_plain
    from reparto.sweep import forecast_lines, prepare, write_forecast

    screen = Screen(json_target=args.json)
    try:
        if args.out:
            prepare(Path(args.out))
        forecast = _forecast(args, screen)
    except RepartoError as error:
        screen.write_error(error)
        raise
    print("\n".join(forecast_lines(forecast)), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.out:
        for path in write_forecast(forecast, Path(args.out)):
            print(f"wrote {path}", file=sys.stderr)
    write_json(args.json, finite(to_plain(forecast)))
    return 0


def _forecast(args: argparse.Namespace, screen: Any) -> Forecast:
    from reparto import api
    from reparto.cli._survey_file import check_folder, given_survey, write_survey
    from reparto.plan import parse_changes
    from reparto.spec import Options, Wish

    wish = _wish(args)
    if args.what_if:
        parse_changes(args.what_if)  # before a minute has gone by
    check_folder(args.save_survey)
    if args.survey:
        survey = given_survey(args, _MEASURING)
        if args.steps:
            survey = dataclasses.replace(survey, num_steps=args.steps)
    else:
        job = job_of(
            argparse.Namespace(**{**vars(args), "workers": None}), Options(steps=args.steps)
        )
        with _hosts(args) as cluster:
            # What is wished for may be of hosts that are not there.
            first = Wish(relaxed=wish.relaxed) if args.what_if else wish
            measured = api.forecast(job, first, args.workers, screen, cluster=cluster)
        survey = measured.survey
        if args.save_survey:
            write_survey(Path(args.save_survey), survey)
        if not args.what_if:
            return measured
    return api.forecast_from(survey, wish, args.workers, args.what_if)


def _wish(args: argparse.Namespace) -> Wish:
    from reparto.errors import UsageError
    from reparto.plan import parse_duration, parse_prices
    from reparto.spec import Wish

    if args.budget is not None and not args.price:
        raise UsageError(
            "--budget: there are no prices", remedy="--price HOST=0.40/h, or --price 0.40/h"
        )
    return Wish(
        relaxed=args.relaxed,
        deadline_s=parse_duration(args.deadline) if args.deadline else None,
        budget=args.budget,
        prices=parse_prices(args.price),
    )


def _hosts(args: argparse.Namespace) -> AbstractContextManager[Cluster | None]:
    """The hosts of a lab, while they are needed, or of a file; those of the engine else."""
    from reparto.cli._hosts_file import hosts_of
    from reparto.errors import UsageError

    if not args.lab:
        return nullcontext(hosts_of(args))
    if args.hosts:
        raise UsageError("--hosts and --lab both name hosts", remedy="leave out one")
    from reparto import lab as labs
    from reparto.cli._lab import standing_cluster

    return standing_cluster(labs.read_lab(Path(args.lab), labs.Flags(of_host={})))
