"""Is `--strategy auto` ever slower than one machine? Runs of 20 minutes and more, on the lab.

    python benchmarks/prediction/auto.py             as root; 25 minutes for each case
    python benchmarks/prediction/auto.py --only cnn/1gbit
    python benchmarks/prediction/auto.py --report    the figures so far

Each case has two labs: one of two hosts, where a training is left to `--strategy auto`, and one
of a single host of the same kind, where the same steps of the same script run as they are. Both
run at the same time; the shares of their hosts add up to less than one core.
Everything counts: planning, starting, training, from the call to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from reparto import _planning, api, engines, lab
from reparto._trial_clock import Clock
from reparto.spec import Forecast, Job, Note, Options, StrategyConfig

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "auto.json"
#: Model, rate of the lines: slow lines, a model that hardly gains, and one that is worth it.
CASES = (("transformer", "10mbit"), ("cnn", "1gbit"), ("transformer", "1gbit"))
CPU, WANTED_S, TRIED_STEPS = 0.2, 1230.0, 30
#: What planning and starting may take, and by what share a run may be slower beside that.
ALLOWED_S, ALLOWED_SHARE = 60.0, 0.03
Json = dict[str, Any]


class Seen(api.Watcher):
    """Keeps what was chosen, when, and what was told while it ran."""

    def __init__(self) -> None:
        self.chosen: Json = {}
        self.notes: list[str] = []
        self._began = time.monotonic()

    def forecast(self, forecast: Forecast) -> None:
        best = forecast.best
        self.chosen = {
            "label": best.label,
            "num_workers": best.num_workers,
            "speed_up": best.speed_up,
            "planned_s": time.monotonic() - self._began,
        }

    def event(self, event: Any) -> None:
        if isinstance(event, Note):
            self.notes.append(event.text)


def script_of(model: str) -> str:
    return str(HERE / "models" / f"{model}.py")


def described(name: str, nodes: int, rate: str) -> Any:
    hosts = {"rate": rate, "cpu": CPU}
    return lab.read_lab(None, lab.Flags(name=f"{name}-{os.getpid()}", nodes=nodes, of_host=hosts))


def steps_for(model: str) -> int:
    """How many steps one host makes in the time that is wanted."""
    with closing(engines.build("local")) as engine, lab.stand(described("try", 1, "none")) as one:
        program = api.convert(script_of(model)).program
        job = Job(script=script_of(model), threads=1)
        site = _planning.Site(job, program, engine, one.cluster, print)
        clock = Clock(1, 2)
        site.execute(
            site.plan(StrategyConfig(kind="single"), 1), Options(steps=TRIED_STEPS), clock
        )
    assert clock.step_s is not None
    return round(WANTED_S / clock.step_s)


def train(strategy: str, model: str, rate: str, steps: int) -> Json:
    """One training on a lab of its own."""
    nodes = 1 if strategy == "single" else 2
    seen = Seen()
    with lab.stand(described(strategy, nodes, rate)) as layout:
        began = time.monotonic()
        job = Job(
            script=script_of(model),
            strategy=strategy,
            workers=1 if strategy == "single" else None,
            threads=1,
            options=Options(steps=steps, discard_writes=True),
        )
        result = api.run(job, seen, cluster=layout.cluster)
        took_s = time.monotonic() - began
    return {
        "took_s": took_s,
        "status": result.status,
        "num_steps": result.num_steps,
        "predicted_step_s": result.predicted_step_s,
        "chosen": seen.chosen,
        "notes": seen.notes,
    }


def measure(model: str, rate: str) -> Json:
    """A case: both labs at the same time."""
    steps = steps_for(model)
    print(f"{model}/{rate}: {steps} steps", flush=True)
    running = []
    for strategy in ("auto", "single"):
        command = [sys.executable, __file__, "--one", strategy, model, rate, str(steps)]
        running.append((strategy, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
    row: Json = {}
    for strategy, process in running:
        told, _ = process.communicate()
        row[strategy] = json.loads(told.splitlines()[-1])
    return row


def report(found: Json) -> Json:
    """By how much a run was slower than one host, beside what is allowed."""
    rows: Json = {}
    for case, row in found["cases"].items():
        auto, single = row["auto"], row["single"]
        limit_s = (1 + ALLOWED_SHARE) * single["took_s"] + ALLOWED_S
        rows[case] = {
            "single_s": single["took_s"],
            "auto_s": auto["took_s"],
            "planned_s": auto["chosen"].get("planned_s"),
            "chosen": f"{auto['chosen'].get('label')} on {auto['chosen'].get('num_workers')}",
            "predicted_speed_up": auto["chosen"].get("speed_up"),
            "speed_up": single["took_s"] / auto["took_s"],
            "is_within": auto["status"] == single["status"] == "done"
            and auto["took_s"] <= limit_s,
        }
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="MODEL/RATE", help="one case")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--one", nargs=4, metavar="WORD", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        strategy, model, rate, steps = args.one
        print(json.dumps(train(strategy, model, rate, int(steps))))
        return 0
    if not args.report:
        command = ["git", "describe", "--always", "--dirty"]
        told = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
        for model, rate in CASES:
            if args.only in (None, f"{model}/{rate}"):
                row = measure(model, rate)
                found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
                found["cases"][f"{model}/{rate}"] = {
                    **row,
                    "cpu": CPU,
                    "date": time.strftime("%Y-%m-%d"),
                    "commit": told.stdout.strip(),
                }
                RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(report(json.loads(RESULTS.read_text())), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
