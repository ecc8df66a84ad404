"""Draw what compression costs: accuracy against bytes, one curve a compressor.

python benchmarks/strategies/plot.py
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
#: Curve: names in the table, from the most bytes to the fewest.
CURVES = {
    "uncompressed": ["drifts"],
    "cast": ["f16"],
    "quantize": ["8 bits", "4 bits", "1 bit"],
    "topk": ["top-k 10 %", "top-k 1 %", "top-k 0.1 %"],
    "randomk": ["random-k 10 %", "random-k 1 %"],
    "powersgd": ["rank 4", "rank 1"],
    "gradients instead of drifts": [
        "gradients, 8 bits",
        "gradients, rank 4",
        "gradients, 1 bit",
        "gradients, top-k 1 %",
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--results", type=Path, default=HERE / "results" / "accuracy.json")
    args = parser.parse_args()
    rows = json.loads(args.results.read_text())["rows"]
    alone = [row["accuracy"][-1] for row in rows if row["name"] == "sequential"]
    lowest = statistics.mean(alone) - 0.055
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for (label, names), marker in zip(CURVES.items(), "osD^vPx", strict=True):
        points = [found for name in names if (found := point(rows, name, args.workers))]
        if not points:
            continue
        style = "none" if label.startswith("gradients") else "-"
        axes.plot(*zip(*[one[:2] for one in points], strict=True), marker=marker,
                  linestyle=style, label=label)  # fmt: skip
        for sent, accuracy, name in points:
            told, height = name.removeprefix("gradients, "), accuracy
            if accuracy < lowest:  # off the picture, and told so
                told, height = f"{told}: {accuracy:.2f} ↓", lowest
            axes.annotate(told, (sent, height), fontsize=8, xytext=(4, 4),
                          textcoords="offset points")  # fmt: skip
    axes.axhline(statistics.mean(alone), color="grey", linestyle=":", label="sequential")
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_ylim(bottom=lowest)
    axes.set_xlabel("kilobytes that a worker sends a step")
    axes.set_ylabel("test accuracy after 5 epochs")
    axes.set_title(f"LeNet-5 on Fashion-MNIST, {args.workers} workers, 64 samples each")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(args.results.with_name("compression.png"), dpi=120)


def point(rows: list[dict[str, Any]], name: str, workers: int) -> tuple[float, float, str] | None:
    """Kilobytes a step, accuracy, name."""
    found = [
        row
        for row in rows
        if row["name"] == name and row["workers"] == workers and "error" not in row
    ]
    if not found:
        return None
    sent = statistics.mean(row["wire_bytes"] / row["num_steps"] for row in found) / 1e3
    return sent, statistics.mean(row["accuracy"][-1] for row in found), name


if __name__ == "__main__":
    main()
