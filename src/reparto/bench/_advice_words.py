"""Advice in words: a few sentences that say what many rows say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from reparto.bench._cells import CAPTURED, PLAIN
from reparto.bench._statistics import median
from reparto.bench._table import figures, seconds
from reparto.spec import Choice, Crossover, Measurement, Verdict

_Group = tuple[str, str, str, str, int]
_MODES = {"train": "training", "infer": "inference"}
_BY_ITSELF = "`reparto run` does so with a script by itself"
_BY_ITSELF_RELAXED = (
    "`reparto run --relaxed` does so with a script by itself, in the precision that is fastest"
)


def words(
    rows: Sequence[Measurement],
    choices: Sequence[Choice],
    crossovers: Sequence[Crossover],
    verdicts: Sequence[Verdict],
) -> tuple[str, ...]:
    """All sentences, in the order in which people ask."""
    return (
        *(
            sentence
            for found in _by_mode(choices).values()
            for sentence in (*_of_devices(found), *_of_captured(rows, found))
        ),
        *_of_crossovers(crossovers),
        *_of_prices(choices),
        *_of_several(rows),
        *_of_deadline(verdicts),
        *_of_flags(rows),
    )


def _of_devices(choices: Sequence[Choice]) -> Iterator[str]:
    for (mode, dtype), found in _by_mode(choices).items():
        what = f"For {_MODES[mode]} in {dtype}"
        wins = Counter(one.device for one in found)
        if len({device for one in found for device in (one.device, *one.others)}) == 1:
            yield f"{what} only {found[0].device} was measured, so there is nothing to choose."
            continue
        device, count = wins.most_common(1)[0]
        if count == len(found):
            yield f"{what} take {device}: {_as_fast(found, device)}."
            continue
        rest = ", ".join(f"{other} in {num}" for other, num in wins.most_common()[1:])
        yield (
            f"{what} take {device} in {count} of {len(found)} cases ({_as_fast(found, device)}); "
            f"{rest} of them."
        )


def _of_captured(rows: Sequence[Measurement], choices: Sequence[Choice]) -> Iterator[str]:
    """That the best form is one that nobody has to write."""
    plain = {
        _group(row): row.step_s
        for row in rows
        if row.step_s and row.form == PLAIN and row.strategy == "single"
        if "not-like-for-like" not in row.flags
    }
    for (mode, dtype), found in _by_mode(choices).items():
        by_device: dict[str, list[Choice]] = defaultdict(list)
        for one in found:
            if one.form == CAPTURED:
                by_device[one.device].append(one)
        for device, best in by_device.items():
            keys = [(one.suite, one.model, device, dtype, one.batch_rows) for one in best]
            times = [
                plain_s / one.step_s
                for one, key in zip(best, keys, strict=True)
                if (plain_s := plain.get(key)) is not None
            ]
            told = f" ({figures(median(times))} times as fast as the plain loop" if times else ""
            told += ", in the middle)" if len(times) > 1 else ")" * bool(times)
            yield (
                f"In {len(best)} of {len(found)} cases of {_MODES[mode]} in {dtype} that is "
                f"{device} with data kept on it and each step captured as one graph{told}; "
                f"{_BY_ITSELF if dtype == 'f32' else _BY_ITSELF_RELAXED}."
            )


def _as_fast(found: Sequence[Choice], device: str) -> str:
    times = [min(one.others.values()) / one.step_s for one in found if one.others]
    here = [
        t
        for t, one in zip(times, [o for o in found if o.others], strict=True)
        if one.device == device
    ]
    if not here:
        return "no other device was measured there"
    told = f"{figures(median(here))} times as fast as the next one"
    return told if len(here) == 1 else f"{told} in the middle, up to {figures(max(here))} times"


def _of_crossovers(crossovers: Iterable[Crossover]) -> Iterator[str]:
    by_batch: dict[tuple[str, str, str, str], list[Crossover]] = defaultdict(list)
    models: dict[tuple[str, str, str], list[Crossover]] = defaultdict(list)
    for one in crossovers:
        if one.along == "parameters":
            by_batch[one.mode, one.dtype, one.gpu, one.fixed].append(one)
        else:
            models[one.mode, one.dtype, one.gpu].append(one)
    for (mode, dtype, gpu, rows), found in by_batch.items():
        for one in found:
            what = f"At batch {rows} ({_MODES[mode]}, {dtype})"
            yield f"{what} {gpu} pays {_from(one, 'parameters')}."
    for (mode, dtype, gpu), line in models.items():
        if len(line) == 1 and line[0].fixed:
            one = line[0]
            yield (f"{gpu} pays for {_MODES[mode]} {one.fixed} in {dtype} {_from(one, 'rows')}.")


def _from(one: Crossover, unit: str) -> str:
    if one.at is None:
        return f"at no number of {unit} that was measured"
    if one.at <= one.least:
        return f"everywhere, from {figures(one.least)} {unit} on"
    return f"from about {figures(one.at)} {unit} on"


def _of_prices(choices: Sequence[Choice]) -> Iterator[str]:
    priced = [one for one in choices if len(one.costs) > 0]
    for (mode, dtype), found in _by_mode(priced).items():
        cheap = Counter(one.cheapest for one in found)
        what = "a pass over the data" if mode == "train" else "a million samples"
        largest = max(found, key=lambda one: (one.num_parameters, one.batch_rows))
        told = ", ".join(f"{device} {cost:.3g}" for device, cost in largest.costs.items())
        device, count = cheap.most_common(1)[0]
        yield (
            f"At these prices {device} is the cheapest for {_MODES[mode]} in {dtype} in {count} "
            f"of {len(found)} cases; {what} of {largest.model} at batch {largest.batch_rows} "
            f"costs: {told}."
        )


def _of_several(rows: Sequence[Measurement]) -> Iterator[str]:
    single: dict[_Group, float] = {}
    several: dict[_Group, list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.step_s and row.mode == "train":
            if row.strategy != "single":
                several[_group(row)].append(row)
            elif row.form == PLAIN:
                single[_group(row)] = row.step_s
    for key, found in several.items():
        best = min(found, key=lambda row: row.step_s or 0.0)
        if key not in single or not best.step_s:
            continue
        name, device, rows_ = key[1] or key[0], key[2], key[4]
        times = single[key] / best.step_s
        who = f"{best.strategy} on {best.num_workers} workers"
        verdict = (
            f"helps: {figures(times)} times as fast as one"
            if times > 1.02
            else f"does not help: {figures(1 / times)} times the time of one"
        )
        sure = "" if not _badly(best) else " (known badly)"
        yield f"Several for {name} at batch {rows_} on {device}: {who} {verdict}{sure}."


def _group(row: Measurement) -> _Group:
    work = row.work
    return work.suite, work.model, row.device, row.dtype, work.batch_rows


def _badly(row: Measurement) -> bool:
    return bool({"noisy", "throttled"} & set(row.flags))


def _of_deadline(verdicts: Sequence[Verdict]) -> Iterator[str]:
    by_device: dict[tuple[str, str, float], list[Verdict]] = defaultdict(list)
    for one in verdicts:
        by_device[one.device, one.dtype, one.deadline_s].append(one)
    for (device, dtype, limit), found in by_device.items():
        least = min(found, key=lambda one: one.largest_rows)
        name = least.model or least.suite
        told = f"Within {seconds(limit)} {device} ({dtype})"
        if least.largest_rows == 0:
            bad = sum(one.largest_rows == 0 for one in found)
            yield f"{told} does not answer one sample of {name}" + (
                f", nor of {bad - 1} other models." if bad > 1 else "."
            )
            continue
        more = "at least " if least.at_least else ""
        whom = name if len(found) == 1 else f"every model; the slowest is {name}"
        yield f"{told} answers calls with {more}{least.largest_rows} samples of {whom}."


def _of_flags(rows: Sequence[Measurement]) -> Iterator[str]:
    counts: Counter[str] = Counter(flag for row in rows for flag in row.flags)
    told = {
        "did-not-learn": "did not learn: their times are those of a network that answers nothing",
        "not-like-for-like": "did other work than the rows beside them, and were left out",
        "noisy": "are known badly: the machine was busy, or the times are spread",
        "throttled": "were measured while the device slowed down: heat, power, or others on it",
        "failed": "have no figures; the table says why",
    }
    for flag, why in told.items():
        if counts[flag]:
            yield f"{counts[flag]} of {len(rows)} rows {why}."


def _by_mode(choices: Sequence[Choice]) -> dict[tuple[str, str], list[Choice]]:
    found: dict[tuple[str, str], list[Choice]] = defaultdict(list)
    for one in choices:
        found[one.mode, one.dtype].append(one)
    return found
