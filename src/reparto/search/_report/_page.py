"""The report as one HTML page; it needs no other file and no network."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from reparto._pages import document, html_table
from reparto.search._report import _leaderboard, _other_figures, _search_figures, _tables
from reparto.search._report._answer_figures import answer_figures
from reparto.search._report._figure import FAILED, Figure
from reparto.search._report._proof import Proof
from reparto.search._report._verdict import Line, verdict
from reparto.search._report._words import counted, seconds, settings_of
from reparto.spec import SearchResult, TableFacts

MOST_RANKED = 100

_STYLE = f"""<style>
.head {{ font-size: 1.2rem; font-weight: 600; margin: .75rem 0 .5rem; }}
ul.said {{ padding: 0; margin: 0; list-style: none; max-width: 62rem; }}
ul.said li {{ margin: .3rem 0; }}
ul.said li.warning {{ border-left: 4px solid #c08a00; padding: .2rem .2rem .2rem .7rem;
                      background: color-mix(in srgb, #c08a00 10%, transparent); }}
h3 {{ font-size: 1rem; margin: 1.2rem 0 .4rem; }}
figure h3 {{ margin: 0 0 .4rem; overflow-wrap: anywhere; }}
figure.whole {{ grid-column: 1 / -1; }}
figure {{ min-width: 0; }}
figcaption, ul.said, ul.notes, p {{ overflow-wrap: anywhere; }}
.plots {{ grid-template-columns: repeat(auto-fill, minmax(min(100%, 470px), 1fr)); }}
.names {{ display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: 0 0 .5rem; padding: 0;
         list-style: none; font-size: .87rem; }}
.names svg {{ display: inline-block; width: 1.2em; height: .8em; margin-right: .35em; }}
.drawn {{ overflow-x: auto; }}
.panels {{ display: grid; gap: .5rem;
          grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }}
figure.whole > .drawn > svg {{ min-width: 560px; }}
.tall {{ max-height: 34rem; overflow: auto; border: 1px solid var(--line); border-radius: 8px; }}
.tall .wide {{ overflow: visible; border: 0; }}
.tall thead th {{ position: sticky; top: 0; }}
.tall tbody tr:first-child {{ border-top: 0; }}
td {{ padding-block: .25rem; }}
table.told, table.board {{ font-size: .87rem; }}
table.told :is(td, th) {{ text-align: left; white-space: normal; overflow-wrap: anywhere; }}
table.told td {{ min-width: 6rem; }}
table.told td:first-child, table.told td:last-child {{ min-width: 8rem; }}
table.board td:first-child, table.board th:first-child {{ min-width: 2.2rem; text-align: right; }}
table.board :is(td, th):nth-child(2), table.board :is(td, th):last-child {{ text-align: left; }}
table.board :is(td, th):nth-child(3) {{ text-align: right; }}
table.board td:last-child {{ white-space: normal; min-width: 14rem; font-size: .93em; }}
table.numbers {{ font-size: .87rem; }}
table.numbers :is(td, th):nth-child(n+2) {{ text-align: right; }}
table.numbers td:first-child {{ min-width: 6rem; overflow-wrap: anywhere; }}
pre {{ overflow-x: auto; padding: .6rem .8rem; margin: .3rem 0 .6rem; background: var(--card);
      border: 1px solid var(--line); border-radius: 8px; font: .85rem/1.4 ui-monospace,
      "DejaVu Sans Mono", monospace; }}
details {{ margin: .4rem 0; }}
summary {{ cursor: pointer; overflow-wrap: anywhere; }}
summary b {{ color: {FAILED}; }}
@media (max-width: 600px) {{ body {{ padding: 1rem .75rem 2rem; }} figure {{ padding: .6rem; }} }}
@page {{ size: A4; margin: 12mm; }}
@media print {{
  .tall {{ max-height: none; overflow: visible; border: 0; }}
  .tall thead th {{ position: static; }}
  .drawn {{ overflow: visible; }}
  figure.whole > .drawn > svg {{ min-width: 0; }}
  .plots {{ grid-template-columns: 1fr 1fr; }}
  .panels {{ grid-template-columns: 1fr 1fr 1fr; }}
  table.board, table.told, table.numbers {{ font-size: 7.5pt; }}
  table.board td:last-child {{ min-width: 0; }}
  table :is(td, th) {{ font-size: 7.5pt; }}
  table.board :is(td, th) {{ padding-inline: .2rem; }}
  table.board :is(td, th):nth-child(2) {{ white-space: normal; }}
  table.board td:last-child {{ overflow-wrap: anywhere; }}
  .names {{ font-size: 8pt; gap: 0 .7rem; }}
  figure {{ padding: .5rem; }}
  pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
  figcaption, .quiet {{ font-size: 8pt; }}
  svg * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
</style>"""


def page(result: SearchResult, proof: Proof, folder: Path) -> str:
    """The page."""
    return document(
        escape(title_of(result)),
        _STYLE,
        f'<p class="quiet">{escape(what_of(result))}</p>',
        _verdict(verdict(result, proof)),
        _leaderboard_part(result),
        _figures("What the best one does", _of_the_best(result, proof)),
        _metrics(result),
        _figures("The search", _of_the_search(result)),
        _data(result.facts, result, proof),
        _bill(result),
        _failures(result),
        _again(result, folder),
        _environment(result),
    )


def title_of(result: SearchResult) -> str:
    """What was searched for."""
    request = result.request
    if request.script:
        return f"{os.path.basename(request.script)}: settings searched"
    if request.domain == "function":
        kinds = {one.candidate.technique for one in result.evaluations}
        return f"{', '.join(sorted(kinds)) or 'A function'}: smallest value searched"
    name = os.path.basename(request.data.rstrip("/")) or "A table"
    facts = result.facts
    if facts is not None and facts.target:
        return f"{name}: {facts.target} foretold"
    return f"{name}: clusters searched"


def what_of(result: SearchResult) -> str:
    """What kind of search it was, in a line."""
    request, facts = result.request, result.facts
    told: list[str] = []
    if facts is not None:
        told.append(facts.domain)
        told.append(f"{counted(facts.num_rows, 'row')}, {counted(facts.num_columns, 'column')}")
    told += [result.split] if result.split and not result.split.startswith("none") else []
    told.append(f"{request.search}, seed {request.seed}")
    most = max(1, result.bill.most_at_once)
    told.append(f"{counted(most, 'worker')}{' at once' if most > 1 else ''} ({request.engine})")
    told.append(seconds(result.took_s))
    date = result.environment.get("date")
    return " · ".join([*told, *([str(date)] if date else [])])


def _verdict(lines: Sequence[Line]) -> str:
    heads = "".join(f'<p class="head">{escape(it.text)}</p>' for it in lines if it.kind == "head")
    items = "".join(
        f'<li class="{line.kind}">{escape(line.text)}</li>'
        for line in lines
        if line.kind != "head"
    )
    return f'{heads}<ul class="said">{items}</ul>'


def _leaderboard_part(result: SearchResult) -> str:
    rows = _leaderboard.cells(result, MOST_RANKED)
    if not rows:
        return ""
    table = html_table(_leaderboard.header(result), _escaped(rows), kind="board")
    num_done = len(result.leaderboard)
    first = f"The first {len(rows)} of {num_done}. " if num_done > len(rows) else ""
    what = "the files that it has written" if result.request.script else "a trained model, saved"
    sizes = f"Size: of {what}. " if _leaderboard.have_sizes(result) else ""
    times = "A row: time to predict one, in a batch. " if _leaderboard.have_times(result) else ""
    folds = ", all folds" if result.num_folds > 1 else ""
    equal = (
        "= stands before those that cannot be told apart from the best on these folds. "
        if any(row[0].startswith("=") for row in rows)
        else ""
    )
    return (
        f'<h2 id="leaderboard">Leaderboard</h2><div class="tall">{table}</div>'
        f'<p class="quiet">{first}{equal}Busy: time of a worker{folds}. {sizes}{times}All '
        "candidates with all metrics are in leaderboard.csv.</p>"
    )


def _figures(title: str, found: Iterable[Figure]) -> str:
    drawn = "".join(one.html() for one in found)
    return f'<h2>{escape(title)}</h2><div class="plots">{drawn}</div>' if drawn else ""


def _of_the_best(result: SearchResult, proof: Proof) -> Iterator[Figure]:
    if result.facts is not None and proof.pairs:
        yield from answer_figures(result.facts, proof.pairs[0])
    num_rows = 0 if result.facts is None else result.facts.num_rows
    yield from _there(_other_figures.importances(proof), _other_figures.clusters(proof, num_rows))


def _of_the_search(result: SearchResult) -> Iterator[Figure]:
    parts: Sequence[Callable[[SearchResult], Figure | None]] = (
        _search_figures.history,
        _search_figures.techniques,
        _search_figures.speeds,
        _search_figures.learning,
        _search_figures.settings,
    )
    yield from _other_figures.contours(result)
    yield from _there(*(part(result) for part in parts))
    yield from _there(_search_figures.workers(result))


def _there(*found: Figure | None) -> Iterator[Figure]:
    yield from (one for one in found if one is not None)


def _metrics(result: SearchResult) -> str:
    header, rows = _tables.metrics(result)
    if not rows:
        return ""
    return f"<h2>All metrics of the best</h2>{html_table(header, _escaped(rows), kind='numbers')}"


def _data(facts: TableFacts | None, result: SearchResult, proof: Proof) -> str:
    if facts is None:
        return _notes("Notes", result.notes)
    parts = ["<h2>Data</h2>", f"<p>{escape(data_of(facts))}</p>"]
    if result.split:
        parts.append(
            f"<p>Rows were shared out so, for every candidate: {escape(result.split)}.</p>"
        )
    parts.append(_notes("What was inferred, and what was left out", facts.notes))
    parts.append(_notes("Notes", (*result.notes, *proof.notes)))
    header, rows = _tables.classes(facts, proof)
    if rows:
        more = len(facts.classes) - len(rows)
        parts.append(f"<h3>Classes</h3>{_tall(header, rows, 'numbers')}{_more(more)}")
    wrong = _tables.mistaken(facts, proof)
    if wrong:
        table = html_table(("true", "answered", "rows"), _escaped(wrong), kind="told")
        parts.append(f"<h3>Most often taken for another</h3>{table}")
    rows = _tables.columns(facts)
    if rows:
        parts.append("<h3>Columns</h3>")
        parts.append(_tall(("column", "kind", "missing", "why"), rows, "told"))
        parts.append(_more(facts.num_columns - len(rows)))
    return "".join(parts)


def data_of(facts: TableFacts) -> str:
    """The table in a sentence."""
    told = [f"{facts.path or 'A table'} ({facts.format or 'in memory'}): "
            f"{counted(facts.num_rows, 'row')}"]  # fmt: skip
    if facts.num_rows_in_file > facts.num_rows:
        told.append(f" of {facts.num_rows_in_file}")
    told.append(f", {counted(facts.num_columns, 'column')}")
    missing = sum(column.num_missing > 0 for column in facts.columns)
    told.append(f", {missing} with missing values" if missing else ", nothing missing")
    told.append(", sparse" if facts.is_sparse else "")
    told.append(f"; groups by {facts.groups}" if facts.groups else "")
    told.append(f"; in time by {facts.time}" if facts.time else "")
    told.append(f". Digest {facts.digest[:16]}." if facts.digest else ".")
    return "".join(told)


def _bill(result: SearchResult) -> str:
    rows = _tables.workers(result)
    if not rows:
        return ""
    price = ("cost",) if result.bill.price_per_hour else ()
    table = _tall((*_tables.WORKERS, *price), rows, "numbers")
    each = f" A worker costs {result.bill.price_per_hour:g} an hour." if price else ""
    return (
        f'<h2>Bill</h2>{table}<p class="quiet">Held: from acquired to released; that is what is '
        f"paid for.{each}</p>"
    )


def _failures(result: SearchResult) -> str:
    groups = _tables.failures(result)
    if not groups:
        return ""
    parts = ["<h2>Failed candidates</h2>"]
    for group in groups[: _tables.MOST_FAILURES]:
        first = group[0]
        times = f" × {len(group)}" if len(group) > 1 else ""
        numbers = ", ".join(f"#{one.candidate.number}" for one in group[:20])
        body = f"{numbers}: {settings_of(first.candidate)}\n\n{first.traceback or first.failure}"
        parts.append(
            f"<details><summary><b>{escape(first.candidate.technique)}{times}</b>: "
            f"{escape(first.failure)}</summary><pre>{escape(body)}</pre></details>"
        )
    left = len(groups) - _tables.MOST_FAILURES
    parts.append(_more(left))
    return "".join(parts)


def _again(result: SearchResult, folder: Path) -> str:
    parts = ["<h2>Again, and onward</h2>"]
    if result.command:
        parts.append(f"<p>The same result again:</p><pre>{escape(result.command)}</pre>")
    if result.model is not None:
        command, code = uses_of(folder)
        parts.append(f"<p>Predict the rows of another table:</p><pre>{escape(command)}</pre>")
        parts.append(f"<p>In Python:</p><pre>{escape(code)}</pre>")
    return "".join(parts) if len(parts) > 1 else ""


def uses_of(folder: Path) -> tuple[str, str]:
    """How the model is used: on the command line, and in Python."""
    where = os.path.relpath(folder)
    code = (
        "from reparto.search import load\n\n"
        f"model = load({where!r})\n"
        'answer = model.predict(model.read("data.csv"))\n'
        "answer.values  # a number a row, or a column of probabilities for each class"
    )
    return shlex.join(["reparto", "predict", where, "data.csv"]), code


def _environment(result: SearchResult) -> str:
    if not result.environment:
        return ""
    rows = _escaped(_tables.flat(result.environment))
    return f"<h2>Environment</h2>{html_table(('what', 'value'), rows, kind='told')}"


def _notes(title: str, notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(notes))
    return f'<h3>{escape(title)}</h3><ul class="notes">{items}</ul>'


def _tall(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    return f'<div class="tall">{html_table(header, _escaped(rows), kind=kind)}</div>'


def _more(count: int) -> str:
    return f'<p class="quiet">… and {count} more.</p>' if count > 0 else ""


def _escaped(rows: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    return [tuple(map(escape, row)) for row in rows]
