"""The commands `reparto search` and `reparto predict`."""

import csv
import dataclasses
import io
import json
import random

import pytest

from reparto.cli import _parser, main
from reparto.cli._search_board import bill_text, result_lines, row_text, size_text
from reparto.cli._search_request import folder_of, ignored_when_resumed, request_of
from reparto.cli._search_screen import SearchScreen, asked_lines, number_text, settings_text
from reparto.errors import UsageError
from reparto.spec import (
    Bill,
    Candidate,
    Evaluation,
    FoundModel,
    SearchColumn,
    SearchRequest,
    SearchResult,
    TableFacts,
    WorkerBill,
)


def parsed(*words):
    return _parser(["search"]).parse_args(["search", *words])


def request(*words):
    return request_of(parsed(*words))


# ------------------------------------------------------------------------ what is asked


def test_options_become_the_request():
    found = request(
        *"houses.csv --target price --techniques lightgbm,random-forest --time 10m".split(),
        *"--trials 9".split(),
        *"--cost 2 --price 0.40/h --workers 3 --min-workers 1 --threads 2 --folds 4".split(),
        *"--groups street --time-column sold --rows 100 --test later.csv --no-ensemble".split(),
        *"--candidate-time 30s --memory 2GiB --seed 7 --search random --metric mae".split(),
    )
    assert found == SearchRequest(
        data="houses.csv",
        target="price",
        techniques=("lightgbm", "random-forest"),
        time_s=600.0,
        trials=9,
        cost=2.0,
        price_per_hour=0.4,
        max_workers=3,
        min_workers=1,
        threads=2,
        folds=4,
        groups="street",
        time="sold",
        rows=100,
        test="later.csv",
        ensemble=False,
        candidate_s=30.0,
        memory_bytes=2**31,
        seed=7,
        search="random",
        metric="mae",
    )


def test_nothing_said_is_the_default():
    assert request("houses.csv") == SearchRequest(data="houses.csv")


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("svm.c=0.1,1,10", "c", (0.1, 1, 10)),
        ("svm.kernel=rbf,linear", "kernel", ("rbf", "linear")),
        ("svm.c=.01..100:log", "c", {"low": 0.01, "high": 100, "log": True}),
        ("svm.c=1..9", "c", {"low": 1, "high": 9}),
        ("svm.layers=[8,4],[16]", "layers", ((8, 4), (16,))),
        ("svm.shrinking=true,False", "shrinking", (True, False)),
        ("svm.degree=none,3", "degree", ("none", 3)),
        ("svm.gamma=1e-3", "gamma", (0.001,)),
        ("svm.c=-1..1", "c", {"low": -1, "high": 1}),
    ],
)
def test_values_of_a_setting_are_read(text, name, values):
    assert request("a.csv", "--set", text).spaces == {"svm": {name: values}}


def test_domain_may_leave_it_open_how_many_classes_there_are():
    assert request("a.csv", "--domain", "classification").domain == "classification"


def test_setting_needs_no_technique_where_there_is_one_only():
    found = request("a.csv", "--techniques", "svm", "--set", "c=1,2")
    assert found.spaces == {"svm": {"c": (1, 2)}}
    with pytest.raises(UsageError, match="of which technique"):
        request("a.csv", "--set", "c=1,2")


def test_last_word_on_a_setting_counts_however_it_is_spelled(tmp_path):
    (tmp_path / "space.toml").write_text("[random-forest]\nnumTrees = [1]\nmax_depth = [3]\n")
    words = ["--space", str(tmp_path / "space.toml"), "--set", "random-forest.num_trees=2,3"]
    assert request("a.csv", *words).spaces == {
        "random-forest": {"num_trees": (2, 3), "max_depth": [3]}
    }


def test_script_has_arguments_and_a_space(tmp_path):
    (tmp_path / "space.toml").write_text("lr = {low = 1e-4, high = 1.0, log = true}\n")
    words = ["--script", "train.py", "--space", str(tmp_path / "space.toml")]
    found = request(*words, "--set", "optim.kind=sgd", "--maximize", "--", "--epochs", "3")
    assert (found.script, found.script_args) == ("train.py", ("--epochs", "3"))
    assert found.maximize
    assert found.spaces["script"]["optim.kind"] == ("sgd",)
    assert found.spaces["script"]["lr"]["log"]


