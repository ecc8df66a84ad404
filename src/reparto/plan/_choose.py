"""Which of several ways to run a script is taken. Pure.

The plain script on one machine is a way like others, and the simplest:

    one machine ── exact, 2 workers ── exact, 4 ── … ── relaxed, 2 workers ── relaxed, 4 ── …
    simple                                                                            less so

Of ways that are as simple the better is taken. A less simple one must be better by more than 3 %
than the best of the simpler ones: a machine more, or another mathematics, is not to be had for
nothing. One machine is left only for what is predicted to be faster by more than 15 %, or by more
than 3 % in steps that were really made: nine predictions in ten are no further off than that
(benchmarks/prediction), and several machines must not be slower than one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from reparto.errors import UsageError
from reparto.plan._prices import ANY_HOST, hosts_of, price_of
from reparto.plan._why import why
from reparto.spec import Forecast, Prediction, Survey, Wish

MARGIN = 1.03
#: Predictions of several workers may be off by so much.
DOUBT = 1.15

Measure = Callable[[Prediction], float]


def choose(
    survey: Survey, predictions: Sequence[Prediction], wish: Wish, what_if: str = ""
) -> Forecast:
    """Take the best of some ways to run a script, and say why.

    Without wishes that is the fastest one that is exact, or the fastest of all where the
    mathematics may be changed. With a deadline it is the cheapest that is done by then (the one
    with the fewest host-hours, where there are no prices), or else the fastest; with a budget the
    fastest that costs no more, or else the cheapest; with both the fastest that keeps both, or
    else the fastest within the budget.

    Args:
        survey: What was measured.
        predictions: The plain script on one machine first.
        wish: What the plan is to be like.
        what_if: What was assumed instead of measured, in words.

    Returns:
        All predictions, priced if there are prices, and which one was taken.

    Raises:
        UsageError: If a wish cannot be judged: the time of the whole script is not known, there
            are no prices, or they are those of other hosts.
    """
    if not predictions or predictions[0].num_workers != 1:
        raise ValueError("the plain script on one machine comes first")
    hosts = {host.name for host in survey.cluster.hosts}
    check_prices(wish, hosts | {*survey.placement, survey.alone_host} - {""})
    priced = tuple(replace(one, price=price_of(one, survey, wish.prices)) for one in predictions)
    time = time_measure(priced)
    best = _taken(survey, priced, wish, time)
    consented = _taken(survey, priced, replace(wish, relaxed=True), time)
    return Forecast(
        survey=survey,
        wish=wish,
        predictions=priced,
        chosen=next(index for index, one in enumerate(priced) if one is best),
        why=why(survey, priced, best, wish, time, consented),
        what_if=what_if,
    )


def _taken(survey: Survey, ways: Sequence[Prediction], wish: Wish, time: Measure) -> Prediction:
    allowed = [one for one in ways if wish.relaxed or one.exact]
    if wish.deadline_s is None and wish.budget is None:
        return _best(_beyond_doubt(allowed, time), time)
    known = _known(allowed, wish)
    cost = _cost(survey)
    paid = [one for one in known if wish.budget is None or cost(one) <= wish.budget]
    kept = [
        one for one in paid if wish.deadline_s is None or (one.total_s or 0.0) <= wish.deadline_s
    ]
    if not paid:
        return _cheapest(known, cost, time)
    if kept and wish.budget is None:
        return _cheapest(kept, cost, time)
    return _best(kept or paid, time)


def _beyond_doubt(ways: Sequence[Prediction], time: Measure) -> list[Prediction]:
    """One machine, and what is faster than it by more than it may be off."""
    alone, *others = ways
    return [
        alone,
        *(
            one
            for one in others
            if time(alone) > (MARGIN if one.is_measured else DOUBT) * time(one)
        ),
    ]


def _best(ways: Iterable[Prediction], measure: Measure) -> Prediction:
    """The one with least of something; what is hardly less is not worth being less simple."""
    taken: Prediction | None = None
    groups: dict[tuple[bool, int], list[Prediction]] = {}
    for one in ways:
        groups.setdefault((not one.exact, one.num_workers), []).append(one)
    for simplicity in sorted(groups):
        better = min(groups[simplicity], key=measure)
        if taken is None or measure(taken) > MARGIN * measure(better):
            taken = better
    assert taken is not None
    return taken


def _cheapest(ways: Sequence[Prediction], cost: Measure, time: Measure) -> Prediction:
    """The cheapest one; of those that cost no more than that, such as nothing, the fastest."""
    least = cost(_best(ways, cost))
    return _best((one for one in ways if cost(one) <= least), time)


def time_measure(ways: Sequence[Prediction]) -> Measure:
    """Seconds of the whole script; where one of them is not known, of a sample."""
    if any(one.total_s is None for one in ways):
        return lambda one: one.step_s / max(one.samples_a_step, 1)
    return lambda one: one.total_s or 0.0


def _cost(survey: Survey) -> Measure:
    """The price; without prices hosts count alike."""

    def cost(one: Prediction) -> float:
        if one.price is not None:
            return one.price
        return len(hosts_of(one, survey)) * (one.total_s or 0.0) / 3600

    return cost


def _known(ways: Sequence[Prediction], wish: Wish) -> list[Prediction]:
    """Those whose time can be held against a deadline or a budget."""
    option = "--budget" if wish.deadline_s is None else "--deadline"
    known = [one for one in ways if one.total_s is not None]
    if not known:
        raise UsageError(
            f"{option}: how long the whole script takes is not known, as the number of its steps "
            "cannot be told",
            remedy=f"give them with --steps, or leave out {option}: plans are then compared by "
            "samples a second",
        )
    if wish.budget is not None and not wish.prices:
        raise UsageError(
            "--budget: there are no prices", remedy="--price HOST=0.40/h, or --price 0.40/h"
        )
    return known


def check_prices(wish: Wish, hosts: Collection[str]) -> None:
    """Refuse prices of hosts that there are not.

    Raises:
        UsageError: If there are any.
    """
    for name in wish.prices:
        if name not in hosts and name != ANY_HOST:
            raise UsageError(
                f"--price: there is no host {name!r}", remedy=f"one of {', '.join(sorted(hosts))}"
            )
