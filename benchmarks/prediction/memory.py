"""How good are predictions of memory, and of the largest batch?

    python benchmarks/prediction/memory.py                       on CPUs, about ten minutes
    python benchmarks/prediction/memory.py --memory 16GiB        of a GPU, where there is one

`reparto fit-batch` predicts the largest batch from small runs and tries it once: the error is what
it had predicted for that size against what was measured there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CAPTIONING = HERE.parents[1] / "examples" / "captioning" / "train.py"
MODELS: dict[str, list[str]] = {
    "perceptron": [str(HERE / "models" / "perceptron.py")],
    "cnn": [str(HERE / "models" / "cnn.py")],
    "transformer": [str(HERE / "models" / "transformer.py")],
    "captioning": [str(CAPTIONING), "--scenes", "400"],
}


def fitted(model: str, memory: str) -> list[dict[str, Any]]:
    """One row a device."""
    command = [sys.executable, "-m", "reparto", "fit-batch", "--memory", memory, "--json", "-"]
    done = subprocess.run(
        [*command, *MODELS[model]], capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        return [{"model": model, "memory": memory, "failed": done.stderr[-600:]}]
    document = json.loads(done.stdout)
    return [
        {
            "model": model,
            "memory": memory,
            **{key: fit[key] for key in ("device", "rows_now", "rows", "status")},
            "limit_bytes": fit["limit_bytes"],
            "predicted_bytes": fit["predicted_bytes"] - fit["idle_bytes"],
            "measured_bytes": fit["peak_bytes"] - fit["idle_bytes"],
            "crashes": sum(not point["fits"] for point in fit["points"]),
        }
        for fit in document["fit"]["devices"]
    ]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All rows, and the bar's figure."""
    errors = [abs(row["error"]) for row in rows if "error" in row]
    return {"rows": rows, "median_error": statistics.median(errors) if errors else None}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", nargs="+", default=["1GiB", "3GiB"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "memory-cpu.json")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    args.out.parent.mkdir(exist_ok=True)
    for memory in args.memory:
        for model in args.models:
            for row in fitted(model, memory):
                if row.get("measured_bytes"):
                    row["error"] = row["predicted_bytes"] / row["measured_bytes"] - 1
                rows.append(row)
                print(json.dumps(row), flush=True)
                args.out.write_text(json.dumps(summary(rows), indent=1) + "\n")
    print(summary(rows)["median_error"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
