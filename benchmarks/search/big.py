"""A table of 10 GB on a machine with less memory than it would take: is it streamed, and in time?

    python benchmarks/search/big.py                 needs 10 GB of disk for a while, and 9 minutes
    python benchmarks/search/big.py --gigabytes 1   the same, smaller

The file is made here and deleted afterwards. The search is what a user types; memory is
the most that all its processes had together, a page that several of them share counted once (PSS).
What is read of the file counts into the time, since a user waits for that too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from commit import commit
from pyarrow import csv
from scaling import shared_out_bytes

RESULTS = Path(__file__).resolve().parent / "results" / "big.json"
CHUNK_ROWS, NUMBERS = 250_000, 36
TOWNS = [f"town {n}" for n in range(40)]
LOOK_S = 1.0
Json = dict[str, Any]


def make_table(path: Path, num_bytes: int) -> int:
    """Numbers with holes, two columns of words, and a target; returns how many rows."""
    draws, rows = np.random.default_rng(0), 0
    with path.open("wb") as file:
        while file.tell() < num_bytes:
            x = draws.normal(size=(CHUNK_ROWS, NUMBERS)).round(4)
            town, kind = (draws.integers(0, count, CHUNK_ROWS) for count in (len(TOWNS), 3))
            y = 3.0 * x[:, 0] + x[:, 1] * x[:, 2] + 2.0 * np.sin(2.0 * x[:, 3]) + 0.2 * town
            y += 0.5 * draws.normal(size=CHUNK_ROWS)
            columns: Json = {f"c{n}": pa.array(x[:, n]) for n in range(NUMBERS)}
            columns["c4"] = pa.array(x[:, 4], mask=draws.random(CHUNK_ROWS) < 0.1)
            columns["town"] = pa.DictionaryArray.from_arrays(town, TOWNS).cast(pa.string())
            columns["kind"] = pa.array(np.array(["a", "b", "c"])[kind])
            columns["y"] = pa.array(y.round(4))
            options = csv.WriteOptions(include_header=rows == 0, quoting_style="needed")
            csv.write_csv(pa.table(columns), file, options)
            rows += CHUNK_ROWS
    return rows


def searched(data: Path, limit: str, folder: Path) -> Json:
    """`reparto search`, and what it took."""
    found = folder / "found"
    command = [sys.executable, "-m", "reparto", "search", str(data), "--target", "y"]
    began, most = time.monotonic(), 0
    with (folder / "told").open("w") as told:
        process = subprocess.Popen(
            [*command, "--time", limit, "--out", str(found)], stdout=told, stderr=told
        )
        while process.poll() is None:
            most = max(most, shared_out_bytes(process.pid))
            time.sleep(LOOK_S)
    row = {"took_s": time.monotonic() - began, "status": process.returncode}
    row["peak_memory_bytes"] = most
    lines = (folder / "told").read_text().splitlines()
    if not (found / "search.json").exists():  # refused, and it should be told why
        return {**row, "told": lines[-10:]}
    result = json.loads((found / "search.json").read_text())
    best = next(
        (it for it in result["evaluations"] if it["candidate"]["number"] == result["best"]), None
    )
    return {
        **row,
        "rows_used": result["facts"]["num_rows"],
        "rows_in_file": result["facts"]["num_rows_in_file"],
        "notes": [*result["facts"]["notes"], *result["notes"]],
        "candidates": len(result["evaluations"]),
        "first_candidate_began_s": min((it["began_s"] for it in result["evaluations"]), default=0),
        "metric": result["metric"],
        "best": best and {"technique": best["candidate"]["technique"], "score": best["score"]},
        "baseline": result["baseline"],
        "has_model": result["model"] is not None,
    }


def memory(name: str) -> int:
    """Of this machine, in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(it.split()[1]) for it in lines if it.startswith(f"{name}:"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--time", default="5m")
    args = parser.parse_args()
    wanted = round(args.gigabytes * 1e9)
    with tempfile.TemporaryDirectory(prefix="reparto-big-") as name:
        folder = Path(name)
        free = shutil.disk_usage(folder).free
        if free < 1.5 * wanted:
            raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free, and the table takes more")
        data = folder / "big.csv"
        began = time.monotonic()
        rows = make_table(data, wanted)
        row: Json = {
            "file_bytes": data.stat().st_size,
            "rows": rows,
            "columns": NUMBERS + 3,
            "made_s": time.monotonic() - began,
            "limit": args.time,
            "machine_bytes": memory("MemTotal"),
            "free_bytes": memory("MemAvailable"),
        }
        row |= searched(data, args.time, folder)
    row |= {"cores": os.cpu_count(), "commit": commit(), "date": time.strftime("%Y-%m-%d")}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(row, indent=1) + "\n")
    print(json.dumps(row, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
