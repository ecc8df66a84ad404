"""``reparto search``: the best technique and settings for a table, found within a budget."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS, EXIT_INTERRUPTED
from reparto.cli._arguments import add_json, count, new_parser

if TYPE_CHECKING:
    from reparto.spec import SearchRequest

_EXAMPLE = """\
  reparto search houses.csv --target price                      which model for this table?
  reparto search houses.csv --target price --time 10m --workers 4 --test later.csv
  reparto search scans.libsvm --techniques random-forest --set random-forest.num_trees=20,50
  reparto search request.json --time 5m                         of an on-demand platform, or ours
  reparto search --script train.py --space space.toml --time 1h your own script's options
  reparto search --resume --out houses-search --time 20m        go on\
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "search", COMMANDS["search"], _EXAMPLE)
    parser.add_argument(
        "data",
        nargs="*",
        metavar="DATA",
        help="a table (CSV, Parquet, libsvm, ARFF, NumPy) or request.json; with --script, and "
        "after --, the script's own arguments",
    )
    _add_question(parser)
    _add_search(parser)
    _add_budget(parser)
    _add_workers(parser)
    _add_fairness(parser)
    _add_script(parser)
    add = parser.add_argument
    add("--out", metavar="FOLDER", help="for all that is found (default: NAME-search)")
    add("--storage", metavar="URL", help="of a database for candidates (default: a file in OUT)")
    add("--resume", action="store_true", help="go on with the search in OUT")
    add("--schema", action="store_true", help="print what a request may hold, and stop")
    add_json(parser)
    parser.set_defaults(command=command)


def _add_question(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is asked").add_argument
    add("--target", metavar="COLUMN", help="to be foretold (default: the last one)")
    add(
        "--domain",
        metavar="KIND",
        choices=["regression", "classification", "binary", "multiclass", "clustering", "function"],
        help="regression, classification (binary or multiclass), clustering, function "
        "(default: by the target)",
    )
    add("--metric", metavar="NAME", help="that ranks (default: the domain's own)")
    add("--test", metavar="FILE", help="a table of the same form that nobody sees before the end")
    add("--rows", type=count, metavar="N", help="use at most so many rows, drawn at random")


def _add_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is tried").add_argument
    add("--techniques", type=_words, metavar="LIST", help="only these (default: all that suit)")
    add(
        "--search",
        choices=["asha", "bayes", "random", "grid"],
        metavar="KIND",
        help="asha (default: bayes that gives up what lags behind), bayes, random or grid",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="TECHNIQUE.NAME=VALUES",
        help="values of a setting: 1,2,3 or 0.001..1:log; may be repeated",
    )
    add("--space", metavar="FILE", help="the same in a file, TOML or JSON")
    add("--no-ensemble", action="store_true", help="never combine candidates")
    add("--seed", type=int, metavar="S", help="of all that is random (default: 0)")


def _add_budget(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("when it ends").add_argument
    add("--time", metavar="TIME", help="as 10m: the best so far is there by then")
    add("--trials", type=count, metavar="N", help="candidates at most")
    add("--cost", type=_amount, metavar="MONEY", help="at most; needs --price")
    add("--price", type=_price, metavar="PRICE", help="of a worker, as 0.40/h")
    add("--candidate-time", metavar="TIME", help="of one candidate (default: a share of --time)")


def _add_workers(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("where it runs").add_argument
    add("--workers", type=count, metavar="N", help="the same as --max-workers")
    add("--max-workers", type=count, metavar="N", help="at most (default: all cores)")
    add("--min-workers", type=int, metavar="N", help="kept while there is little to do")
    add("--threads", type=count, metavar="T", help="of each worker (default: 1)")
    add("--memory", metavar="SIZE", help="of each worker beyond the data, as 2GiB")
    add("--engine", choices=["local", "ray", "spark"], metavar="KIND", help="local, ray or spark")
    add("--address", metavar="ADDRESS", help="of the engine's cluster")


def _add_fairness(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how candidates are tested").add_argument
    add("--folds", type=count, metavar="K", help="of cross-validation; 1 for a single split")
    add(
        "--split",
        choices=["auto", "plain", "stratified", "groups", "time"],
        metavar="KIND",
        help="auto (default), plain, stratified, groups or time",
    )
    add("--groups", metavar="COLUMN", help="rows of the same value are never split")
    add("--time-column", metavar="COLUMN", help="tested is what comes later")


def _add_script(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a script instead of a table").add_argument
    add("--script", metavar="train.py", help="its runs are the candidates; needs --space or --set")
    add("--objective", metavar="REGEX", help="one group, in what it prints (default: its loss)")
    add("--maximize", action="store_true", help="a higher objective is better")
    add(
        "--script-workers",
        type=_workers_of_run,
        metavar="N|auto",
        help="of each run (default: 1); auto measures the script once, and the planner chooses",
    )
    add("--strategy", metavar="KIND", help="of each run (default: all-reduce)")


def _workers_of_run(text: str) -> int:
    """Parse a number of workers; 0 for ``auto``."""
    return 0 if text == "auto" else count(text)


def command(args: argparse.Namespace) -> int:
    """Search, show how it goes, and what was found."""
    from reparto.cli._output import unless_empty, write_json
    from reparto.cli._search_board import result_lines
    from reparto.cli._search_request import folder_of, ignored_when_resumed, request_of
    from reparto.cli._search_screen import SearchScreen, asked_lines
    from reparto.spec import finite, to_plain

    if args.schema:
        return _print_schema()
    request = request_of(args)
    folder = folder_of(args)
    screen = SearchScreen(sys.stderr)
    if args.resume and (ignored := ignored_when_resumed(args)):
        screen.note(
            f"a search that goes on keeps what it was asked: {', '.join(ignored)} left out"
        )
    for line in asked_lines(request):
        screen.say(line)
    with unless_empty(folder):
        try:
            result = _search(request, folder, screen, resume=args.resume)
        finally:
            screen.clear()
    out = sys.stderr if args.json == "-" else sys.stdout
    print("\n".join(result_lines(result, folder, screen.told)), file=out)
    write_json(args.json, finite(to_plain(result)))
    if result.ended == "interrupted":
        screen.say(f"stopped; `reparto search --resume --out {folder}` goes on")
        return EXIT_INTERRUPTED
    return 0 if result.best is not None else 1


def _search(request: SearchRequest, folder: Path, screen: Any, *, resume: bool) -> Any:
    from reparto.search import search

    return search(request, folder, screen, resume=resume)


def _print_schema() -> int:
    import json

    from reparto.search._request import schemas

    print(json.dumps(schemas(), indent=2))
    return 0


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _amount(text: str) -> float:
    import math

    number = float(text)
    if not math.isfinite(number) or number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _price(text: str) -> float:
    """Money an hour."""
    amount, _, unit = text.partition("/")
    factor = {"": 1.0, "h": 1.0, "min": 60.0, "s": 3600.0}.get(unit.strip())
    try:
        return _amount(amount) * (factor or float("nan")) if factor else _refused_price(text)
    except ValueError:
        return _refused_price(text)


def _refused_price(text: str) -> float:
    raise argparse.ArgumentTypeError(f"{text} is no price: write it as 0.40/h")