def test_options_have_the_last_word_over_a_request(tmp_path):
    path = tmp_path / "request.json"
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    path.write_text('{"data": "a.csv", "target": "y", "trials": 5, "folds": 3}')
    found = request(str(path), "--trials", "2", "--seed", "4")
    assert (found.trials, found.seed, found.folds, found.target) == (2, 4, 3, "y")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.csv", "b.csv"], "b.csv is the second thing"),
        (["a.csv", "--min-workers", "3", "--workers", "2"], "at most 2"),
        (["a.csv", "--time", "0s"], "0 s is no time"),
        (["a.csv", "--time", "soon"], "'soon'"),
        (["a.csv", "--set", "svm.c"], "no values"),
        (["a.csv", "--memory", "much"], "'much'"),
        (["a.csv", "--cost", "2"], "nobody says what a worker costs"),
        (["hdfs://host/a.csv"], "is not on this machine"),
        (["a.csv", "--maximize"], "--maximize says nothing where a table is searched"),
        (["a.csv", "--script-workers", "auto"], "--script-workers says nothing where a table"),
        (["--script", "a.py", "--target", "y"], "--target says nothing where a script is"),
        (["--script", "a.py", "--time-column", "y"], "--time-column says nothing where a script"),
        (["a.csv", "--address", "auto"], "--address auto is of a cluster"),
        (["a.py"], "a.py is a script, and no table"),
        (["a.csv", "--domain", "function"], "a function has no data, such as a.csv"),
    ],
)
def test_words_that_contradict_each_other_are_told(words, said):
    with pytest.raises(UsageError, match=said):
        request(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--price", "cheap"], "cheap is no price"),
        (["--price", "2/week"], "2/week is no price"),
        (["--cost", "-1"], "not above 0"),
        (["--workers", "0"], "not at least 1"),
        (["--search", "luck"], "invalid choice"),
    ],
)
def test_words_that_are_no_values_are_told(words, said, capsys):
    with pytest.raises(SystemExit):
        parsed("a.csv", *words)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["data/houses.csv"], "houses-search"),
        (["--script", "train.py"], "train-search"),
        (["a.csv", "--out", "here"], "here"),
        (["--domain", "function"], "function-search"),
    ],
)
def test_folder_is_named_after_what_is_searched(words, folder):
    assert str(folder_of(parsed(*words))) == folder


def test_limits_prices_and_the_way_to_the_storage_count_when_a_search_goes_on():
    words = "--resume --cost 2 --price 0.40/h --storage postgresql://me:word@host/db --seed 3"
    assert ignored_when_resumed(parsed(*words.split())) == ["--seed"]
    assert ignored_when_resumed(parsed("--resume", "--no-ensemble", "--maximize")) == [
        "--no-ensemble",
        "--maximize",
    ]


def test_going_on_needs_to_know_with_what():
    with pytest.raises(UsageError, match="which search"):
        folder_of(parsed("--resume"))


# ------------------------------------------------------------------------ what is shown

FACTS = TableFacts(
    path="flats.csv",
    format="csv",
    num_rows=90,
    num_rows_in_file=100,
    columns=(
        SearchColumn(name="area"),
        SearchColumn(
            name="district", kind="category", levels=("a", "b"), num_missing=3, why="few words"
        ),
    ),
    target="kind",
    domain="binary",
    classes=("no", "yes"),
    class_counts=(60, 30),
)
WON = Evaluation(
    candidate=Candidate(number=2, technique="svm", settings={"c": 0.123456, "kernel": "rbf"}),
    status="done",
    score=0.91,
    spread=0.02,
    scores={"matthews": 0.91, "accuracy": 0.95},
    busy_s=1.5,
    size_bytes=12_345,
    predict_row_s=2.5e-6,
)
LOST = Evaluation(
    candidate=Candidate(number=1, technique="tree", settings={"depth": 3}),
    status="failed",
    failure="ValueError: no such depth\nmore of it",
    traceback="…",
)
RESULT = SearchResult(
    request=SearchRequest(data="flats.csv"),
    metric="matthews",
    facts=FACTS,
    num_folds=5,
    evaluations=(LOST, WON),
    best=2,
    model=FoundModel(
        folder="model", candidate=WON.candidate, test_scores={"accuracy": 0.93}, size_bytes=2_000
    ),
    baseline=0.0,
    bill=Bill(
        workers=(WorkerBill(worker=0),), price_per_hour=0.4, busy_s=9.0, paid_s=10.0, cost=0.00111
    ),
    took_s=12.0,
    ended="time",
    command="reparto search again.json",
    notes=("seen before", "new to you"),
)


