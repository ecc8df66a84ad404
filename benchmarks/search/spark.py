"""All of MLlib's algorithms on a real standalone master with two workers, through the command.

    python benchmarks/search/spark.py

Each algorithm of system D is a candidate of a search, on tables of scikit-learn, as CSV, Parquet
and libsvm. The model that is brought home answers in another process, without Spark.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn import datasets

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.search.spark.cluster import Cluster  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results" / "spark.json"
CLASSES = {
    "logistic-regression": [{"regParam": 0.01}, {"regParam": 0.01, "family": "multinomial"}],
    "naive-bayes": [{"modelType": "gaussian"}, {"modelType": "multinomial"}],
    "random-forest": [{"numTrees": 20, "maxDepth": 5}],
    "decision-tree": [{"maxDepth": 5}],
    "multilayer-perceptron": [{"maxIter": 100}],
}
CASES = {
    "breast-cancer": (
        "csv", "binary",
        {
            **CLASSES,
            "linear-svm": [{"regParam": 0.01, "maxIter": 50}],
            "gradient-boosted-trees": [{"maxIter": 20}],
        },
    ),
    "wine": ("libsvm", "multiclass", CLASSES),
    "diabetes": (
        "parquet", "regression",
        {
            "linear-regression": [{"regParam": 0.1, "elasticNetParam": 0.5}],
            "generalized-linear": [{"family": "gaussian"}, {"family": "poisson", "link": "log"}],
            "random-forest": [{"numTrees": 20}],
            "decision-tree": [{"maxDepth": 4}],
            "gradient-boosted-trees": [{"maxIter": 20, "maxDepth": 3}],
        },
    ),
    "iris": (
        "csv", "clustering",
        {"k-means": [{"k": 2}, {"k": 3}], "gaussian-mixture": [{"k": 2}, {"k": 3}]},
    ),
}  # fmt: skip


def written(name: str, format_: str, folder: Path) -> Path:
    """A table of scikit-learn as a file that Spark reads."""
    x, y = getattr(datasets, f"load_{name.replace('-', '_')}")(return_X_y=True)
    path = folder / f"{name}.{format_}"
    names = [f"x{place}" for place in range(x.shape[1])]
    if format_ == "libsvm":
        datasets.dump_svmlight_file(x, y, str(path), zero_based=False)
    elif format_ == "parquet":
        import pyarrow
        import pyarrow.parquet

        columns = {name: x[:, place] for place, name in enumerate(names)}
        pyarrow.parquet.write_table(pyarrow.table({**columns, "y": y}), path)
    else:
        rows = np.column_stack([x, y])
        np.savetxt(path, rows, "%.17g", ",", header=",".join([*names, "y"]), comments="")
    return path


def main() -> int:
    found = []
    cluster = Cluster()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for name, (format_, domain, methods) in CASES.items():
                data = written(name, format_, folder)
                found.append(searched(name, data, domain, methods, cluster.address, folder))
                print(json.dumps(found[-1], indent=1), flush=True)
    finally:
        cluster.close()
    result = {
        "cases": found,
        "environment": {
            "cores": os.cpu_count(), "machine": platform.machine(),
            "load_average": os.getloadavg()[1],
            "python": platform.python_version(), "spark_workers": 2,
            "date": time.strftime("%Y-%m-%d"),
        },
    }  # fmt: skip
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    failed = [it for one in found for it in one["candidates"] if it["status"] != "done"]
    return 1 if failed else 0


def searched(
    name: str, data: Path, domain: str, methods: dict, address: str, folder: Path
) -> dict:
    candidates = [
        {"number": number, "technique": kind, "settings": settings}
        for number, (kind, settings) in enumerate(
            (kind, settings) for kind, several in methods.items() for settings in several
        )
    ]
    request = {
        "data": str(data), "domain": domain, "engine": "spark", "address": address, "folds": 3,
        "max_workers": 2, "candidates": candidates,
        "target": "" if data.suffix == ".libsvm" else "y",
    }  # fmt: skip
    path, out = folder / f"{name}.json", folder / f"{name}-found"
    path.write_text(json.dumps(request))
    began = time.monotonic()
    reparto = [sys.executable, "-m", "reparto"]
    subprocess.run(
        [*reparto, "search", str(path), "--engine", "spark", "--address", address,
         "--out", str(out)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    took_s = time.monotonic() - began
    told = json.loads((out / "search.json").read_text())
    answers = folder / f"{name}-answers.csv"
    began = time.monotonic()
    without = {"PATH": "/usr/bin:/bin", "JAVA_HOME": "/nowhere"}
    subprocess.run(
        [*reparto, "predict", str(out), str(data), "--out", str(answers)],
        check=True, stdout=subprocess.DEVNULL, env={**os.environ, **without},
    )  # fmt: skip
    return {
        "data": name,
        "format": data.suffix[1:],
        "domain": domain,
        "metric": told["metric"],
        "baseline": told["baseline"],
        "took_s": round(took_s, 1),
        "predicted_without_spark_s": round(time.monotonic() - began, 1),
        "candidates": [
            {
                "technique": one["candidate"]["technique"],
                "settings": one["candidate"]["settings"],
                "status": one["status"],
                "score": one["score"],
                "busy_s": round(one["busy_s"], 1),
                "failure": one["failure"],
            }
            for one in told["evaluations"]
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
