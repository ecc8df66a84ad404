"""A forecast as text, as plots and as a page, of a script that nobody has measured."""

from dataclasses import replace

import pytest

from reparto._pages import _drawing
from reparto.plan import choose
from reparto.spec import Forecast, Wish, WorkerProfile, from_json
from reparto.sweep import forecast_lines, write_forecast
from reparto.sweep._forecast_plots import (
    MOST_LINES,
    MOST_TIMELINES,
    draw_timelines,
    line_colours,
    timeline_ways,
)
from reparto.sweep._forecast_table import MOST_ROWS, forecast_header, forecast_rows, ranked
from reparto.sweep._survey_table import fact_cells, host_cells, link_cells, slice_cells
from tests.plan.made import ROWS, alone, links, slice_time, survey, unknown, way
from tests.sweep.test_report import Reader

STAYING = (
    alone(),
    way(num_workers=2, step_s=0.14, is_measured=True),
    way(step_s=0.26),
    way("diloco <b>", 2, 0.07),
    way("diloco <b>", 4, 0.05),
)


def forecast(*ways, wish=None, there=None, what_if=""):
    return choose(there or survey(), ways or STAYING, wish or Wish(), what_if)


def crowd(number=30):
    """Many relaxed ways that are faster than one machine, which is faster than the exact one."""
    fast = (way(f"gossip {index}", 2, 0.02 + index / 1000) for index in range(number))
    return (alone(), way(step_s=0.2), *fast)


def rows_of(made):
    ways = ranked(made)
    header = forecast_header(made)
    return [dict(zip(header, row, strict=True)) for row in forecast_rows(made, ways)]


# As text


def test_rows_are_the_fastest_first():
    found = rows_of(forecast())
    assert [(row["strategy"], row["workers"]) for row in found] == [
        ("diloco <b>", "4"), ("diloco <b>", "2"), ("single", "1"),
        ("all-reduce", "2"), ("all-reduce", "4"),
    ]  # fmt: skip
    fastest, single = found[0], found[2]
    assert (fastest["step"], fastest["samples/s"], fastest["speed-up"]) == (
        "50.0 ms", "1280", "2.00×",
    )  # fmt: skip
    assert (fastest["training"], fastest["sent a step"]) == ("relaxed", "7.50 MB")
    assert (single["training"], single["sent a step"], single["whole script"]) == (
        "exact", "–", "1m40s",
    )  # fmt: skip
    assert [row[""] for row in found] == ["", "", "", "measured", ""]


def test_what_is_not_known_is_not_made_up():
    ways = unknown(*STAYING)
    found = rows_of(forecast(*(replace(one, peak_bytes=0) for one in ways)))
    assert {row["whole script"] for row in found} == {row["memory"] for row in found} == {"–"}
    assert found[0]["strategy"] == "diloco <b>"  # by samples a second


def test_there_are_prices_only_where_some_were_given():
    assert "price" not in forecast_header(forecast())
    found = rows_of(forecast(wish=Wish(prices={"*": 3.6})))
    assert [row["price"] for row in found] == ["0.20", "0.14", "0.10", "0.28", "1.04"]


def test_the_chosen_row_and_no_other_has_the_arrow():
    lines = forecast_lines(forecast())
    marked = [line.split()[1:3] for line in lines if line.startswith("  →")]
    assert marked == [["single", "1"]]
    assert f"→ {forecast().why}" in lines


def test_of_many_rows_the_fastest_are_shown_and_those_that_words_are_about():
    made = forecast(*crowd())
    lines = forecast_lines(made)
    begin = next(i for i, line in enumerate(lines) if line.startswith("Predicted"))
    table = lines[begin + 2 : lines.index("", begin)]
    assert len(table) == MOST_ROWS + 1
    assert table[-1] == "  12 more are left out"
    assert "single" in table[-3] and "all-reduce" in table[-2]
    assert "gossip 0 " in table[0]


def test_no_row_is_said_to_be_left_out_where_none_is():
    assert not any("left out" in line for line in forecast_lines(forecast()))


