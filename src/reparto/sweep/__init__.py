"""Many runs side by side, and the page that shows them.

    compare(Request) ──► Comparison ──┬── header, rows, in_words ──► a table on the screen
                                      └── prepare, write ──► compare.html, .png, .json

    sweep_lab(LabRequest) ──► LabSweep ──┬── text_table ──► a table on the screen
                                         └── prepare, write_lab ──► sweep.html, .png, .json, .txt

    Recorder, around any run ──► Recording ──┬── usage_table ──► a table on the screen
                                             └── prepare, write_usage ──► usage.html, .png, .json

`prepare` comes before the runs: a folder that cannot be written to is told before they start.
"""

from reparto.sweep._compare import Request, Watcher, compare
from reparto.sweep._entries import Entry, every_entry, parse_entries
from reparto.sweep._lab_report import lab_page, text_table, write_lab
from reparto.sweep._lab_sweep import LabRequest, SweepWatcher, cell_name, sweep_lab
from reparto.sweep._recorder import USAGE_EVERY_S, Recorder
from reparto.sweep._report import prepare, write
from reparto.sweep._table import aligned, ending, header, in_words, rows
from reparto.sweep._usage_plots import usage_png, usage_svg
from reparto.sweep._usage_report import usage_page, write_usage
from reparto.sweep._usage_table import usage_table

__all__ = [
    "USAGE_EVERY_S",
    "Entry",
    "LabRequest",
    "Recorder",
    "Request",
    "SweepWatcher",
    "Watcher",
    "aligned",
    "cell_name",
    "compare",
    "ending",
    "every_entry",
    "header",
    "in_words",
    "lab_page",
    "parse_entries",
    "prepare",
    "rows",
    "sweep_lab",
    "text_table",
    "usage_page",
    "usage_png",
    "usage_svg",
    "usage_table",
    "write",
    "write_lab",
    "write_usage",
]
