"""What was found, as lines: leaderboard, best model, bill, and the command that repeats it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from reparto.cli._search_screen import counted, failure_line, number_text, settings_text
from reparto.cli._style import columns, duration
from reparto.spec import Bill, Evaluation, SearchResult

MOST_ROWS = 10
MOST_FAILURES = 8
_ENDED = {
    "time": "the time is over",
    "cost": "the money is spent",
    "trials": "so many candidates were asked for",
    "exhausted": "nothing is left to try",
    "interrupted": "stopped",
}
_REPORTS = ("report.html", "report.md", "search.json")


def result_lines(result: SearchResult, folder: Path, told: Collection[str] = ()) -> list[str]:
    """All that people should see at the end.

    Args:
        result: Of the search.
        folder: Of the search.
        told: Notes that they have seen already.
    """
    ended: Counter[str] = Counter(
        one.status for one in result.evaluations if one.candidate.origin != "ensemble"
    )
    why = _ENDED.get(result.ended, result.ended)
    lines = ["", f"{counted(ended)} · {duration(result.took_s)} · {why}"]
    board = board_lines(result)
    lines += ["", *board] if board else []
    lines += ["", *columns(_facts(result, folder))]
    best = [one for one in result.evaluations if one.candidate.number == result.best]
    seen = {*told, *(note for one in best for note in one.notes)}
    failed = [one for one in result.evaluations if one.status == "failed"]
    lines += [f"  failed  {failure_line(one)}" for one in failed[:MOST_FAILURES]]
    if len(failed) > MOST_FAILURES:
        lines.append(f"  failed  … and {len(failed) - MOST_FAILURES} more; the report has them")
    lines += [f"  note    {note}" for note in result.notes if note not in seen]
    if result.command:
        lines += ["", f"again: {result.command}"]
    return lines


def board_lines(result: SearchResult) -> list[str]:
    """The best candidates, and the best constant answer beside them."""
    board = result.leaderboard
    if not board:
        return []
    which = "higher" if result.higher_is_better else "lower"
    rows: list[tuple[str, ...]] = [
        ("", f"{result.metric}", "spread", "technique", "time", "size", "a row", "settings")
    ]
    placed = list(enumerate(board, 1))
    chosen = [it for it in placed[MOST_ROWS:] if it[1].candidate.number == result.best]
    rows += [_row(place, one) for place, one in [*placed[:MOST_ROWS], *chosen]]
    if result.baseline is not None:
        constant = (
            "–",
            number_text(result.baseline),
            "",
            "(best constant answer)",
            "",
            "",
            "",
            "",
        )
        rows.append(constant)
    kept = [at for at in range(len(rows[0])) if at == 0 or any(row[at] for row in rows[1:])]
    lines = columns([[row[at] for at in kept] for row in rows])
    more = len(board) - MOST_ROWS - len(chosen)
    if more > 0:
        lines.append(f"  … and {more} more")
    tested = f", mean of {result.num_folds} folds" if result.num_folds > 1 else ""
    return [f"by {result.metric} ({which} is better{tested})", *lines]


def _row(place: int, one: Evaluation) -> tuple[str, ...]:
    return (
        str(place),
        "" if one.score is None else number_text(one.score),
        "" if one.spread is None else f"± {number_text(one.spread, 2)}",
        f"#{one.candidate.number} {one.candidate.technique}",
        duration(one.busy_s) if one.busy_s else "",
        size_text(one.size_bytes),
        row_text(one.predict_row_s),
        settings_text(one.candidate.settings),
    )


def _facts(result: SearchResult, folder: Path) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    best = next((one for one in result.evaluations if one.candidate.number == result.best), None)
    if best is None:
        rows.append(("best", "none: no candidate was done"))
    else:
        what = f"#{best.candidate.number} {best.candidate.technique}"
        rows.append(("best", f"{what}{_scores(result, best)}"))
        rows += [("", note) for note in best.notes]
        if not _beats_constant(result, best):
            rows.append(("", "no better than the best constant answer: nothing was learned"))
    if (model := result.model) is not None:
        if model.test_scores:
            shown = " · ".join(
                f"{name} {number_text(it)}" for name, it in model.test_scores.items()
            )
            rows.append(("test", f"{shown}  (rows that nobody had seen)"))
        place = os.path.relpath(folder / model.folder)
        size = size_text(model.size_bytes)
        rows.append(("model", f"{place}  ({size}; `reparto predict {place} FILE` asks it)"))
    found = [name for name in _REPORTS if (folder / name).exists()]
    if found:
        rows.append(("report", "  ".join(os.path.relpath(folder / name) for name in found)))
    rows.append(("bill", bill_text(result.bill)))
    return rows


def _beats_constant(result: SearchResult, best: Evaluation) -> bool:
    if result.baseline is None or best.score is None:
        return True
    gain = best.score - result.baseline
    return gain > 0 if result.higher_is_better else gain < 0


def _scores(result: SearchResult, best: Evaluation) -> str:
    own = [(result.metric, best.score)] if best.score is not None else []
    others = [(name, it) for name, it in best.scores.items() if name != result.metric]
    shown = " · ".join(f"{name} {number_text(it)}" for name, it in [*own, *others])
    return f": {shown}" if shown else ""


def bill_text(bill: Bill) -> str:
    """Who was held, who worked, and what it costs."""
    count = len(bill.workers)
    share = f" ({bill.busy_s / bill.paid_s:.0%})" if bill.paid_s > 0 else ""
    workers = "1 worker" if count == 1 else f"{count} workers, {bill.most_at_once} at once,"
    text = f"{workers} held for {bill.paid_s:.1f} s in all, busy for {bill.busy_s:.1f} s{share}"
    if bill.price_per_hour:
        text += f", at {bill.price_per_hour:g} an hour: {bill.cost:.4g}"
    return text


def size_text(size_bytes: int) -> str:
    """A size as people read it; nothing if it is unknown."""
    if size_bytes <= 0:
        return ""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes} B"


def row_text(seconds: float) -> str:
    """How long one row takes; nothing if it is unknown."""
    if seconds <= 0:
        return ""
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