def test_what_relaxed_strategies_change_is_told_once():
    lines = forecast_lines(forecast())
    assert lines.count("  diloco <b>: what diloco changes") == 1
    assert lines.count("    quality: what diloco loses, as it was measured") == 1
    assert not any("quality" in line for line in forecast_lines(forecast(*STAYING[:3])))
    silent = replace(STAYING[3], quality="")
    assert "    quality: nothing is known" in forecast_lines(forecast(alone(), silent))


def test_what_was_assumed_and_noted_is_told():
    lines = forecast_lines(forecast(there=survey(notes=("a is slow",)), what_if="rate=1gbit"))
    assert "Assumed instead: rate=1gbit" in lines
    assert lines[-1] == "note: a is slow"
    assert lines[0] == "Measured in 21.0 s: train.py --epochs 3, on CPUs"


def test_the_script_is_told_with_what_is_known_of_it():
    facts = dict(fact_cells(survey(num_steps=None)))
    assert facts == {
        "parameters": "1 250 000",
        "gradients": "5.00 MB a step",
        "batch": "64 rows",
        "memory": "60.0 MB, and 1.00 MB a row",
        "steps": "not known",
    }


def test_small_slices_are_told_beside_the_plain_script():
    _, plain, small, whole = slice_cells(survey())
    assert plain[:3] == ("the plain script", "64", "100 ms")
    assert small == ("one of 4 workers", "16", "32.5 ms", "9.75 ms", "19.5 ms", "3.25 ms", "492")
    assert whole[1:3] == ("64", "100 ms")
    assert len(slice_cells(survey(workers=()))) == 2


def test_what_the_plain_script_does_not_tell_is_not_made_up():
    """It is timed as it is: when its backward pass begins nobody knows, nor of how many rows."""
    dark = replace(survey().alone, rows=0, forward_s=0.09, backward_s=0.0, update_s=0.01)
    plain = slice_cells(survey(alone=dark))[1]
    assert plain == ("the plain script", "64", "100 ms", "–", "–", "10.0 ms", "640")


def test_replicas_that_are_apart_are_told_from_those_that_are_not():
    both = (slice_time(), replace(slice_time(step_s=0.05), apart=True))
    workers = (WorkerProfile(rank=0, host="a", num_workers=1, slices=both[::-1]),)
    names = [row[0] for row in slice_cells(survey(workers=workers))[2:]]
    assert names == ["one worker", "one worker, apart"]


def test_memory_that_was_not_measured_is_told():
    nothing = replace(survey().profile, base_bytes=0)
    assert dict(fact_cells(survey(profile=nothing)))["memory"] == "not measured"


def test_hosts_are_as_fast_as_their_workers_where_most_compute():
    def worker(rank, host, num_workers, step_s):
        return WorkerProfile(
            rank=rank, host=host, num_workers=num_workers, slices=(slice_time(ROWS, step_s),)
        )

    there = survey(
        3,
        placement=("a", "a", "b"),
        workers=(
            worker(0, "a", 1, 0.001),
            *(worker(0, "a", 3, 0.2), worker(1, "a", 3, 0.2), worker(2, "b", 3, 0.2)),
        ),
    )
    assert host_cells(there)[1:] == [
        ("a", "2", "2 cores", "1.00"), ("b", "1", "2 cores", "0.50"), ("c", "0", "2 cores", "–"),
    ]  # fmt: skip


def test_the_two_ways_of_a_link_are_one_row_unless_they_differ():
    assert [row[0] for row in link_cells(survey(2))] == ["link", "a ↔ b"]
    there, back = links("a", "b")
    unlike = replace(survey(2).cluster, links=(there, replace(back, rate_bits_per_s=10e6)))
    assert link_cells(survey(2, cluster=unlike))[1:] == [
        ("a → b", "0.200 ms", "94 Mbit/s"), ("b → a", "0.200 ms", "10 Mbit/s"),
    ]  # fmt: skip
    assert link_cells(survey(2, rate=None)) == []


def test_of_many_links_three_are_told():
    cluster = survey(7).cluster
    slow, *others = cluster.links
    cluster = replace(cluster, links=(replace(slow, rate_bits_per_s=1e6), *others))
    assert len(link_cells(survey(5))) == 11
    found = link_cells(survey(7, cluster=cluster))
    assert [row[0].split(":")[0] for row in found[1:]] == [
        "the slowest of 22", "the median of 22", "the fastest of 22",
    ]  # fmt: skip
    assert found[1][0].endswith("a → b") and found[1][2] == "1 Mbit/s"


