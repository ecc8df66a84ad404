"""A time evaluation as one HTML page, and its figures as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from reparto._pages import document, html_table, require_matplotlib
from reparto.bench import _told
from reparto.bench._figures import drawings
from reparto.bench._panels import Drawing, mark_entry
from reparto.bench._shown import FLAGS, NONE, SUSPECT, labels_of, mark_of, way_of, ways_of
from reparto.errors import UsageError
from reparto.spec import BenchReport, Measurement

PAGE = "bench.html"
SECOND_S = 1.0
_PIXELS_AN_INCH = 78

_STYLE = f"""<style>
.names {{ display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: 0 0 .5rem; padding: 0;
         list-style: none; font-size: .87rem; }}
.names svg {{ display: inline-block; width: 2.2em; height: .8em; margin-right: .4em; }}
figure h3 {{ font-size: 1rem; margin: 0 0 .4rem; }}
.figures {{ display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }}
.drawn {{ overflow-x: auto; }}
.sign {{ color: {SUSPECT}; font-weight: 600; }}
td {{ padding-block: .2rem; }}
table.rows td:first-child, table.rows th:first-child {{ min-width: 1.6rem; }}
table.rows :is(td, th):nth-child(-n+3) {{ text-align: left; }}
table.rows :is(td, th):nth-child(n+4) {{ text-align: right; }}
table.rows, table.told {{ font-size: .8rem; }}
table.rows :is(td, th) {{ padding-inline: .3rem; }}
table.told :is(td, th) {{ text-align: left; white-space: normal; }}
table.told td:first-child {{ min-width: 7rem; }}
.tall {{ max-height: 36rem; overflow: auto; border: 1px solid var(--line); border-radius: 8px; }}
.tall .wide {{ overflow: visible; border: 0; }}
.tall thead th {{ position: sticky; top: 0; }}
.tall tbody tr:first-child {{ border-top: 0; }}
@page {{ size: A4 landscape; margin: 12mm; }}
@media print {{
  .tall {{ max-height: none; overflow: visible; border: 0; }}
  .tall thead th {{ position: static; }}
  table.rows {{ font-size: 7.2pt; }}
  table.rows :is(td, th) {{ padding: .1rem .25rem; }}
}}
</style>"""


def write_report(
    report: BenchReport, folder: Path, *, deadline_s: float = SECOND_S
) -> tuple[Path, ...]:
    """Write the page, and each figure as a picture.

    Args:
        report: Finished or not.
        folder: Where to; it is made if it is not there.
        deadline_s: That calls of inference are held against.

    Returns:
        The files, the page first.

    Raises:
        MissingExtraError: If matplotlib is not installed.
        UsageError: If nothing can be written there.

    Example:
        >>> write_report(report, Path("bench"))  # doctest: +SKIP
        (PosixPath('bench/bench.html'), PosixPath('bench/bench-size.png'), …)
    """
    require_matplotlib()
    drawn = drawings(report, deadline_s)
    contents = {PAGE: page(report, drawn, deadline_s).encode()}
    contents |= {f"bench-{one.name}.png": one.png() for one in drawn}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", remedy="give another folder") from error
    return tuple(folder / name for name in contents)


def page(report: BenchReport, drawn: Sequence[Drawing], deadline_s: float) -> str:
    """The page as HTML; it needs no other file and no network."""
    rows = report.measurements
    train = [row for row in rows if row.mode == "train"]
    infer = [row for row in rows if row.mode == "infer"]
    return document(
        "Time evaluation",
        _STYLE,
        f'<p class="quiet">{escape(_told.counts(report))}</p>',
        _devices(rows),
        _sentences("When which device pays", _told.told_crossovers(rows)),
        _flags(rows),
        '<h2 id="figures">Figures</h2>' if drawn else "",
        f'<div class="figures">{"".join(map(_figure, drawn))}</div>',
        _deadlines(infer, deadline_s),
        _table("Training, every row", _told.TRAIN_HEADER, train, _told.train_cells),
        _table("Inference, every row", _told.INFER_HEADER, infer, _told.infer_cells),
        _environment(report.environment),
    )


def _devices(rows: Sequence[Measurement]) -> str:
    names: dict[str, None] = {}
    for row in rows:
        threads = f", {row.threads} thread{'s' if row.threads != 1 else ''}" if row.threads else ""
        names[f"{row.device}: {row.device_name or 'unnamed'}{threads}"] = None
    return "".join(f'<p class="words">{escape(name)}</p>' for name in names)


def _sentences(title: str, told: Sequence[str]) -> str:
    if not told:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in told)
    return f'<h2>{escape(title)}</h2><ul class="notes">{items}</ul>'


def _flags(rows: Sequence[Measurement]) -> str:
    """What flags mean, and every row that has one."""
    flagged = [row for row in rows if row.flags]
    if not flagged:
        return "<h2>Flags</h2><p>No row is flagged.</p>"
    used = [flag for flag in FLAGS if any(flag in row.flags for row in flagged)]
    labels = {
        mode: labels_of(ways_of(row for row in rows if row.mode == mode))
        for mode in ("train", "infer")
    }
    meanings = "".join(
        f'<li><span class="sign">{FLAGS[flag][1]}</span> '
        f"<strong>{flag.replace('-', ' ')}</strong> "
        f"({sum(flag in row.flags for row in flagged)}): {escape(FLAGS[flag][2])}</li>"
        for flag in used
    )
    cells = [
        (
            f'<span class="sign">{_told.signs(row)}</span> {escape(row.work.model)}',
            escape(f"{row.mode}, {labels[row.mode][way_of(row)]}, {_size_of(row)}"),
            escape(_told.why(row)),
        )
        for row in flagged
    ]
    table = html_table(("model", "how", "why"), cells, kind="told")
    return f'<h2>Flags</h2><ul class="notes">{meanings}</ul><div class="tall">{table}</div>'


def _size_of(row: Measurement) -> str:
    if row.mode == "infer":
        return f"{row.work.num_samples} sample{'s' if row.work.num_samples != 1 else ''}"
    return f"batch {row.work.batch_rows}"


def _figure(drawn: Drawing) -> str:
    """A figure with its names above it; as wide as its letters are well read."""
    named = [*drawn.entries, *(mark_entry(flag) for flag in drawn.marks)]
    items = "".join(f"<li>{_look(look)}{escape(label)}</li>" for label, look in named)
    width = round(drawn.width * _PIXELS_AN_INCH)
    return (
        f'<figure style="width: min(100%, {width + 34}px)"><h3>{escape(drawn.title)}</h3>'
        f'<ul class="names">{items}</ul>'
        f'<div class="drawn"><div style="min-width: {width * 2 // 3}px">{drawn.svg()}</div></div>'
        f"<figcaption>{escape(drawn.caption)}</figcaption></figure>"
    )


_SHAPES = {
    "o": '<circle cx="15" cy="5" r="3.4" {}/>',
    "*": '<path d="M15 .4 L16.3 3.6 L19.8 3.9 L17.1 6.1 L18 9.6 L15 7.7 L12 9.6 L12.9 6.1 '
    'L10.2 3.9 L13.7 3.6 Z" {}/>',
    "s": '<rect x="11.6" y="1.6" width="6.8" height="6.8" {}/>',
    "^": '<path d="M15 1 L19 8.6 L11 8.6 Z" {}/>',
    "D": '<path d="M15 .6 L19.4 5 L15 9.4 L10.6 5 Z" {}/>',
    "x": '<path d="M11.8 1.8 L18.2 8.2 M11.8 8.2 L18.2 1.8" {}/>',
}
_DASHES = {"--": "6 3", "-.": "6 2 1.5 2", ":": "1.5 2"}


def _look(look: Mapping[str, Any]) -> str:
    """A line or a marker, as the figure has it."""
    colour, style = look["color"], look.get("linestyle", "-")
    is_hollow = look.get("markerfacecolor") == "none"
    paint = (
        f'fill="none" stroke="{colour}" stroke-width="1.4"' if is_hollow else f'fill="{colour}"'
    )
    shape = _SHAPES[look["marker"]].format(paint) if look.get("marker") else ""
    dash = f' stroke-dasharray="{_DASHES[style]}"' if style in _DASHES else ""
    line = f'<path d="M1 5 H29" stroke="{colour}" stroke-width="2"{dash}/>' if style else ""
    return f'<svg viewBox="0 0 30 10" aria-hidden="true">{line}{shape}</svg>'


def _deadlines(infer: Sequence[Measurement], deadline_s: float) -> str:
    header, *told = _told.told_deadline(infer, deadline_s)
    if not told:
        return ""
    table = html_table(header, [tuple(map(escape, row)) for row in told], kind="told")
    words = "The most samples of a call of which 99 in 100 are answered in time (p99)."
    return (
        f"<h2>Inference within {_told.duration(deadline_s)}</h2>"
        f'<p class="quiet">{words}</p><div class="tall">{table}</div>'
    )


def _table(title: str, header: Sequence[str], rows: Sequence[Measurement], cells: Any) -> str:
    """All rows; columns of which no row knows anything are left out."""
    if not rows:
        return ""
    labels = labels_of(ways_of(rows))
    told = [cells(row, labels[way_of(row)]) for row in rows]
    kept = [
        place
        for place in range(len(header))
        if place < 5 or any(row[place] != NONE for row in told)
    ]
    body = [
        tuple(
            f'<span class="sign" title="{escape(_told.why(row))}">{line[0]}</span>'
            if place == 0
            else escape(line[place])
            for place in kept
        )
        for row, line in zip(rows, told, strict=True)
    ]
    table = html_table([header[place] for place in kept], body, kind="rows")
    signs = "".join(
        f'<li><span class="sign">{FLAGS[flag][1]}</span> {flag.replace("-", " ")}</li>'
        for flag in FLAGS
        if any(mark_of(row) and flag in row.flags for row in rows)
    )
    return f'<h2>{escape(title)}</h2><ul class="names">{signs}</ul><div class="tall">{table}</div>'


def _environment(environment: Mapping[str, Any]) -> str:
    if not environment:
        return ""
    table = html_table(
        ("what", "value"), [tuple(map(escape, pair)) for pair in _flat(environment)], kind="told"
    )
    return f"<h2>Environment</h2>{table}"


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Names and values, those within others too, as text."""
    if isinstance(value, Mapping) and value:
        return [
            pair
            for key, inner in value.items()
            for pair in _flat(inner, f"{name} › {key}" if name else str(key))
        ]
    if isinstance(value, (list, tuple)):
        return [(name, ", ".join(str(one) for one in value) or NONE)]
    if isinstance(value, float):
        return [(name, f"{value:.4g}")]
    return [(name, str(value))]
