"""How good are the planner's predictions? The lab tells the truth.

    python benchmarks/prediction/run.py                 as root; resumable; about an hour
    python benchmarks/prediction/run.py --sites 2       the next two labs only
    python benchmarks/prediction/run.py --report        what was measured so far, in figures

A fixed random 80 cells of models × strategies × 2, 4 nodes × rates × {equal, 2:1 unlike} hosts:
five on each of 16 labs.
On each lab the script is surveyed as `reparto plan` does, every strategy is predicted, and then
the cells of that lab are run; so is what the planner would choose, exact and relaxed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from reparto import _planning, api, engines, lab
from reparto._trial_clock import Clock
from reparto.plan import choose
from reparto.plan._candidates import candidates
from reparto.spec import Forecast, Job, Options, Prediction, Wish, to_plain

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "cells.json"
SURVEYS = HERE / "results" / "surveys"
CAPTIONING = HERE.parents[1] / "examples" / "captioning" / "train.py"
MODELS: dict[str, tuple[Path, tuple[str, ...]]] = {
    "perceptron": (HERE / "models" / "perceptron.py", ()),
    "cnn": (HERE / "models" / "cnn.py", ()),
    # Long epochs, none of which ends while steps are timed: evaluations and checkpoints at their
    # ends, for which strategies that are apart bring parameters together, are no part of a step.
    "captioning": (
        CAPTIONING,
        ("--scenes", "3000", "--epochs", "1000", "--evaluate-every", "1000000"),
    ),
    "transformer": (HERE / "models" / "transformer.py", ()),
}
RATES = ("10mbit", "100mbit", "1gbit", "none")
SHARES = {"equal": (0.45, 0.45, 0.45, 0.45), "unlike": (0.6, 0.3, 0.6, 0.3)}
NODES = (2, 4)
NUM_CELLS, NUM_LABS, SEED = 80, 16, 20261116
#: A measured run takes about so long, and has so many steps at least; it is ended after a minute.
RUN_S, LEAST_STEPS, LONGEST_S = 9.0, 5, 60.0
#: Unlike hosts get slices in proportion after some steps; what is timed comes after that, unless
#: these steps would take longer than so much.
BALANCED_AFTER, BALANCING_S = 34, 45.0
Json = dict[str, Any]
Place = tuple[str, str, str]  # model, rate, hosts


def cells() -> list[tuple[Place, int, str]]:
    """The fixed random choice: half of the labs, and on each of them as many ways to train."""
    labels = [one.label for one in candidates(relaxed=True)]
    draws = random.Random(SEED)
    labs = draws.sample(list(itertools.product(MODELS, RATES, SHARES)), NUM_LABS)
    ways = list(itertools.product(NODES, labels))
    return [(place, *way) for place in labs for way in draws.sample(ways, NUM_CELLS // NUM_LABS)]


class Book:
    """Rows by key, in a file; what is there is not measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        command = ["git", "describe", "--always", "--dirty"]
        told = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
        self.commit = told.stdout.strip()
        self.rows: Json = json.loads(path.read_text()) if path.exists() else {}

    def put(self, key: str, row: Json) -> None:
        self.rows[key] = {**row, "date": time.strftime("%Y-%m-%d"), "commit": self.commit}
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n")


class Ended(Clock):
    """Times a run, and ends it when it has taken long enough."""

    def __init__(self, steps_a_round: int, skip: int) -> None:
        super().__init__(steps_a_round, skip)
        self._until = time.monotonic() + LONGEST_S + 60

    def has_enough(self) -> bool:
        records = self._timed[0].records if 0 in self._timed else []
        is_long = bool(records) and records[-1].time_s - records[0].time_s > LONGEST_S
        return time.monotonic() > self._until or (is_long and self.num_steps >= LEAST_STEPS)


