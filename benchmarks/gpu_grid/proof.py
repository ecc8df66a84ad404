"""Is it the same training on a GPU? Every script of `tests/scripts` under `verify --accelerate`.

    python benchmarks/gpu_grid/proof.py --at-once 12     with a GPU, some minutes
    python benchmarks/gpu_grid/proof.py --report benchmarks/gpu_grid/results/proof-float64.json

Scripts run several at once: nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "tests" / "scripts"
Json = dict[str, Any]


def proof(script: Path, args: argparse.Namespace) -> Json:
    """What `reparto verify --accelerate` says of a script."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "told.json")
        command = [sys.executable, "-m", "reparto", "verify", "--accelerate", "--json", str(out)]
        command += ["--steps", str(args.steps), "--precision", args.precision, str(script)]
        began = time.monotonic()
        try:
            ended = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=args.limit
            )
        except subprocess.TimeoutExpired:
            return {"script": script.name, "verdict": "cut off", "why": f"{args.limit:.0f} s"}
        told = json.loads(out.read_text()) if out.exists() else {}
    row: Json = {"script": script.name, "seconds": round(time.monotonic() - began, 1)}
    if "result" not in told:
        why = told.get("error") or ended.stderr[-600:]
        return {**row, "verdict": told.get("status", "failed"), "why": why}
    result = told["result"]
    for name in ("gradients", "losses", "values", "tensors"):
        row[name] = max((one["distance"] or 0.0 for one in result[name]), default=0.0)
    return {
        **row,
        "verdict": told["status"],
        "precision": result["precision"],
        "why": str(result["divergence"] or ""),
        "notes": result["notes"],
    }


def report(found: Json) -> str:
    """A line for each script that is not equal, and how many of each verdict there are."""
    rows = found["rows"]
    lines = [
        f"{row['script']:34} {row['verdict']:10} {row.get('gradients', 0.0):.1e} "
        f"{row.get('tensors', 0.0):.1e} {row['why'][:300]} {row.get('notes', '')}"
        for row in rows
        if row["verdict"] != "equal"
    ]
    counts = Counter(row["verdict"] for row in rows)
    captured = sum("captured" in str(row.get("notes", "")) for row in rows)
    return "\n".join([*lines, f"{dict(counts)}, {captured} tell of captured steps"])


def environment(precision: str, steps: int) -> Json:
    """Where and how it was measured."""
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "precision": precision,
        "steps": steps,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=("float64", "float32"), default="float64")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--at-once", type=int, default=4, metavar="N")
    parser.add_argument("--limit", type=float, default=90.0, metavar="S", help="of one script")
    parser.add_argument("--only", default="*.py", metavar="GLOB", help="of the scripts' names")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    if args.report:
        print(report(json.loads(args.report.read_text())))
        return 0
    path = args.out or HERE / "results" / f"proof-{args.precision}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(args.at_once) as pool:
        rows = list(pool.map(lambda one: proof(one, args), sorted(SCRIPTS.glob(args.only))))
    found = {"environment": environment(args.precision, args.steps), "rows": rows}
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
