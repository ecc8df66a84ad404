"""Why a plan was chosen, in one line for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reparto.plan._prices import duration_text, hosts_of, price_text
from reparto.spec import Prediction, Survey, Wish

WORTH_TELLING = 1.1  # what relaxed ways would gain is told from here on
_HARDLY = 1.05  # below it, "so many times slower" would read as a joke
_DOUBTED = ", by no more than a prediction may be off"


def why(
    survey: Survey,
    ways: Sequence[Prediction],
    best: Prediction,
    wish: Wish,
    time: Callable[[Prediction], float],
    consented: Prediction,
) -> str:
    """Put a choice into words.

    Args:
        survey: What was measured.
        ways: All that there are, priced; the plain script on one machine first.
        best: The one that was chosen.
        wish: What the plan is to be like.
        time: What ways are compared by.
        consented: The one that would be chosen if the mathematics might be changed.
    """
    alone = ways[0]
    is_one_host = len({survey.alone_host, *survey.placement} - {""}) == 1
    others = [one for one in ways if one.num_workers > 1 and (one.exact or wish.relaxed)]
    told, named = [], 1
    if best.num_workers > 1:
        named = best.num_workers
        gain = times(time(alone) / time(best))
        one = "one process" if is_one_host else "one machine"
        relaxed = "" if best.exact else ", relaxed"
        told.append(f"{named} workers by {best.label}{relaxed}: {gain} as fast as {one}")
    else:
        if others:
            other = min(others, key=time)
            named = other.num_workers
            is_free = wish.deadline_s is None and wish.budget is None
            compared = _compared(other, time(other) / time(alone), survey)
            is_faster = is_free and time(alone) > _HARDLY * time(other)
            told.append(compared + (_DOUBTED if is_faster else ""))
        told.append("staying in one process" if is_one_host else "staying on one machine")
    return "; ".join([*told, *_wish(best, wish), *_relaxed(best, consented, time, named)])


def times(ratio: float) -> str:
    """A ratio with two or three figures: ``1.25×``, ``2.6×``, ``14×``."""
    decimals = 2 if ratio < 1.95 else 1 if ratio < 9.95 else 0
    return f"{ratio:.{decimals}f}×"


def rate_in_words(bits_per_s: float) -> str:
    """A rate as people say it: ``94 Mbit/s``, ``1.2 Gbit/s``."""
    for unit, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bits_per_s >= 0.9995 * unit:
            return f"{_three(bits_per_s / unit)} {name}"
    return f"{_three(bits_per_s / 1e3)} kbit/s"


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 99.5 else f"{number:.3g}"


def _compared(other: Prediction, slower: float, survey: Survey) -> str:
    """What another way would be like; ``slower`` is its time over that of one machine."""
    if slower >= _HARDLY:
        like = f"{times(slower)} slower"
    elif slower > 0.995:
        like = "no faster"
    elif slower > 1 / _HARDLY:
        like = f"only {100 * (1 / slower - 1):.0f} % faster"
    else:
        like = f"{times(1 / slower)} faster"
    return f"{other.num_workers} workers{_over(other, survey)} would be {like} with {other.label}"


def _over(way: Prediction, survey: Survey) -> str:
    """The rate of the slowest link that is used, where there is one."""
    hosts = set(hosts_of(way, survey))
    rates = [
        link.rate_bits_per_s
        for link in survey.cluster.links
        if link.source != link.target and {link.source, link.target} <= hosts
    ]
    return f" over {rate_in_words(min(rates))}" if rates else ""


def _wish(best: Prediction, wish: Wish) -> list[str]:
    """Whether a deadline and a budget are kept, and else by how much they are not."""
    if best.total_s is None or (wish.deadline_s is None and wish.budget is None):
        return []
    late = 0.0 if wish.deadline_s is None else best.total_s - wish.deadline_s
    over = 0.0 if wish.budget is None else (best.price or 0.0) - wish.budget
    by = "" if wish.deadline_s is None else f" done in {duration_text(wish.deadline_s)}"
    most = "" if wish.budget is None else f" for {price_text(wish.budget)}"
    takes = duration_text(best.total_s)
    takes += "" if best.price is None else f" for {price_text(best.price)}"
    missed = [
        *([f"{price_text(over)} too dear"] if over > 0 else []),
        *([f"{duration_text(late)} late"] if late > 0 else []),
    ]
    if missed:
        none = f"nothing is to be had{most}" if over > 0 else f"nothing{most} is{by}"
        return [f"{none}: this takes {takes}, {' and '.join(missed)}"]
    if wish.budget is None:
        least = "the fewest host-hours of all" if best.price is None else "the cheapest"
        return [f"{least} that is{by}: {takes}"]
    return [f"the fastest{by and f' that is{by}'}{most} or less: {takes}"]


def _relaxed(
    best: Prediction, consented: Prediction, time: Callable[[Prediction], float], named: int
) -> list[str]:
    """What would be gained by changing the mathematics, where that is worth telling."""
    if consented.exact or consented is best:
        return []
    which = consented.label
    if consented.num_workers != named:
        which += f" with {consented.num_workers} workers"
    faster = time(best) / time(consented)
    if faster > WORTH_TELLING:
        return [f"--relaxed allows {which}, predicted {times(faster)} faster"]
    if best.price and consented.price and best.price / consented.price > WORTH_TELLING:
        cheaper = times(best.price / consented.price)
        return [f"--relaxed allows {which}, predicted {cheaper} cheaper"]
    return []
