"""The table, the picture and the page, of runs that nobody has made."""

import dataclasses
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from reparto._pages import _drawing
from reparto.errors import MissingExtraError, UsageError
from reparto.spec import Comparison, from_json, from_plain, to_json
from reparto.sweep import _plots, _table, header, in_words, prepare, rows, write
from tests.sweep.synthetic import comparison, diverged, failed, run

UNUSUAL = comparison(run("single"), failed(), diverged(), run("all-reduce $x$ <b>"))
TARGET = comparison(run(target=0.5), run("gossip", step_bytes=1e3), target=0.5)


@pytest.fixture(scope="module", params=[TARGET, UNUSUAL], ids=["target", "unusual"])
def written(request, tmp_path_factory):
    """A comparison, and the files that show it: drawing takes a while."""
    return request.param, write(request.param, tmp_path_factory.mktemp("report"))


def test_table_has_the_runs_in_their_order():
    found = rows(comparison())
    assert [row[0] for row in found] == ["single", "all-reduce", "local-sgd sync_every=8"]
    assert {len(row) for row in found} == {len(header())}
    single = dict(zip(header(), found[0], strict=True))
    assert (single["sent"], single["samples"], single["exact"]) == ("0 B", "400", "yes")
    assert (single["samples/s"], single["waiting"]) == ("800", "25 %")
    assert dict(zip(header(), found[2], strict=True))["sent"] == "50.0 kB"


def test_time_counts_from_the_end_of_the_first_step():
    assert dict(zip(header(), rows(comparison())[0], strict=True))["time"] == "0.490 s"


def test_with_a_target_the_table_tells_what_it_took_to_reach_it():
    near = run("gossip", target=0.5, step_bytes=10.0)
    made = comparison(near, run("single", num_steps=3), failed(), target=0.5)
    first, second, third = (dict(zip(header(), row, strict=True)) for row in rows(made))
    assert near.reached.step == 14
    assert (first["steps"], first["samples"], first["sent"]) == ("14", "112", "140 B")
    assert (first["end"], first["time"]) == ("at the target", "0.130 s")
    assert (second["time"], second["samples"]) == ("not reached", "–")
    assert third["end"] == "failed: ValueError"


def test_words_name_the_fastest_and_of_those_that_talk_the_one_with_the_fewest_bytes():
    made = comparison(
        run("single", target=0.5, step_bytes=0.0, step_s=0.02),
        run("all-reduce", target=0.5, step_s=0.01),
        run("diloco", target=0.5, step_s=0.03, step_bytes=10.0),
        target=0.5,
    )
    assert in_words(made) == (
        "all-reduce reached 0.5 first, after 0.130 s; "
        "diloco with the fewest bytes, 140 B a worker."
    )
    assert in_words(comparison()) == ""


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 B"), (12, "12 B"), (999.7, "1.00 kB"), (4.2e7, "42.0 MB")]
)
def test_bytes_are_told_with_three_figures(number, told):
    assert _table.size(number) == told


@pytest.mark.parametrize(
    ("number", "told"),
    [(0.0001, "0 s"), (0.0123, "0.012 s"), (9.999, "10.0 s"), (125, "2:05 min")],
)
def test_durations_can_be_compared(number, told):
    assert _table.seconds(number) == told


class Reader(HTMLParser):
    """Whether tags are closed as they were opened, and what they say."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_page_is_whole_and_needs_nothing_from_elsewhere(written):
    made, (path, _, _) = written
    text = path.read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert "http:" not in text and "https:" not in text and "//" not in text
    assert not re.search(r"<(script|link|img|iframe)\b", text)
    assert text.count("<svg") == len(_plots.PLOTS) == 4
    assert "mathdefault" not in text  # ticks of logarithmic axes are plain numbers
    shown = "".join(reader.text)
    for cells in rows(made):
        assert all(cell in shown for cell in cells)


def test_page_is_readable_in_the_dark(written):
    text = written[1][0].read_text()
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert _drawing._INK not in text


def test_words_of_scripts_and_failures_are_no_markup(written):
    made, (path, _, _) = written
    text = path.read_text()
    assert "&lt;script&gt;" in text
    assert "a &amp; b" in text
    assert ("&lt;no&gt; such thing" in text) == (made is UNUSUAL)


def test_each_strategy_has_one_colour_in_all_plots(written):
    made, (path, _, _) = written
    used = {_drawing.colour_of(index) for index in range(len(made.runs))}
    for drawn in path.read_text().split("<svg")[1:]:
        shown = {one for one in _drawing.COLOURS if one in drawn.partition("</svg>")[0]}
        assert shown == used if made is TARGET else shown <= used  # some have no losses


def test_picture_can_be_read(written):
    from PIL import Image

    with Image.open(written[1][1]) as image:
        image.load()
        assert image.format == "PNG"
        assert min(image.size) > 800


def test_numbers_are_json_to_everybody_and_come_back(written):
    made, (_, _, path) = written
    found = json.loads(
        path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON")
    )
    back = from_plain(Comparison, found)
    assert [one.label for one in back.runs] == [one.label for one in made.runs]
    if made is TARGET:
        assert back == made == from_json(Comparison, to_json(made))
    else:
        assert back.runs[2].curve[1].trend is None


def test_bytes_that_span_decades_are_drawn_on_a_logarithmic_axis():
    def scale_of(made):
        from matplotlib.figure import Figure

        axes = Figure().subplots()
        _plots.draw_bytes(axes, made)
        return axes.get_xscale()

    assert scale_of(comparison()) == "log"
    assert scale_of(comparison(run(), run("gossip", step_bytes=2e6))) == "linear"


def test_samples_that_are_not_known_are_not_drawn():
    curve = tuple(dataclasses.replace(point, samples=0) for point in run().curve)
    assert "is not known" in _plots.svg(comparison(run(curve=curve)), "samples")


def test_settings_of_matplotlib_are_as_they_were():
    import matplotlib

    before = dict(matplotlib.rcParams)
    _plots.svg(comparison(run()), "bytes")
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or matplotlib.pyplot.get_fignums() == []


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"reparto\[compare\]"):
        prepare(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        prepare(tmp_path / "file" / "out")
