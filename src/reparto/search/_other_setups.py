"""Setups without a table on this machine: a script's runs, a function, a table on Spark."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from reparto.errors import UsageError
from reparto.search._crew import Crew
from reparto.search._ground import Ground
from reparto.search._setup import MOST_S, Setup, asked_for, grounds_of, num_cores
from reparto.spec import SearchRequest

#: Without any limit a script's runs are tried for so long.
SCRIPT_S = 600.0


def function_setup(request: SearchRequest) -> Setup:
    """For a function that is to be made small."""
    from reparto.search._function_work import FUNCTIONS, FunctionWork

    names = asked_for(request) or tuple(FUNCTIONS)
    unknown = [name for name in names if name not in FUNCTIONS]
    if unknown:
        raise UsageError(
            f"{unknown[0]} is no function that is known", remedy=f"known: {', '.join(FUNCTIONS)}"
        )
    if len(names) > 1:
        raise UsageError(
            f"{' and '.join(names)} are several functions", remedy="search one at a time"
        )
    workers = request.max_workers or num_cores()
    ground = Ground(names[0], FUNCTIONS[names[0]].space, resource="none")

    def crew() -> Crew:
        from reparto.search._local import LocalCrew

        return LocalCrew(FunctionWork(), max_workers=workers, threads=1, memory_bytes=None)

    asked = request.spaces.get(names[0], {})
    return Setup(
        grounds=(ground.narrowed(asked) if asked else ground,),
        crew=crew,
        max_workers=workers,
        metric=request.metric or "value",
        higher_is_better=False,
        split="none: a function",
        default_time_s=20.0,
    )


def script_setup(request: SearchRequest, folder: Path) -> Setup:
    """For runs of a script.

    Raises:
        UsageError: If the script or its space cannot be.
    """
    from reparto.search._script_trials import prepare_trials
    from reparto.search._script_work import ScriptWork
    from reparto.search._threads import ThreadCrew

    if request.techniques:
        raise UsageError(
            "a script is searched, and techniques are named too", remedy="leave --techniques out"
        )
    space = request.spaces.get("script", {})
    if not space:
        raise UsageError(
            "nothing is said of what the script's options may be",
            remedy="--space space.toml, see docs/how-to/search-a-script.md",
        )
    ground = Ground("script", {}, resource="steps").narrowed(space)
    trials = prepare_trials(request, folder)
    workers = request.max_workers or trials.at_once

    def crew() -> Crew:
        return ThreadCrew(lambda: ScriptWork(request, folder, trials), max_workers=workers)

    return Setup(
        grounds=(ground,),
        crew=crew,
        max_workers=workers,
        metric=trials.metric,
        higher_is_better=request.maximize,
        split="none: a script's own",
        default_time_s=SCRIPT_S,
        notes=list(trials.notes),
    )


def spark_setup(request: SearchRequest) -> Setup:
    """For a table that lies on a Spark cluster.

    Raises:
        UsageError: If the request or the table cannot be.
        MissingExtraError: If pyspark is not installed.
    """
    from reparto.search._spark import baseline_of, open_spark, spark_techniques_for
    from reparto.search.metrics import default_metric, metric_named

    with ExitStack() as closing:
        source = open_spark(request)
        closing.callback(source.close)
        facts = source.facts
        metric = metric_named(request.metric or default_metric(facts.domain), facts.domain)
        techniques = spark_techniques_for(facts, asked_for(request))
        workers = request.max_workers or 2
        return Setup(
            grounds=grounds_of(techniques, facts, request),
            crew=lambda: source.crew(workers, metric.name),
            max_workers=workers,
            metric=metric.name,
            higher_is_better=metric.higher_is_better,
            facts=facts,
            num_folds=source.num_folds,
            split=source.split.how,
            truths=source.truths(),
            test=source.test,
            seen=source.seen(),
            baseline=baseline_of(source, metric.name),
            default_time_s=MOST_S,
            notes=source.notes(),
            closing=closing.pop_all(),
        )
