"""A report as one HTML page: its style, its tables; nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --quiet: #59636e; --page: #ffffff;
        --line: #d8dee4; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --quiet: #9aa4af; --page: #0f1419; --line: #30363d; --card: #161c23; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 2rem 1.25rem 3rem; color: var(--text);
       background: var(--page); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
       "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; }
.quiet, figcaption, footer { color: var(--quiet); font-size: .87rem; }
.words { font-size: 1.05rem; margin-top: .75rem; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 1.25rem 0 .75rem;
          padding: 0; list-style: none; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 3px;
          margin-right: .5em; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 470px), 1fr));
         gap: 1rem; }
figure { margin: 0; padding: 1rem 1rem .75rem; border: 1px solid var(--line); border-radius: 8px;
         background: var(--card); }
figure svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
figcaption { margin-top: .5rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .65rem; text-align: right; white-space: nowrap; }
td:first-child { white-space: normal; min-width: 11rem; }
th { font-weight: 600; font-size: .87rem; color: var(--quiet); background: var(--card); }
th:first-child, td:first-child, td:last-child, th:last-child, td:nth-child(3), th:nth-child(3)
  { text-align: left; }
table.figures :is(th, td):not(:first-child) { text-align: right; }
tbody tr { border-top: 1px solid var(--line); }
ul.notes { padding-left: 1.25rem; margin: .25rem 0; }
code { font: .92em ui-monospace, "DejaVu Sans Mono", monospace; }
footer { margin-top: 2rem; }
@media print {
  :root { color-scheme: light; --text: #000; --quiet: #444; --page: #fff; --line: #bbb;
          --card: #fff; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  figure, tr, li { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  thead { display: table-header-group; }
  .wide { overflow: visible; border: 0; }
  th, td { padding: .15rem .35rem; }
}
"""


def document(title: str, *body: str) -> str:
    """A whole page of these parts; all are HTML, the title too."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            *body,
            "</body></html>",
        ]
    )


def swatch(colour: str, label: str) -> str:
    """A name, and beside it its colour in the plots."""
    return f'<span class="swatch" style="background:{colour}"></span>{escape(label)}'


def html_table(header: Iterable[str], rows: Iterable[Iterable[str]], *, kind: str = "") -> str:
    """A table that scrolls where the page is narrow.

    Args:
        header: Text.
        rows: Cells as HTML.
        kind: Its class in the style sheet, if it has one.
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    named = f' class="{kind}"' if kind else ""
    return (
        f'<div class="wide"><table{named}><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
