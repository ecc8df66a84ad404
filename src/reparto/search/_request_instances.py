"""Instances of a cloud that a platform's request asks for, as workers of ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reparto.search._request_schema import Fault
from reparto.search._setup import num_cores


def workers_of(
    resources: Mapping[str, Any], engine: str, faults: list[Fault], notes: list[str]
) -> tuple[int, int | None]:
    """An instance of a cloud is a worker here.

    Args:
        resources: The request's ``computationalResources``.
        engine: Where it will run; locally there are no more workers than cores.
        faults: What is wrong is added to them.
        notes: What people should know is added to them.

    Returns:
        At least and at most so many.
    """
    instances = resources.get("instances") or []
    where = "computationalResources"
    for index, one in enumerate(instances):
        fewest, most = one.get("minInstances", 0), one.get("maxInstances", math.inf)
        if fewest > most:
            faults.append(
                Fault(
                    f"{where}.instances[{index}]",
                    f"minInstances {fewest} is above maxInstances {most}",
                )
            )
        hardware = one.get("additionalHardware")
        named = [hardware] if isinstance(hardware, str) else hardware or []
        if extra := [word for word in named if word.strip().lower() not in ("", "none")]:
            notes.append(
                f"additionalHardware {', '.join(extra)} is not used: candidates are trained on "
                "processors"
            )
    fewest, most = _totals(resources, instances)
    if most is not None and fewest > most:
        faults.append(
            Fault(where, f"at least {fewest} instances are asked for, and at most {most}")
        )
        return 0, None
    if types := [one["ec2Instance"] for one in instances if "ec2Instance" in one]:
        whose = "this machine" if engine == "local" else engine.capitalize()
        notes.append(
            f"no {' or '.join(dict.fromkeys(types))} is rented: workers of {whose} take the place "
            "of a cloud's instances"
        )
    if engine == "local" and (most or fewest) and max(most or 0, fewest) > (own := num_cores()):
        notes.append(
            f"of {_span(fewest, most)} instances, {own} are workers: this machine has so many "
            "cores (--engine ray has others)"
        )
        fewest, most = min(fewest, own), own
    return fewest, most


def _totals(
    resources: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]
) -> tuple[int, int | None]:
    """As the request says, or the sums over its instances; the narrower one if it says both."""
    fewest = max(
        resources.get("minTotalInstances", 0),
        sum(one.get("minInstances", 0) for one in instances),
    )
    most = [resources["maxTotalInstances"]] if "maxTotalInstances" in resources else []
    if instances and all("maxInstances" in one for one in instances):
        most.append(sum(one["maxInstances"] for one in instances))
    return fewest, min(most) if most else None


def _span(fewest: int, most: int | None) -> str:
    if most is None:
        return f"at least {fewest}"
    return f"{fewest} to {most}" if fewest else f"at most {most}"
