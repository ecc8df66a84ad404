"""Time evaluation: what a model costs here, on each device, one row a measurement.

    Request ── planned_cells ──► cells ──┬── a worker process ──► train, infer ──► Measurement
                 (pure)                  └── api.run ──────────► a script's own steps ──┘ │
      OUT/rows.jsonl ◄── each row as it is made; a second call goes on ◄──────────────────┤
    BenchReport ◄── guarded (did not learn, not like for like, …) ◄───────────────────────┘
      ├── text_table, write_files (CSV, JSON, Parquet), write_report (page, pictures)
      ├── advise (pure): which device, from which batch, at what price
      └── traces: which operations took the time

    supervised, maps ──► data that nobody has to download       read_midc ──► pairs ──► of a file

Measuring is code of a worker process; whoever imports this package imports no torch.
"""

from reparto.bench._advice import advise
from reparto.bench._cells import Cell, Request, key_of, planned_cells
from reparto.bench._environment import cpu_only_forms, devices_here, forms_here
from reparto.bench._evaluate import Watcher, evaluate
from reparto.bench._files import write_files
from reparto.bench._grid import perceptrons
from reparto.bench._guards import guarded, learned
from reparto.bench._irradiance import (
    generate,
    maps,
    pairs,
    persistence,
    read_midc,
    skill,
    supervised,
    write_midc,
)
from reparto.bench._page import write_report
from reparto.bench._table import text_table

__all__ = [
    "Cell",
    "Request",
    "Watcher",
    "advise",
    "cpu_only_forms",
    "devices_here",
    "evaluate",
    "forms_here",
    "generate",
    "guarded",
    "key_of",
    "learned",
    "maps",
    "pairs",
    "perceptrons",
    "persistence",
    "planned_cells",
    "read_midc",
    "skill",
    "supervised",
    "text_table",
    "write_files",
    "write_midc",
    "write_report",
]
