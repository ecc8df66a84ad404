"""The report as Markdown: the verdict and the tables, without pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reparto.search._report import _leaderboard, _tables
from reparto.search._report._page import data_of, title_of, uses_of, what_of
from reparto.search._report._proof import Proof
from reparto.search._report._verdict import verdict
from reparto.spec import SearchResult

MOST_RANKED = 25
MOST_IMPORTANT = 15


def markdown(result: SearchResult, proof: Proof, folder: Path) -> str:
    """The report."""
    parts = [f"# {_plain(title_of(result))}", _plain(what_of(result))]
    marks = {"head": ("**", "**"), "plain": ("- ", ""), "warning": ("- ⚠ ", "")}
    lines = verdict(result, proof)
    parts += ["\n".join(f"{marks[it.kind][0]}{_plain(it.text)}{marks[it.kind][1]}" for it in kind)
              for kind in ([it for it in lines if it.kind == "head"],
                           [it for it in lines if it.kind != "head"]) if kind]  # fmt: skip
    ranked = _leaderboard.cells(result, MOST_RANKED)
    header = ("rank", *_leaderboard.header(result)[1:])
    parts += _part("Leaderboard", header, ranked)
    left = len(result.leaderboard) - len(ranked)
    parts += [f"… and {left} more in leaderboard.csv."] if left > 0 else []
    names, rows = _tables.metrics(result)
    parts += _part("All metrics of the best", names, rows)
    shown = [(name, f"{100 * value:.3g} %") for name, value in proof.importances[:MOST_IMPORTANT]]
    parts += _part("What matters", ("column", "importance"), shown)
    parts += [_plain(proof.how) + "."] if shown and proof.how else []
    parts += _data(result, proof)
    price = ("cost",) if result.bill.price_per_hour else ()
    parts += _part("Bill", (*_tables.WORKERS, *price), _tables.workers(result))
    parts += _failures(result)
    if result.command:
        parts += ["## Again, and onward", _code(result.command)]
    if result.model is not None:
        parts += [_code(text) for text in uses_of(folder)]
    parts += _part("Environment", ("what", "value"), _tables.flat(result.environment))
    return "\n\n".join(parts) + "\n"


def _data(result: SearchResult, proof: Proof) -> list[str]:
    facts = result.facts
    parts = [] if facts is None else ["## Data", _plain(data_of(facts))]
    if facts is not None and result.split:
        parts.append(f"Rows were shared out so, for every candidate: {_plain(result.split)}.")
    notes = (*(() if facts is None else facts.notes), *result.notes, *proof.notes)
    if notes:
        parts += ["## Notes"] if facts is None else []
        parts.append("\n".join(f"- {_plain(note)}" for note in dict.fromkeys(notes)))
    return parts


def _failures(result: SearchResult) -> list[str]:
    groups = _tables.failures(result)[: _tables.MOST_FAILURES]
    rows = [
        (one[0].candidate.technique, ", ".join(f"#{it.candidate.number}" for it in one[:10]),
         one[0].failure)
        for one in groups
    ]  # fmt: skip
    return _part("Failed candidates", ("technique", "numbers", "why"), rows)


def _part(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    lines = [header, ["---"] * len(header), *rows]
    table = "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)
    return [f"## {title}", table]


def _plain(text: str) -> str:
    """Text that is no markup: names of columns may hold anything."""
    for sign in "\\`*_<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text if text == "---" else _plain(text).replace("|", "\\|")


def _code(text: str) -> str:
    return f"```\n{text}\n```"