def reference_s() -> float:
    """Seconds of a piece of work, which tell how fast this machine is just now."""
    import torch

    torch.set_num_threads(1)
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    found = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(60):
            left @ right
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def measure(site: _planning.Site, one: Prediction, is_unlike: bool) -> Json:
    """Run a strategy for real."""
    plan = site.plan(_planning._steady(one.strategy), one.num_workers)
    every = _planning._steps_a_round(one.strategy)
    wanted = max(LEAST_STEPS, min(400, int(RUN_S / one.step_s)))
    is_balanced = is_unlike and BALANCED_AFTER * one.step_s < BALANCING_S
    skip = max(
        BALANCED_AFTER if is_balanced else 0, _planning.untimed(one.strategy, one.num_workers)
    )
    steps = skip + every * -(-wanted // every)
    clock = Ended(every, skip)
    options = Options(steps=steps, paces=_planning.is_apart_in_time(one.strategy))
    result = site.execute(plan, options, clock)
    failure = result.failure.message if result.failure is not None else ""
    return {
        "measured_s": clock.step_s,
        "num_steps": clock.num_steps,
        "skipped": skip,
        "failure": failure,
    }


def visit(place: Place, wanted: list[tuple[int, str]], book: Book) -> None:
    """Survey a script on a lab, and measure what is wanted there and what would be chosen."""
    model, rate, hosts = place
    script, args = MODELS[model]
    of_host = {"rate": rate}
    text = "\n".join(f'[[hosts]]\nname = "h{i}"\ncpu = {c}' for i, c in enumerate(SHARES[hosts]))
    file = HERE / "results" / f"lab-{os.getpid()}.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text + "\n")
    described = lab.read_lab(file, lab.Flags(name=f"predict-{os.getpid()}", of_host=of_host))
    file.unlink()
    job = Job(script=str(script), args=args, threads=1)
    with closing(engines.build("local")) as engine, lab.stand(described) as layout:
        program = api.convert(str(script), args).program
        site = _planning.Site(job, program, engine, layout.cluster, tell)
        weighed = candidates(relaxed=True)
        at_first_s = reference_s()
        survey = _planning.survey(site, NODES, weighed)
        at_survey_s = (at_first_s + reference_s()) / 2
        took_s = site.spent_s
        predictions = _planning.predicted(survey, NODES, weighed)
        key = "/".join(place)
        SURVEYS.mkdir(exist_ok=True)
        (SURVEYS / f"{'-'.join(place)}.json").write_text(json.dumps(to_plain(survey)) + "\n")
        chosen = {}
        for relaxed in (False, True):
            wish = Wish(relaxed=relaxed)
            first = choose(survey, predictions, wish)
            trials = _planning._tried(site, survey, first)
            tried = dataclasses.replace(survey, trials=trials)
            final: Forecast = choose(tried, _planning.predicted(tried, NODES, weighed), wish)
            chosen["relaxed" if relaxed else "exact"] = (final.best.label, final.best.num_workers)
        planned_s = site.spent_s
        by_key = {(one.num_workers, one.label): one for one in predictions}
        more = [(nodes, label) for label, nodes in chosen.values() if nodes > 1]
        for nodes, label in dict.fromkeys([*wanted, *more]):
            one = by_key[nodes, label]
            before_s = reference_s()
            row = measure(site, one, hosts == "unlike")
            row["drift"] = (before_s + reference_s()) / 2 / at_survey_s
            way = (one.strategy, one.num_workers)
            put(
                book,
                f"{key}/{nodes}/{label}",
                one,
                row,
                is_cell=(nodes, label) in wanted,
                is_rehearsed=any((r.strategy, r.num_workers) == way for r in survey.rehearsals),
            )
        book.put(
            f"{key}/site",
            {
                "took_s": took_s,
                "planned_s": planned_s,
                "alone_s": survey.alone.step_s,
                "batch": survey.profile.batch_rows,
                "chosen": chosen,
            },
        )


def put(
    book: Book, key: str, one: Prediction, row: Json, *, is_cell: bool, is_rehearsed: bool
) -> None:
    measured = row["measured_s"]
    row |= {
        "predicted_s": one.step_s,
        "parts": [one.compute_s, one.pack_s, one.exchange_s],
        "is_rehearsed": is_rehearsed,
        "samples_a_step": one.samples_a_step,
        "error": one.step_s / measured - 1 if measured else None,
        "is_cell": is_cell,
    }
    book.put(key, row)
    error = "" if row["error"] is None else f"{100 * row['error']:+.1f} %"
    parts = " + ".join(f"{part:.3f}" for part in row["parts"])
    tell(f"{key}: {parts} = {one.step_s:.3f}, measured {measured or 0:.3f}  {error}")


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def report(book: Book) -> Json:
    """The figures of the bars, from what was measured so far."""
    runs = {key: row for key, row in book.rows.items() if row.get("error") is not None}
    errors = sorted(abs(row["error"]) for row in runs.values() if row["is_cell"])
    kept = differ = 0
    for (a, one), (b, two) in itertools.combinations(runs.items(), 2):
        if a.split("/")[:3] != b.split("/")[:3]:
            continue
        speed = [r["samples_a_step"] / r["measured_s"] for r in (one, two)]
        told = [r["samples_a_step"] / r["predicted_s"] for r in (one, two)]
        if max(speed) > 1.1 * min(speed):
            differ += 1
            kept += (speed[0] > speed[1]) == (told[0] > told[1])
    drifts = [abs(row["drift"] - 1) for row in runs.values()]
    regrets = list(_regrets(book))
    planned = sorted(row["planned_s"] for key, row in book.rows.items() if key.endswith("/site"))
    return {
        "sites": len(planned),
        "planning_s": [statistics.median(planned), planned[-1]] if planned else None,
        "cells": len(errors),
        "median_error": statistics.median(errors) if errors else None,
        "p90_error": errors[int(0.9 * (len(errors) - 1))] if errors else None,
        "median_drift": statistics.median(drifts) if drifts else None,
        "order_kept": kept / differ if differ else None,
        "pairs": differ,
        "median_regret": statistics.median(regrets) if regrets else None,
        "mean_regret": statistics.fmean(regrets) if regrets else None,
        "worst_regret": max(regrets, default=None),
    }


def _regrets(book: Book) -> Any:
    """By how much what was chosen is slower than the best that was measured there."""
    exact = {one.label for one in candidates(relaxed=False)}
    for key, site in book.rows.items():
        if not key.endswith("/site"):
            continue
        place = key.removesuffix("site")
        runs = {
            tuple(other.removeprefix(place).split("/")): row["samples_a_step"] / row["measured_s"]
            for other, row in book.rows.items()
            if other.startswith(place) and row.get("measured_s")
        }
        runs["1", "plain script"] = site["batch"] / site["alone_s"]
        for kind, (label, nodes) in site["chosen"].items():
            allowed = {
                way: speed
                for way, speed in runs.items()
                if kind == "relaxed" or way[1] in exact or way[0] == "1"
            }
            taken = allowed.get((str(nodes), label))
            if taken is not None:
                yield max(allowed.values()) / taken - 1


def simulated(book: Book) -> Json:
    """What the simulator tells of the cells on four hosts, against what was measured there."""
    from reparto.plan.simulate import simulate
    from reparto.spec import Survey, from_plain

    ways = {one.label: one.strategy for one in candidates(relaxed=True)}
    errors = []
    for key, row in book.rows.items():
        *place, nodes, label = key.split("/")
        path = SURVEYS / f"{'-'.join(place)}.json"
        if nodes != "4" or not row.get("measured_s") or not row["is_cell"] or not path.exists():
            continue
        survey = from_plain(Survey, json.loads(path.read_text()))
        found = simulate(survey, ways[label], 4, 400)
        errors.append(abs(found.mean_s / row["measured_s"] - 1))
    errors.sort()
    return {
        "cells": len(errors),
        "median_error": statistics.median(errors) if errors else None,
        "p90_error": errors[int(0.9 * (len(errors) - 1))] if errors else None,
        "within_10_percent": sum(one <= 0.1 for one in errors),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, metavar="N", help="so many labs, then stop")
    parser.add_argument("--only", metavar="TEXT", help="labs whose name has it")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    book = Book(RESULTS)
    if not args.report:
        places: dict[Place, list[tuple[int, str]]] = {}
        for place, nodes, label in cells():
            places.setdefault(place, []).append((nodes, label))
        todo = [p for p in places if f"{'/'.join(p)}/site" not in book.rows]
        todo = [p for p in todo if not args.only or args.only in "/".join(p)]
        for place in todo[: args.sites]:
            tell("/".join(place))
            visit(place, places[place], book)
    figures = report(book) | {"simulator": simulated(book)}
    print(json.dumps(figures, indent=1))
    if not args.report:
        (HERE / "results" / "summary.json").write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