def screen_of(is_terminal=False):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    return SearchScreen(stream), stream


def test_what_was_read_is_told_with_the_reasons():
    screen, stream = screen_of()
    screen.read(FACTS, ("svm", "tree"), "5 stratified folds")
    told = stream.getvalue()
    assert "flats.csv: csv, 90 rows of 100 × 2 columns (1 number, 1 category)" in told
    assert "district: category of 2 levels, 3 missing (few words)" in told
    assert "kind: binary, 2 classes: no 60 · yes 30" in told
    assert "5 stratified folds" in told and "2 techniques: svm, tree" in told


def test_new_best_is_told_once_and_the_others_are_counted():
    screen, stream = screen_of()
    screen.evaluated(WON, WON)
    screen.evaluated(dataclasses.replace(WON, score=0.5), WON)
    assert stream.getvalue().count("best") == 1
    assert "0.91 ± 0.02  #2 svm  c=0.1235 kernel=rbf" in stream.getvalue()


def test_failures_are_told_until_they_are_many():
    screen, stream = screen_of()
    for _ in range(5):
        screen.evaluated(LOST, None)
    told = stream.getvalue()
    assert told.count("ValueError: no such depth") == 2
    assert told.count("more of tree have failed") == 1


def test_live_line_is_drawn_on_a_terminal_and_taken_away_before_a_line_that_stays(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    screen, stream = screen_of(is_terminal=True)
    screen.evaluated(WON, WON)
    screen._next_s = 0.0
    screen.working(1, 2, 30.0)
    assert "30 s left · 1 of 2 workers busy · 1 candidate: 1 done · best 0.91 (svm)" in (
        stream.getvalue()
    )
    screen.note("this")
    assert stream.getvalue().endswith("\r\033[K  note     this\n")


def test_board_has_scores_time_size_and_the_constant_answer(tmp_path):
    (tmp_path / "report.html").write_text("")
    told = "\n".join(result_lines(RESULT, tmp_path, ["seen before"]))
    assert "2 candidates: 1 done, 1 failed · 12 s · the time is over" in told
    assert "by matthews (higher is better, mean of 5 folds)" in told
    assert "0.91" in told and "± 0.02" in told and "#2 svm" in told
    assert "1.5 s" in told and "12.3 kB" in told and "2.5 µs" in told
    assert "(best constant answer)" in told
    assert "accuracy 0.93  (rows that nobody had seen)" in told
    assert "reparto predict" in told and "report.html" in told
    assert "#1 tree depth=3: ValueError: no such depth" in told
    assert "new to you" in told and "seen before" not in told
    assert told.endswith("again: reparto search again.json")


def test_chosen_one_is_on_the_board_wherever_its_place_is(tmp_path):
    others = [
        dataclasses.replace(WON, candidate=Candidate(number=it, technique="tree"), score=0.95)
        for it in range(10, 30)
    ]
    lines = result_lines(dataclasses.replace(RESULT, evaluations=(*others, WON)), tmp_path)
    assert any(line.startswith("  21") and "#2 svm" in line for line in lines)
    assert "  … and 10 more" in lines


def test_board_says_so_where_nothing_was_learned(tmp_path):
    told = "\n".join(result_lines(dataclasses.replace(RESULT, baseline=0.92), tmp_path))
    assert "no better than the best constant answer" in told
    assert "constant answer:" not in "\n".join(result_lines(RESULT, tmp_path))


def test_board_says_so_where_nothing_was_found(tmp_path):
    result = dataclasses.replace(RESULT, evaluations=(LOST,), best=None, model=None, command="")
    told = "\n".join(result_lines(result, tmp_path))
    assert "none: no candidate was done" in told and "by matthews" not in told


def test_quantities_are_written_for_people():
    assert [size_text(it) for it in (0, 12, 1234, 5e6, 2e9)] == [
        "",
        "12 B",
        "1.23 kB",
        "5 MB",
        "2 GB",
    ]
    assert [row_text(it) for it in (0, 2e-6, 3e-3, 2)] == ["", "2 µs", "3 ms", "2 s"]
    assert "1 worker held for 10.0 s in all, busy for 9.0 s (90%)" in bill_text(RESULT.bill)
    one = WorkerBill(worker=0, released_s=10.0)
    two = WorkerBill(worker=1, acquired_s=10.0, released_s=12.0)
    later = dataclasses.replace(RESULT.bill, workers=(one, two))
    assert "2 workers, 1 at once, held for" in bill_text(later)
    beside = dataclasses.replace(later, workers=(one, dataclasses.replace(two, acquired_s=9.0)))
    assert "2 workers, 2 at once, held for" in bill_text(beside)
    assert "at 0.4 an hour: 0.00111" in bill_text(RESULT.bill)
    numbers = [number_text(it) for it in (0.97123456, 100190.4, 1e-7, -54321.9)]
    assert numbers == ["0.97123", "100190", "1e-07", "-54322"]
    assert number_text(3519.2, 2) == "3500"
    assert settings_text({"members": [[3, 0.75], [1, 0.25]]}) == "#3 75%, #1 25%"
    assert settings_text({"layers": (8, 4), "rate": 1e-5}) == "layers=[8,4] rate=1e-05"


def test_what_is_searched_is_told_where_there_is_no_table():
    spaces = {"lr": {"low": 1e-3, "high": 1.0, "log": True}, "batch": (8, 16)}
    found = SearchRequest(script="train.py", script_args=("-q",), spaces={"script": spaces})
    assert [line.strip() for line in asked_lines(found)] == [
        "searched train.py -q",
        "lr: 0.001..1:log",
        "batch: 8, 16",
    ]
    assert asked_lines(SearchRequest(data="a.csv")) == []


def test_columns_of_the_board_that_would_be_empty_are_left_out(tmp_path):
    bare = dataclasses.replace(WON, spread=None, size_bytes=0, predict_row_s=0.0, notes=("this",))
    result = dataclasses.replace(RESULT, evaluations=(bare,), notes=("this",), baseline=None)
    lines = result_lines(result, tmp_path)
    head = next(line for line in lines if "technique" in line)
    assert head.split() == ["matthews", "technique", "time", "settings"]
    assert sum("this" in line for line in lines) == 1


# ------------------------------------------------------------------------------- whole


def test_schema_is_printed(capsys):
    assert main(["search", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["anyOf"][0]["required"] == ["domain", "methods"]


def test_nothing_to_search_is_bad_usage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["search"]) == 2
    assert "nothing to search" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_faults_of_a_request_are_told_and_nothing_is_left_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "request.json").write_text('{"domain": "clustring", "methods": []}')
    assert main(["search", "request.json"]) == 2
    told = capsys.readouterr().err
    assert "request.json: domain: must be one of" in told and "did you mean clustering?" in told
    assert "request.json: methods: must be a non-empty list (was [])" in told
    assert [one.name for one in tmp_path.iterdir()] == ["request.json"]


def test_there_has_to_be_a_search_to_go_on_with(tmp_path, capsys):
    assert main(["search", "--resume", "--out", str(tmp_path / "none")]) == 2
    assert "holds no search to go on with" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def interrupted(*_, **__):
    return dataclasses.replace(RESULT, ended="interrupted")


def test_interrupted_search_shows_the_best_and_how_to_go_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("reparto.cli._search._search", interrupted)
    assert main(["search", "flats.csv", "--out", str(tmp_path)]) == 130
    shown = capsys.readouterr()
    assert "#2 svm" in shown.out
    assert f"`reparto search --resume --out {tmp_path}` goes on" in shown.err


def test_search_without_a_best_one_fails(tmp_path, monkeypatch, capsys):
    nothing = dataclasses.replace(RESULT, best=None, model=None, evaluations=(LOST,))
    monkeypatch.setattr("reparto.cli._search._search", lambda *_, **__: nothing)
    assert main(["search", "flats.csv", "--out", str(tmp_path), "--json", "-"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["best"] is None
    assert "no candidate was done" in shown.err


@pytest.fixture(scope="module")
def flats(tmp_path_factory):
    """A table, and what was found for it: a model of classes."""
    folder = tmp_path_factory.mktemp("flats")
    source = random.Random(3)
    with open(folder / "flats.csv", "w", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["area", "district", "dear"])
        for _ in range(90):
            area, district = source.randint(20, 120), source.choice(["hills", "harbour"])
            is_dear = area * (1.5 if district == "hills" else 1.0) + source.gauss(0, 8) > 80
            rows.writerow([area, district, "yes" if is_dear else "no"])
    words = "--techniques logistic-regression --trials 2 --folds 3 --seed 1 --no-ensemble".split()
    status = main(["search", str(folder / "flats.csv"), "--out", str(folder / "found"), *words])
    assert status == 0
    return folder


def test_found_model_says_what_rows_are_and_how_good_that_is(flats, capsys):
    assert main(["predict", str(flats / "found"), str(flats / "flats.csv")]) == 0
    shown = capsys.readouterr()
    head, *rows = csv.reader(shown.out.splitlines())
    assert head == ["predicted dear", "probability of no", "probability of yes"]
    assert len(rows) == 90 and {row[0] for row in rows} == {"no", "yes"}
    for said, no, yes in rows:
        assert float(no) + float(yes) == pytest.approx(1.0, abs=1e-6)
        assert (said == "yes") == (float(yes) > float(no))
    accuracy = float(shown.err.split("accuracy ")[1].split()[0])
    assert 0.8 < accuracy <= 1.0


def test_rows_without_the_target_are_foretold_all_the_same(flats, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("district,area,more\nhills,110,x\nharbour,25,\nmoon,,\n")
    out = tmp_path / "said.csv"
    words = [str(flats / "found" / "model"), str(tmp_path / "new.csv"), "--out", str(out)]
    assert main(["predict", *words, "--json", str(tmp_path / "said.json")]) == 0
    assert [row[0] for row in csv.reader(out.open())][:3] == ["predicted dear", "yes", "no"]
    assert "no scores: " in capsys.readouterr().err
    document = json.loads((tmp_path / "said.json").read_text())
    assert (document["num_rows"], document["scores"]) == (3, {})
    assert "predictions" not in document


def test_values_that_cannot_be_read_or_were_never_seen_are_told(flats, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("district,area\nmoon,large\nmars,small\nhills,none\n")
    words = ["predict", str(flats / "found"), str(tmp_path / "new.csv"), "--json", "-"]
    assert main(words) == 0
    shown = capsys.readouterr()
    (note,) = json.loads(shown.out)["notes"]
    assert note.endswith("'area' in 3 of 3 rows, 'district' in 2 of 3 rows")
    assert f"note {note}" in shown.err
    assert main(["predict", str(flats / "found"), str(flats / "flats.csv"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []


def test_predictions_are_in_the_json_where_nothing_else_holds_them(flats, capsys):
    assert main(["predict", str(flats / "found"), str(flats / "flats.csv"), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["predictions"]) == 90
    assert document["predictions"][0].keys() >= {"predicted dear", "probability of yes"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["found", "other.csv"], "lacks 2 of 2 columns"),
        (["none", "flats.csv"], "there is no model.json"),
        (["found", "none.csv"], "there is no file"),
        (["found", "bare.csv"], "bare.csv has no rows"),
        (["found", "flats.csv", "--out", "none/said.csv"], "No such file"),
    ],
)
def test_what_cannot_be_foretold_is_told(flats, monkeypatch, capsys, words, said):
    monkeypatch.chdir(flats)
    (flats / "other.csv").write_text("a,b\n1,2\n3,4\n")
    (flats / "bare.csv").write_text("area;district\n")
    assert main(["predict", *words]) == 2
    assert said in capsys.readouterr().err


def test_command_that_is_printed_finds_the_same_again(flats, monkeypatch, capsys):
    found = json.loads((flats / "found" / "search.json").read_text())
    monkeypatch.chdir(flats.parent)
    words = found["command"].split()
    assert words[:2] == ["reparto", "search"]
    again = flats / "again"
    assert main(["search", str(flats / "found" / "again.json"), "--out", str(again)]) == 0
    capsys.readouterr()
    best = [
        next(it for it in one["evaluations"] if it["candidate"]["number"] == one["best"])
        for one in (found, json.loads((again / "search.json").read_text()))
    ]
    assert best[0]["score"] == best[1]["score"]


def test_search_goes_on_where_it_ended(flats, capsys):
    words = ["search", "--resume", "--out", str(flats / "found"), "--trials", "3", "--folds", "9"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "--folds left out" in shown.err
    assert "3 candidates" in shown.out and "mean of 3 folds" in shown.out


def test_other_data_are_not_silently_left_out_when_a_search_goes_on(flats, tmp_path, capsys):
    other = tmp_path / "other.csv"
    other.write_bytes((flats / "flats.csv").read_bytes())
    words = ["search", str(other), "--resume", "--out", str(flats / "found"), "--trials", "4"]
    assert main(words) == 2
    assert f"and {other} is named" in capsys.readouterr().err
