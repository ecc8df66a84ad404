"""``reparto predict``: what a model that a search has found says of other rows."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from reparto.cli import COMMANDS
from reparto.cli._arguments import add_json, new_parser
from reparto.errors import UsageError

if TYPE_CHECKING:
    from reparto.search import Model
    from reparto.search._rows import Answer, Rows
    from reparto.spec import TableFacts

_EXAMPLE = """\
  reparto predict houses-search new-houses.csv --out prices.csv
  reparto predict houses-search/model later.csv --json -            scores, if the truth is there\
"""

#: Of a column, so much more of the values may be missing than of those that were learned from.
_MORE_MISSING = 0.1
_MOST_NAMES = 6


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "predict", COMMANDS["predict"], _EXAMPLE)
    add = parser.add_argument
    add("model", metavar="FOLDER", help="of the search, or its folder model/")
    add("data", metavar="DATA", help="a table with the same columns; the target may be missing")
    add("--out", metavar="FILE", help="CSV, a line a row (default: standard output)")
    add_json(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Load, read, predict, write; and score where the truth is there."""
    from reparto.cli._output import write_json
    from reparto.cli._search_screen import number_text
    from reparto.cli._style import duration
    from reparto.search import load
    from reparto.search.metrics import scores_of
    from reparto.spec import finite

    model = load(args.model)
    rows, no_truth = _read(model, args.data)
    if not len(rows):
        raise UsageError(f"{args.data} has no rows", remedy="give a table with rows")
    notes = [] if (note := blank_note(model.facts, rows)) is None else [note]
    began = time.monotonic()
    answer = model.predict(rows)
    took_s = time.monotonic() - began
    scores = {} if no_truth else scores_of(model.facts, answer, rows.y, x=rows.x)
    if args.out or args.json != "-":
        _write(args.out, model, answer)
    say = sys.stderr.write
    say(f"{model.about.candidate.technique}: {len(rows)} rows in {duration(took_s)}\n")
    for name, value in scores.items():
        say(f"  {name} {number_text(value)}\n")
    for note in notes:
        say(f"  note {note}\n")
    if no_truth:
        say(f"  no scores: {no_truth}\n")
    if args.out:
        say(f"wrote {args.out}\n")
    document: dict[str, Any] = {
        "model": args.model,
        "technique": model.about.candidate.technique,
        "data": args.data,
        "num_rows": len(rows),
        "took_s": took_s,
        "scores": scores,
        "notes": notes,
    }
    if args.json and not args.out:
        head = head_of(model, answer)
        lines = lines_of(model, answer)
        document["predictions"] = [dict(zip(head, it, strict=True)) for it in lines]
    write_json(args.json, finite(document))
    return 0


def _read(model: Model, path: str) -> tuple[Rows, str]:
    """The rows, with what is true of them; else why that is not known."""
    if model.facts.domain == "clustering":
        return model.read(path), ""
    try:
        return model.read(path, with_target=True), ""
    except UsageError as error:
        return model.read(path), error.message


def blank_note(facts: TableFacts, rows: Rows) -> str | None:
    """Name the columns that have far fewer values than those that were learned from, if any.

    A value that cannot be read, or that was never seen, counts as missing and changes the answer.
    """
    import numpy as np

    if not isinstance(rows.x, np.ndarray):
        return None
    told = []
    for column, count in zip(facts.columns, np.isnan(rows.x).sum(axis=0).tolist(), strict=True):
        if count / len(rows) > column.num_missing / max(1, facts.num_rows) + _MORE_MISSING:
            told.append(f"{column.name!r} in {count} of {len(rows)} rows")
    if not told:
        return None
    more = f" and {len(told) - _MOST_NAMES} more columns" if len(told) > _MOST_NAMES else ""
    return f"missing, unreadable or never seen before: {', '.join(told[:_MOST_NAMES])}{more}"


def _write(target: str | None, model: Model, answer: Answer) -> None:
    if target is None:
        _write_to(sys.stdout, model, answer)
        return
    try:
        with open(target, "w", encoding="utf-8", newline="") as file:
            _write_to(file, model, answer)
    except OSError as error:
        raise UsageError(f"--out {target}: {error.strerror}") from error


def _write_to(stream: TextIO, model: Model, answer: Answer) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head_of(model, answer))
    writer.writerows(lines_of(model, answer))


def head_of(model: Model, answer: Answer) -> list[str]:
    """The names of the columns that are written."""
    facts = model.facts
    if facts.domain == "clustering":
        return ["cluster"]
    name = f"predicted {facts.target}" if facts.target else "prediction"
    if not facts.is_classification or not answer.are_probabilities:
        return [name]
    return [name, *(f"probability of {it}" for it in facts.classes)]


def lines_of(model: Model, answer: Answer) -> Iterator[list[Any]]:
    """What is written of each row."""
    facts, values = model.facts, answer.values
    if not facts.is_classification:
        yield from ([value] for value in values.tolist())
        return
    for number, row in zip(answer.labels.tolist(), values.tolist(), strict=True):
        said = [facts.classes[number]]
        yield [*said, *(round(it, 9) for it in row)] if answer.are_probabilities else said
