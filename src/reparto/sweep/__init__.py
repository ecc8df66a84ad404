"""Many runs side by side, and the page that shows them.

    compare(Request) ──► Comparison ──┬── header, rows, in_words ──► a table on the screen
                                      └── prepare, write ──► compare.html, .png, .json

    sweep_lab(LabRequest) ──► LabSweep ──┬── text_table ──► a table on the screen
                                         └── prepare, write_lab ──► sweep.html, .png, .json, .txt

    Recorder, around any run ──► Recording ──┬── usage_table ──► a table on the screen
                                             └── prepare, write_usage ──► usage.html, .png, .json

    plan.choose(…) ──► Forecast ──┬── forecast_lines ──► tables and words on the screen
                                  └── prepare, write_forecast ──► forecast.html, .png, .json

    plan.simulate, several times ──► simulation_lines ──► a table on the screen

    fit_batch(Job) ──► FitResult: the largest batch for each device

`prepare` comes before the runs: a folder that cannot be written to is told before they start.
"""

from reparto.sweep._compare import Request, Watcher, compare
from reparto.sweep._entries import Entry, every_entry, parse_entries
from reparto.sweep._fit_batch import FitWatcher, fit_batch
from reparto.sweep._fit_run import Spot
from reparto.sweep._forecast_plots import forecast_png
from reparto.sweep._forecast_report import forecast_page, write_forecast
from reparto.sweep._forecast_table import forecast_lines
from reparto.sweep._lab_report import lab_page, text_table, write_lab
from reparto.sweep._lab_sweep import LabRequest, SweepWatcher, cell_name, sweep_lab
from reparto.sweep._recorder import USAGE_EVERY_S, Recorder
from reparto.sweep._report import prepare, write
from reparto.sweep._simulation_table import simulation_lines
from reparto.sweep._table import aligned, ending, header, in_words, rows
from reparto.sweep._usage_plots import usage_png, usage_svg
from reparto.sweep._usage_report import usage_page, write_usage
from reparto.sweep._usage_table import usage_table

__all__ = [
    "USAGE_EVERY_S",
    "Entry",
    "FitWatcher",
    "LabRequest",
    "Recorder",
    "Request",
    "Spot",
    "SweepWatcher",
    "Watcher",
    "aligned",
    "cell_name",
    "compare",
    "ending",
    "every_entry",
    "forecast_lines",
    "forecast_page",
    "forecast_png",
    "fit_batch",
    "header",
    "in_words",
    "lab_page",
    "parse_entries",
    "prepare",
    "rows",
    "simulation_lines",
    "sweep_lab",
    "text_table",
    "usage_page",
    "usage_png",
    "usage_svg",
    "usage_table",
    "write",
    "write_forecast",
    "write_lab",
    "write_usage",
]
