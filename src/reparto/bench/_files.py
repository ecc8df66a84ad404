"""An evaluation as files: CSV, JSON, Parquet, the environment beside them, and the page."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from reparto._pages import require_matplotlib
from reparto.bench import _parquet
from reparto.bench._table import COLUMNS
from reparto.errors import MissingExtraError
from reparto.spec import BenchReport, finite, to_plain

NO_PARQUET = "no Parquet: pip install 'reparto[bench]' brings pyarrow"


def write_files(
    report: BenchReport, folder: Path, deadline_s: float | None = None
) -> tuple[list[Path], list[str]]:
    """Write all of them.

    Args:
        report: The evaluation.
        folder: Where; it is there already.
        deadline_s: Of calls of inference, for the page.

    Returns:
        What was written, and what was not, in words.
    """
    table = {name: [value(row) for row in report.measurements] for name, value in COLUMNS.items()}
    paths, remarks = [folder / "bench.csv", folder / "bench.json"], []
    with paths[0].open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    plain = finite(to_plain(report))
    paths[1].write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    parquet = folder / "bench.parquet"
    if _parquet.write(table, dict(report.environment), parquet):
        paths.append(parquet)
    else:
        remarks.append(NO_PARQUET)
    from reparto.bench._page import SECOND_S, write_report

    try:
        require_matplotlib()
        paths += write_report(report, folder, deadline_s=deadline_s or SECOND_S)
    except MissingExtraError as error:
        remarks.append(f"no page: {error.message}; {error.remedy}")
    return paths, remarks