# As plots


def test_each_strategy_has_one_timeline_with_the_workers_that_are_best_or_chosen():
    found = [(one.label, one.num_workers) for one in timeline_ways(forecast())]
    assert found == [("diloco <b>", 4), ("single", 1), ("all-reduce", 2)]
    hardly = (alone(), way(num_workers=2, step_s=0.05), way(num_workers=4, step_s=0.049))
    assert [one.num_workers for one in timeline_ways(forecast(*hardly))] == [2, 1]


def test_of_many_strategies_those_that_words_are_about_are_drawn():
    made = forecast(*crowd())
    drawn = [one.label for one in timeline_ways(made)]
    assert len(drawn) == MOST_TIMELINES and drawn[-2:] == ["single", "all-reduce"]
    colours = line_colours(made)
    assert len(colours) == len(set(colours.values())) == MOST_LINES
    assert "all-reduce" in colours and "single" not in colours
    assert _drawing.COLOURS[0] not in colours.values()


def drawn_timelines(made):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    draw_timelines(axes, made)
    return axes


def boxes(axes):
    """Of all that is drawn of steps: left, right, top, bottom."""
    found = [path.get_extents() for bar in axes.collections for path in bar.get_paths()]
    return [(box.x0, box.x1, box.y0, box.y1) for box in found]


def test_what_is_on_the_wire_is_drawn_below_the_computing_that_hides_it():
    axes = drawn_timelines(forecast(alone(), way(step_s=0.04, num_workers=4)))
    computing, wire, waiting = boxes(axes)[:3]
    assert computing[:2] == pytest.approx((0, 25)) and waiting[:2] == pytest.approx((25, 40))
    assert wire[:2] == pytest.approx((12.5, 40))
    assert wire[2] >= computing[3]  # the axis points down
    assert wire[3] - wire[2] < computing[3] - computing[2]
    assert [text.get_text() for text in axes.texts] == ["40.0 ms", "100 ms"]


def test_a_step_that_is_much_longer_is_cut_and_says_how_long_it_is():
    ways = (alone(), way(step_s=0.2), way("sharded", step_s=60.0))
    axes = drawn_timelines(forecast(*ways))
    assert axes.get_xlabel() == "milliseconds"
    assert max(right for _, right, _, _ in boxes(axes)) == pytest.approx(800)
    assert [text.get_text() for text in axes.texts][-1] == "… 60.0 s"


# As a page

FULL = forecast(
    *STAYING,
    there=survey(args=("--name", "<script>"), environment={"hosts": "a & b"}, notes=("<note>",)),
    wish=Wish(prices={"*": 1.0}),
    what_if="rate=<fast>",
)
LITTLE = forecast(*unknown(alone()), there=survey(1, workers=()))


@pytest.fixture(scope="module", params=[FULL, LITTLE], ids=["full", "little"])
def written(request, tmp_path_factory):
    """A forecast, and the files that show it: drawing takes a while."""
    return request.param, write_forecast(request.param, tmp_path_factory.mktemp("forecast"))


def test_page_is_whole_and_needs_nothing_from_elsewhere(written):
    made, (path, _, _) = written
    text = path.read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert "//" not in text
    assert text.count("<svg") == (2 if made is FULL else 1)
    assert "currentColor" in text and _drawing._INK not in text
    shown = "".join(reader.text)
    assert made.why in shown
    for row in rows_of(made):
        assert all(cell in shown for cell in row.values())
    for name, fact in fact_cells(made.survey):
        assert f"{name} {fact}" in shown
    assert ("<note>" in shown and "rate=<fast>" in shown) == (made is FULL)


def test_page_marks_what_was_chosen(written):
    made, (path, _, _) = written
    assert f"<td><strong>→ {made.best.label}</strong></td>" in path.read_text()


def test_picture_can_be_read(written):
    from PIL import Image

    made, (_, path, _) = written
    with Image.open(path) as image:
        image.load()
        width, height = image.size
    assert width > 1000 and height > (900 if made is FULL else 200)


def test_numbers_come_back(written):
    made, (_, _, path) = written
    assert from_json(Forecast, path.read_text()) == made
