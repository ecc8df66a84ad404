"""Advice follows from rows: devices, crossovers, prices, several, deadlines."""

import pytest

from reparto.bench import advise, guarded
from reparto.bench._advice import pays_from
from tests.bench.rows import call, row

SIZES = {"50": 2.0, "800": 1.0, "6400-3200": 0.05}  # the GPU's time as a multiple of the CPU's


def grid():
    """A GPU that pays from 800 on."""
    found = []
    for model, times in SIZES.items():
        found += [row(model), row(model, device="cuda:0", step_s=0.01 * times * 0.9)]
    return guarded(found)


def words(rows, **more):
    return "\n".join(advise(rows, **more).words)


def test_the_fastest_device_is_named_for_each_case():
    chosen = {one.model: one.device for one in advise(grid()).choices}
    assert chosen == {"50": "cpu", "800": "cuda:0", "6400-3200": "cuda:0"}


def test_words_name_the_device_and_the_exceptions():
    told = words(grid())
    assert "For training in f32 take cuda:0 in 2 of 3 cases" in told
    assert "cpu in 1 of them" in told


def test_gpu_pays_from_a_number_of_parameters_on():
    (found,) = [one for one in advise(grid()).crossovers if one.along == "parameters"]
    assert 2601 < found.at < 41_601
    assert "At batch 32 (training, f32) cuda:0 pays from about" in words(grid())


def test_gpu_pays_from_a_batch_on():
    rows = [row(rows=2), row(rows=2, device="cuda:0", step_s=0.02)]
    rows += [row(rows=200), row(rows=200, device="cuda:0", step_s=0.005)]
    (found,) = [one for one in advise(rows).crossovers if one.along == "batch"]
    assert found.at == pytest.approx(20.0)
    assert "cuda:0 pays for training 50 in f32 from about 20 rows on" in words(rows)


@pytest.mark.parametrize(
    ("known", "at"),
    [
        ([(1.0, 2.0), (2.0, 3.0)], 1.0),
        ([(1.0, 0.5), (2.0, 0.9)], None),
        ([(1.0, 2.0), (10.0, 0.5), (1000.0, 2.0)], 100.0),  # the last time counts
    ],
)
def test_crossover_is_where_it_pays_for_good(known, at):
    assert pays_from(known) == (None if at is None else pytest.approx(at))


def test_price_may_choose_another_device_than_time():
    advice = advise(grid(), {"cpu": 0.4, "cuda:0": 30.0})
    large = next(one for one in advice.choices if one.model == "800")
    assert (large.device, large.cheapest) == ("cuda:0", "cpu")
    assert large.costs["cpu"] == pytest.approx(0.4 * 0.32 / 3600)
    assert "cpu is the cheapest for training" in "\n".join(advice.words)


def test_without_prices_nothing_is_said_of_costs():
    assert "price" not in words(grid())


def test_rows_that_are_not_alike_or_failed_are_not_advised():
    rows = guarded(
        [
            row(),
            row(device="cuda:0", step_s=0.001, work={"num_samples": 10}),
            row(device="cuda:1", step_s=None, failure="no memory"),
        ]
    )
    (choice,) = advise(rows).choices
    assert (choice.device, dict(choice.others)) == ("cpu", {})


def test_a_device_on_which_nothing_was_learned_is_not_advised():
    rows = guarded([row(), row(device="cuda:0", step_s=0.001, loss_last=0.8)])
    (choice,) = advise(rows).choices
    assert choice.device == "cpu"


def test_several_are_told_to_help_or_not():
    slow = row(strategy="all-reduce", num_workers=2, step_s=0.02)
    fast = row(strategy="all-reduce", num_workers=2, step_s=0.005)
    assert "does not help: 2 times the time of one" in words([row(), slow])
    assert "helps: 2 times as fast as one" in words([row(), fast])


def test_captured_steps_are_told_to_be_what_run_makes_of_a_script():
    rows = grid()
    rows += tuple(row(model, device="cuda:0", form="captured", step_s=0.002) for model in SIZES)
    chosen = {one.model: (one.device, one.form) for one in advise(rows).choices}
    assert chosen == {
        "50": ("cuda:0", "captured"),
        "800": ("cuda:0", "captured"),
        "6400-3200": ("cuda:0", "plain"),
    }
    assert (
        "In 2 of 3 cases of training in f32 that is cuda:0 with data kept on it and each step "
        "captured as one graph (6.75 times as fast as the plain loop, in the middle); "
        "`reparto run` does so with a script by itself."
    ) in words(rows)


def test_captured_steps_in_less_precision_are_told_to_need_leave():
    rows = [row(device="cuda:0", dtype="bf16")]
    rows.append(row(device="cuda:0", dtype="bf16", form="captured", step_s=0.002))
    assert (
        "captured as one graph (5 times as fast as the plain loop); `reparto run --relaxed` "
        in (words(rows))
    )


def test_captured_steps_are_not_held_against_a_loop_that_did_other_work():
    other = row(device="cuda:0", flags=("not-like-for-like",))
    told = words([other, row(device="cuda:0", form="captured", step_s=0.002)])
    assert "each step captured as one graph; `reparto run` does so" in told


def test_without_captured_steps_nothing_is_said_of_them():
    assert "captured" not in words(grid())


def test_close_times_are_told_as_undecided():
    rows = [row(), row(device="cuda:0", step_s=0.0101)]
    assert advise(rows).choices[0].undecided


def test_deadline_verdict_is_the_largest_call_whose_p99_is_in_time():
    rows = [call(rows=1), call(rows=64, p99_s=0.9), call(rows=512, step_s=0.8, p99_s=1.2)]
    (verdict,) = advise(rows, deadline_s=1.0).verdicts
    assert (verdict.largest_rows, verdict.at_least) == (64, False)
    assert "cpu (f32) answers calls with 64 samples of 50" in words(rows, deadline_s=1.0)


def test_deadline_that_every_call_meets_is_a_lower_bound_unless_larger_ones_were_tried():
    rows = [call(rows=1), call(rows=64)]
    assert advise(rows, deadline_s=1.0).verdicts[0].at_least
    rows.append(call(rows=4096, p99_s=0.9, notes=("the largest call within 1 s",)))
    verdict = advise(rows, deadline_s=1.0).verdicts[0]
    assert (verdict.largest_rows, verdict.at_least) == (4096, False)


def test_deadline_that_nothing_meets_is_told():
    assert "does not answer one sample" in words([call(p99_s=2.0)], deadline_s=1.0)


def test_no_rows_give_no_advice():
    assert advise([]).words == ()
