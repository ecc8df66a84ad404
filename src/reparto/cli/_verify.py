"""``reparto verify``: prove that the shared-out training equals the sequential one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import (
    add_engine,
    add_json,
    add_script,
    add_strategy,
    count,
    new_parser,
    own_args,
)
from reparto.cli._style import Style, duration

if TYPE_CHECKING:
    from reparto.spec import VerifyResult

_EXAMPLE = """\
  reparto verify train.py --epochs 1
  reparto verify --workers 4 --steps 50 --json distances.json train.py\
"""
_LAST_WORDS = {
    "equal": "equal: the {} training is the sequential one",
    "unequal": "NOT EQUAL: the {} training differs from the sequential one",
    "unproven": "NOT PROVEN: there was nothing to compare",
    "unchanged": "unchanged: the script is not converted, so there is nothing to compare",
}


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "verify", COMMANDS["verify"], _EXAMPLE)
    add = parser.add_argument
    add(
        "--workers",
        type=count,
        default=2,
        metavar="N",
        help="default: 2; with 1, every bit has to agree",
    )
    add(
        "--steps",
        type=count,
        default=20,
        metavar="K",
        help="compare so many optimizer steps (default: 20)",
    )
    add(
        "--tolerance",
        type=_distance,
        default=1e-7,
        metavar="T",
        help="largest relative distance (default: 1e-7; in float32 at least 1e-5)",
    )
    add(
        "--precision",
        choices=("float64", "float32"),
        help="default: float64; the script's own, called float32, where it cannot run so",
    )
    add("--seed", type=int, default=0, metavar="S", help="for scripts that set none (default: 0)")
    add_strategy(parser)
    add(
        "--accelerate",
        action="store_true",
        help="hold the script on the CPU against one accelerated worker, see `reparto run`",
    )
    add_engine(parser)
    add("--keep", metavar="DIR", help="keep records, outputs and scratch copies there")
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Compare, print the table, and say what it means."""
    from reparto import engines
    from reparto.cli._screen import Screen
    from reparto.errors import RepartoError
    from reparto.spec import StrategyConfig
    from reparto.verify import verify

    screen = Screen(json_target=args.json)
    progress = _Progress(args.steps)
    try:
        with closing(
            engines.build(args.engine, address=args.address, ship=tuple(args.ship))
        ) as engine:
            result = verify(
                args.script,
                own_args(args),
                workers=args.workers,
                steps=args.steps,
                tolerance=args.tolerance,
                precision=args.precision,
                seed=args.seed,
                strategy=StrategyConfig(kind=args.strategy, settings=dict(args.settings)),
                keep=args.keep,
                engine=engine,
                on_progress=progress,
                accelerate=args.accelerate,
            )
    except RepartoError as error:
        progress.clear()
        status = "refused" if error.exit_status == 3 else "failed"
        screen.write_json(status=status, error=error.message, remedy=error.remedy)
        raise
    progress.clear()
    screen.out(report(result, Style(sys.stdout), is_accelerated=args.accelerate))
    screen.write_json(status=result.verdict, result=_plain(result))
    return 0 if result.equal else 1


def report(result: VerifyResult, style: Style, *, is_accelerated: bool = False) -> str:
    """The result as a table, and in words."""
    workers = f"{result.num_workers} worker{'s' * (result.num_workers > 1)}"
    workers, how = (
        ("itself accelerated", "accelerated") if is_accelerated else (workers, "shared-out")
    )
    lines = [
        f"{os.path.basename(result.script)}: alone ({duration(result.sequential_s)}) against "
        f"{workers} ({duration(result.shared_s)}), {result.precision}, seed {result.seed}"
    ]
    if result.verdict != "unchanged":
        lines += _table(result)
    lines += [f"note: {note}" for note in result.notes]
    lines.append(
        style("green" if result.equal else "red", _LAST_WORDS[result.verdict].format(how))
    )
    if result.divergence is not None:
        lines.append(f"  first at  {result.divergence.place}")
        lines.append(f"            {result.divergence.what}")
        if result.divergence.hint:
            lines.append(f"  hint      {result.divergence.hint}")
    return "\n".join(lines) + "\n"


def _table(result: VerifyResult) -> list[str]:
    steps = [(f"{gap.owner}, step {gap.step}", gap) for gap in result.gradients]
    rows: list[tuple[str, list[tuple[str, Any]]]] = [
        ("gradients  ‖Δg‖/‖g‖", steps),
        ("losses", [(f"loss {gap.index}", gap) for gap in result.losses]),
        ("numbers read", [(f"number {gap.index}", gap) for gap in result.values]),
        ("parameters, buffers", [(gap.name, gap) for gap in result.tensors]),
    ]
    lines = [f"  {'':22}{'compared':>9}{'worst':>10}{'allowed':>10}  where"]
    for name, gaps in rows:
        if not gaps:
            lines.append(f"  {name:22}{0:>9}")
            continue
        where, worst = _worst(gaps)
        far, limit = _short(worst.distance), _short(worst.limit)
        lines.append(f"  {name:22}{len(gaps):>9}{far:>10}{limit:>10}  {where}")
    return lines


def _worst(gaps: Iterable[tuple[str, Any]]) -> tuple[str, Any]:
    return max(gaps, key=lambda named: _excess(named[1].distance, named[1].limit))


def _excess(distance: float, limit: float) -> float:
    return distance / limit if limit else distance


def _short(number: float) -> str:
    return "0" if number == 0 else f"{number:.1e}"


def _distance(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a distance")
    return number


class _Progress:
    """One line on the terminal that is written over; silent elsewhere."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps = num_steps
        self._shown = sys.stderr.isatty()

    def __call__(self, side: str, step: int) -> None:
        if self._shown:
            print(f"\r\033[K{side}: step {step}/{self._num_steps}", end="", file=sys.stderr)
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _plain(result: VerifyResult) -> Any:
    from reparto.spec import finite, to_plain

    return finite(to_plain(result))  # what cannot be compared is infinitely far away
