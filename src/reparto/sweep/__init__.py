"""Many runs side by side, and the page that shows them.

compare(Request) ──► Comparison ──┬── header, rows, in_words ──► a table on the screen
└── prepare, write ──► compare.html, .png, .json
"""

from reparto.sweep._compare import Request, Watcher, compare
from reparto.sweep._entries import Entry, every_entry, parse_entries
from reparto.sweep._report import prepare, write
from reparto.sweep._table import ending, header, in_words, rows

__all__ = [
    "Entry",
    "Request",
    "Watcher",
    "compare",
    "ending",
    "every_entry",
    "header",
    "in_words",
    "parse_entries",
    "prepare",
    "rows",
    "write",
]
