"""Which plan is chosen, and what is said about it, of predictions that nobody has measured."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reparto.errors import UsageError
from reparto.plan import choose, rate_in_words, times
from reparto.plan._choose import DOUBT, MARGIN
from reparto.spec import Link, Wish
from tests.plan.made import alone, links, survey, unknown, way

RELAXED = Wish(relaxed=True)


def chosen(*ways, wish=None, there=None):
    forecast = choose(there or survey(), ways, wish or Wish())
    best = forecast.best
    assert forecast.predictions[forecast.chosen] is best
    return best.label, best.num_workers


def why(*ways, wish=None, there=None):
    return choose(there or survey(), ways, wish or Wish()).why


# Without wishes


def test_one_machine_is_kept_where_all_others_are_slower():
    assert chosen(alone(), way(step_s=0.26), way("diloco", 4, 0.01)) == ("single", 1)


def test_one_machine_is_left_where_several_are_faster():
    assert chosen(alone(), way(num_workers=2, step_s=0.06), way(step_s=0.04)) == ("all-reduce", 4)


@pytest.mark.parametrize(
    ("step_s", "taken"), [(0.1 / 1.03, 1), (0.1 / 1.029, 1), (0.1 / 1.031, 4)]
)
def test_several_workers_that_were_tried_must_win_by_more_than_three_per_cent(step_s, taken):
    tried = way(step_s=step_s, total_s=10300 * step_s, is_measured=True)
    assert chosen(alone(total_s=1030.0), tried)[1] == taken


@pytest.mark.parametrize(("step_s", "taken"), [(0.1 / 1.149, 1), (0.1 / 1.151, 4)])
def test_several_workers_that_were_not_tried_must_win_by_more_than_predictions_err(step_s, taken):
    assert chosen(alone(), way(step_s=step_s))[1] == taken


def test_what_was_tried_is_not_passed_over_for_what_is_faster_by_prediction_only():
    tried = way(step_s=0.1 / 1.10, is_measured=True)
    assert chosen(alone(), tried, way("sharded", step_s=0.1 / 1.12)) == ("all-reduce", 4)


def test_what_was_tried_does_not_make_up_for_the_doubt_in_more_workers():
    tried = way(num_workers=2, step_s=0.1 / 1.04, is_measured=True)
    assert chosen(alone(), tried, way(step_s=0.1 / 1.10)) == ("all-reduce", 2)


def test_a_gain_that_is_in_doubt_is_told():
    told = why(alone(), way(num_workers=2, step_s=0.1 / 1.13))
    assert "2 workers over 94 Mbit/s would be 1.13× faster with all-reduce" in told
    assert "by no more than a prediction may be off; staying on one machine" in told


def test_the_smaller_is_taken_where_the_larger_is_hardly_faster():
    two = way(num_workers=2, step_s=0.05)
    assert chosen(alone(), way(num_workers=4, step_s=0.049), two)[1] == 2
    assert chosen(alone(), two, way(num_workers=4, step_s=0.048))[1] == 4


def test_the_exact_is_taken_where_the_relaxed_is_hardly_faster():
    ways = alone(), way("local-sgd", 2, 0.049), way("all-reduce", 4, 0.05)
    assert chosen(*ways, wish=RELAXED) == ("all-reduce", 4)
    ways = alone(), way("local-sgd", 2, 0.048), way("all-reduce", 4, 0.05)
    assert chosen(*ways, wish=RELAXED) == ("local-sgd", 2)


def test_small_gains_that_follow_one_another_do_not_hide_a_large_one():
    steps = {1: 0.1, 2: 0.098, 3: 0.096, 4: 0.094}
    tried = [way(num_workers=n, step_s=s, is_measured=True) for n, s in steps.items() if n > 1]
    assert chosen(alone(), *tried)[1] == 3  # the first that is 3 % better than one machine


def test_of_equals_the_first_is_taken():
    ways = alone(), way("parameter-server", step_s=0.05), way("all-reduce", step_s=0.05)
    assert chosen(*ways) == ("parameter-server", 4)
    assert chosen(alone(), way("all-reduce", step_s=0.1)) == ("single", 1)


def test_the_whole_script_counts_and_not_the_step():
    """What takes long to start does not pay for a short script."""
    assert chosen(alone(total_s=60.0), way(step_s=0.03, total_s=80.0)) == ("single", 1)


def test_throughput_counts_where_the_whole_script_is_not_known():
    ways = unknown(alone(), way(step_s=0.12, samples_a_step=256))
    assert chosen(*ways) == ("all-reduce", 4)
    known = alone(total_s=1.0)  # of one alone it says nothing
    assert chosen(known, ways[1]) == ("all-reduce", 4)


def test_relaxed_ones_are_taken_only_by_consent():
    ways = alone(), way(step_s=0.05), way("diloco", 4, 0.02)
    assert chosen(*ways) == ("all-reduce", 4)
    assert chosen(*ways, wish=RELAXED) == ("diloco", 4)


def test_one_machine_has_to_be_among_them():
    with pytest.raises(ValueError, match="comes first"):
        choose(survey(), [], Wish())
    with pytest.raises(ValueError, match="comes first"):
        choose(survey(), [way()], Wish())


def test_what_was_assumed_is_kept():
    assert choose(survey(), [alone()], Wish(), "rate=1gbit").what_if == "rate=1gbit"


kinds = st.sampled_from(["all-reduce", "parameter-server", "diloco", "gossip"])
some_ways = st.lists(st.builds(way, kinds, st.integers(2, 4), st.floats(1e-3, 10.0)), max_size=12)


@given(some_ways, st.booleans(), st.booleans())
def test_what_is_chosen_is_one_machine_or_clearly_faster(ways, relaxed, is_known):
    offered = (alone(), *ways) if is_known else unknown(alone(), *ways)
    best = choose(survey(), offered, Wish(relaxed=relaxed)).best
    assert best.num_workers == 1 or 0.1 / best.step_s > DOUBT
    assert best.exact or relaxed
    allowed = [one for one in offered if one.exact or relaxed]
    most = DOUBT if best.num_workers == 1 else MARGIN
    assert best.step_s <= most * min(one.step_s for one in allowed)


@given(some_ways, st.randoms(use_true_random=False))
def test_the_order_of_unequal_ways_does_not_matter(ways, random):
    assume(len({one.step_s for one in ways}) == len(ways))
    mixed = random.sample(ways, len(ways))
    before, after = (choose(survey(), [alone(), *one], RELAXED).best for one in (ways, mixed))
    assert before == after


# Money


PRICES = {"*": 3.6}  # a thousandth a second and host


def test_every_prediction_is_priced():
    found = choose(survey(), [alone(), way(step_s=0.05)], Wish(prices=PRICES)).predictions
    assert [one.price for one in found] == pytest.approx([0.1, 0.2])
    found = choose(survey(), found, Wish()).predictions
    assert [one.price for one in found] == [None, None]


def test_prices_alone_do_not_make_it_the_cheapest():
    assert chosen(alone(), way(step_s=0.05), wish=Wish(prices=PRICES)) == ("all-reduce", 4)


def test_a_price_of_a_host_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="no host 'hots'") as caught:
        choose(survey(2), [alone()], Wish(prices={"hots": 1.0}))
    assert caught.value.remedy == "one of a, b"


SLOW_TO_FAST = alone(), way(num_workers=2, step_s=0.06), way(num_workers=4, step_s=0.04)
# seconds, price: 100 0.10       60 0.12                        40 0.16


@pytest.mark.parametrize(
    ("deadline_s", "taken"), [(1000, 1), (100, 1), (99.9, 2), (60, 2), (59, 4), (40, 4), (39, 4)]
)
def test_a_deadline_takes_the_cheapest_that_is_done_by_then(deadline_s, taken):
    wish = Wish(deadline_s=deadline_s, prices=PRICES)
    assert chosen(*SLOW_TO_FAST, wish=wish)[1] == taken


def test_without_prices_a_deadline_takes_the_fewest_host_hours():
    assert chosen(*SLOW_TO_FAST, wish=Wish(deadline_s=70))[1] == 2
    told = why(*SLOW_TO_FAST, wish=Wish(deadline_s=70))
    assert told.endswith("; the fewest host-hours of all that is done in 1m10s: 1m")


def test_workers_of_one_host_cost_no_more_than_one():
    here = survey(1, placement=("a",) * 4)
    wish = Wish(deadline_s=1000, prices=PRICES)
    assert chosen(*SLOW_TO_FAST, wish=wish, there=here)[1] == 4


def test_of_what_costs_nothing_the_fastest_is_taken():
    assert chosen(*SLOW_TO_FAST, wish=Wish(deadline_s=1000, prices={"*": 0.0}))[1] == 4


def test_a_cheap_slow_plan_may_be_taken_where_there_is_time_for_it():
    """The one machine is dear, two others together are not."""
    there = survey(alone_host="d")
    wish = Wish(deadline_s=1000, prices={"d": 36.0, "*": 0.36})
    assert chosen(alone(), way(num_workers=2, step_s=0.2), wish=wish, there=there)[1] == 2


@pytest.mark.parametrize(
    ("budget", "taken"), [(1, 4), (0.161, 4), (0.159, 2), (0.121, 2), (0.11, 1), (0.05, 1), (0, 1)]
)
def test_a_budget_takes_the_fastest_that_costs_no_more(budget, taken):
    assert chosen(*SLOW_TO_FAST, wish=Wish(budget=budget, prices=PRICES))[1] == taken


def test_a_budget_may_be_spent_to_the_last():
    ways = alone(total_s=7200.0), way(num_workers=2, total_s=3600.0)
    assert chosen(*ways, wish=Wish(budget=2, prices={"a": 0.25, "b": 1.75}))[1] == 2


@pytest.mark.parametrize(
    ("deadline_s", "budget", "taken"),
    [(70, 1, 4), (70, 0.13, 2), (50, 0.13, 2), (1000, 0.11, 1), (10, 0.01, 1)],
)
def test_of_those_that_keep_deadline_and_budget_the_fastest_is_taken(deadline_s, budget, taken):
    wish = Wish(deadline_s=deadline_s, budget=budget, prices=PRICES)
    assert chosen(*SLOW_TO_FAST, wish=wish)[1] == taken


def test_a_deadline_that_only_relaxed_ones_keep_is_missed_without_consent():
    ways = alone(), way(step_s=0.05), way("diloco", 4, 0.02)
    assert chosen(*ways, wish=Wish(deadline_s=30)) == ("all-reduce", 4)
    assert chosen(*ways, wish=Wish(deadline_s=30, relaxed=True)) == ("diloco", 4)


@pytest.mark.parametrize("wish", [Wish(deadline_s=10), Wish(budget=1, prices=PRICES)])
def test_a_wish_about_a_time_that_is_not_known_is_refused(wish):
    with pytest.raises(UsageError, match="not known") as caught:
        choose(survey(), unknown(alone(), way()), wish)
    assert "samples a second" in caught.value.remedy


def test_a_budget_without_prices_is_refused():
    with pytest.raises(UsageError, match="no prices") as caught:
        choose(survey(), [alone()], Wish(budget=5))
    assert "--price" in caught.value.remedy


@given(some_ways, st.floats(1, 1e4), st.floats(0.001, 10), st.booleans())
def test_wishes_are_kept_wherever_they_can_be(ways, deadline_s, budget, relaxed):
    wish = Wish(deadline_s=deadline_s, budget=budget, prices=PRICES, relaxed=relaxed)
    forecast = choose(survey(), [alone(), *ways], wish)
    allowed = [one for one in forecast.predictions if one.exact or relaxed]
    paid = [one for one in allowed if one.price <= budget]
    best = forecast.best
    assert best in (paid or allowed)
    if any(one.total_s <= deadline_s for one in paid):
        assert best.total_s <= deadline_s
    assert ("too dear" in forecast.why) == (best.price > budget)
    assert ("late" in forecast.why) == (best.total_s > deadline_s)


# In words


def test_staying_is_told_with_what_several_would_be_and_what_relaxed_ones_would_gain():
    ways = alone(), way(step_s=0.26), way("gossip", step_s=0.05), way("diloco", step_s=0.1 / 2.4)
    assert why(*ways) == (
        "4 workers over 94 Mbit/s would be 2.6× slower with all-reduce; "
        "staying on one machine; --relaxed allows diloco, predicted 2.4× faster"
    )
    assert why(*ways[:2]) == (
        "4 workers over 94 Mbit/s would be 2.6× slower with all-reduce; staying on one machine"
    )


def test_winning_is_told_with_how_much_is_won():
    ways = alone(), way(step_s=0.1 / 3.1), way("diloco", step_s=0.1 / 3.2)
    assert why(*ways) == "4 workers by all-reduce: 3.1× as fast as one machine"
    more = way("diloco sync_every=64", 2, step_s=0.1 / 4.65)
    assert why(*ways, more) == (
        "4 workers by all-reduce: 3.1× as fast as one machine; "
        "--relaxed allows diloco sync_every=64 with 2 workers, predicted 1.50× faster"
    )


def test_a_relaxed_plan_is_called_relaxed():
    told = why(alone(), way("diloco", 4, 0.05), wish=RELAXED)
    assert told == "4 workers by diloco, relaxed: 2.0× as fast as one machine"


def test_workers_of_one_host_are_held_against_one_process():
    here = survey(1, placement=("a",) * 4)
    assert why(alone(), way(step_s=0.15), there=here) == (
        "4 workers would be 1.50× slower with all-reduce; staying in one process"
    )
    told = why(alone(), way(step_s=0.05), there=here)
    assert told == "4 workers by all-reduce: 2.0× as fast as one process"


@pytest.mark.parametrize(
    ("step_s", "like"),
    [
        (0.1049, "no faster"),
        (0.1, "no faster"),
        (0.098, "only 2 % faster"),
        (0.11, "1.10× slower"),
    ],
)
def test_hardly_slower_is_not_told_as_a_ratio(step_s, like):
    assert f"would be {like} with" in why(alone(), way(step_s=step_s))


def test_the_slowest_link_that_is_used_is_named():
    slow = Link(source="c", target="d", rate_bits_per_s=10e6, latency_s=1e-3)
    cluster = replace(survey().cluster, links=(*links("a", "b", rate=1.2e9), slow))
    there = survey(cluster=cluster)
    assert "4 workers over 10 Mbit/s would" in why(alone(), way(step_s=0.2), there=there)
    two = way(num_workers=2, step_s=0.2)
    assert "2 workers over 1.2 Gbit/s would" in why(alone(), two, there=there)
    assert "2 workers would" in why(alone(), two, there=survey(rate=None))


def test_workers_of_one_host_do_not_talk_over_a_link():
    to_itself = Link(source="a", target="a", rate_bits_per_s=5e9, latency_s=1e-5)
    cluster = replace(survey().cluster, links=(*survey().cluster.links, to_itself))
    there = survey(cluster=cluster, placement=("a", "a", "b", "b"))
    assert "2 workers would" in why(alone(), way(num_workers=2, step_s=0.2), there=there)
    assert "4 workers over 94 Mbit/s would" in why(alone(), way(step_s=0.2), there=there)


def test_with_nothing_to_share_out_over_little_is_told():
    assert why(alone(), there=survey(1)) == "staying in one process"


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"deadline_s": 7200}, "the cheapest that is done in 2h: 1m40s for 0.10"),
        ({"deadline_s": 30}, "nothing is done in 30s: this takes 40s for 0.16, 10s late"),
        ({"budget": 5}, "the fastest for 5.00 or less: 40s for 0.16"),
        ({"budget": 0.05},
         "nothing is to be had for 0.05: this takes 1m40s for 0.10, 0.05 too dear"),
        ({"budget": 5, "deadline_s": 70},
         "the fastest that is done in 1m10s for 5.00 or less: 40s for 0.16"),
        ({"budget": 0.13, "deadline_s": 30},
         "nothing for 0.13 is done in 30s: this takes 1m for 0.12, 30s late"),
        ({"budget": 0.05, "deadline_s": 30},
         "nothing is to be had for 0.05: this takes 1m40s for 0.10, 0.05 too dear and 1m10s late"),
    ],
)  # fmt: skip
def test_wishes_are_told_with_by_how_much_they_are_missed(wish, told):
    assert why(*SLOW_TO_FAST, wish=Wish(**wish, prices=PRICES)).endswith(f"; {told}")


def test_a_faster_plan_that_is_dearer_is_still_told():
    told = why(*SLOW_TO_FAST, wish=Wish(deadline_s=1000, prices=PRICES))
    assert told.startswith("4 workers over 94 Mbit/s would be 2.5× faster with all-reduce; stay")


def test_relaxed_ones_that_are_only_cheaper_are_told_as_such():
    ways = alone(), way("all-reduce", 4, 0.04), way("diloco", 2, 0.045)
    told = why(*ways, wish=Wish(deadline_s=50, prices=PRICES))
    assert told.endswith("; --relaxed allows diloco with 2 workers, predicted 1.78× cheaper")


def test_ratios_and_rates_have_two_or_three_figures():
    assert [times(one) for one in (0.5, 1.25, 2.64, 14.2)] == ["0.50×", "1.25×", "2.6×", "14×"]
    rates = [rate_in_words(one) for one in (256e3, 94.1e6, 999.9e6, 1.234e9, 120e9)]
    assert rates == ["256 kbit/s", "94.1 Mbit/s", "1 Gbit/s", "1.23 Gbit/s", "120 Gbit/s"]
