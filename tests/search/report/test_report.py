"""The report of a search: what it says, and that it can be written whatever was found."""

import csv
import dataclasses
import io
import json
import math
import re
import time
from html.parser import HTMLParser

import numpy as np
import pytest

from reparto.search._evidence import Evidence
from reparto.search._function_work import branin
from reparto.search._report import write_report
from reparto.search._report._words import meaning_of
from reparto.search._rows import Answer
from reparto.search.metrics import METRICS
from reparto.spec import (
    Candidate,
    Evaluation,
    FoundModel,
    Rung,
    RungScore,
    SearchColumn,
    SearchRequest,
    SearchResult,
    from_plain,
)
from tests.search.report import made

FILES = ("leaderboard.csv", "report.html", "report.md", "search.json")


class Page(HTMLParser):
    """Its tags, closed in order, and its text."""

    VOID = frozenset(("meta", "br", "rect", "circle", "path"))

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.text, self.links = [], [], [], []
        self.titles = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h2", "h3"):
            self.titles.append(data)
        if "style" not in self.open:
            self.text.append(data)


def written(result, evidence, folder):
    """The page, looked through: well-formed, and nothing of it is elsewhere."""
    write_report(result, evidence, folder)
    assert sorted(one.name for one in folder.iterdir()) == sorted(FILES)
    text = (folder / "report.html").read_text()
    page = Page(text)
    assert page.wrong == []
    assert page.open == []
    assert page.links == []
    assert "nan" not in text.replace("not-a-number", "").split("</style>")[-1].lower().split()
    assert '="nan' not in text
    assert "inf " not in text
    json.loads((folder / "search.json").read_text(), parse_constant=pytest.fail)
    return page


def said(page):
    return " ".join(" ".join(page.text).split())


def with_best(result, **changes):
    """The same search, whose best one is changed."""
    every = tuple(
        dataclasses.replace(one, **changes) if one.candidate.number == result.best else one
        for one in result.evaluations
    )
    return dataclasses.replace(result, evaluations=every)


@pytest.mark.parametrize(
    ("domain", "classes", "titles"),
    [
        ("binary", ("no", "<yes>"), {"Confusion matrix", "ROC curve", "Calibration"}),
        ("multiclass", tuple("abcdefg"), {"Confusion matrix", "Calibration", "By class"}),
        ("regression", (), {"Residuals", "Answered against true", "What matters"}),
        ("clustering", (), {"Clusters", "History", "Workers"}),
    ],
)
def test_each_domain_has_its_figures(domain, classes, titles, tmp_path):
    result = made.result(domain, classes=classes)
    page = written(result, made.evidence(domain, len(classes)), tmp_path)
    every = {"History", "Workers", "Leaderboard", "Bill", "Data", "Columns", "Failed candidates"}
    assert titles | every <= set(page.titles)
    assert "reparto predict" in said(page)
    assert result.command in said(page)


def test_what_is_written_is_the_result(tmp_path):
    result = made.result("regression", classes=())
    write_report(result, made.evidence("regression", 0), tmp_path)
    again = from_plain(SearchResult, json.loads((tmp_path / "search.json").read_text()))
    assert again == result


def test_the_leaderboard_holds_every_candidate_and_only_those_that_are_done_have_a_rank(tmp_path):
    result = made.result("regression", classes=())
    write_report(result, Evidence(), tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "leaderboard.csv").read_text())))
    assert len(rows) == len(result.evaluations)
    ranked = [row for row in rows if row["rank"]]
    assert [int(row["rank"]) for row in ranked] == list(range(1, len(ranked) + 1))
    assert [float(row["score"]) for row in ranked] == sorted(float(it["score"]) for it in ranked)
    assert {row["status"] for row in ranked} == {"done"}
    assert all(row["score"] == "" for row in rows if not row["rank"])
    best = result.leaderboard[0]
    assert json.loads(ranked[0]["settings"]) == best.candidate.settings
    assert float(ranked[0]["score"]) == best.score


def test_the_verdict_says_what_is_best_how_good_and_how_sure(tmp_path):
    page = written(made.result(), made.evidence(), tmp_path)
    best = made.result().leaderboard[0]
    text = said(page)
    assert f"The best is {best.candidate.technique} (candidate {best.candidate.number})" in text
    assert f"{best.score:.4f} ± {best.spread:.4f}" in text
    assert "over 5 folds" in text
    assert "The best constant answer, which looks at no row, scores 0.0000" in text
    assert "cannot be told apart" in text
    markdown = (tmp_path / "report.md").read_text()
    assert f"{best.score:.4f} ± {best.spread:.4f}" in markdown


def test_a_candidate_that_is_worse_on_every_fold_can_be_told_apart(tmp_path):
    result = made.result(count=2)
    one, other = result.evaluations

    def at(level, evaluation):
        noise = (0.0, 0.01, -0.01, 0.005, -0.005)
        rungs = tuple(
            RungScore(rung=Rung(fold=fold), score=level + noise[fold]) for fold in range(5)
        )
        return dataclasses.replace(evaluation, rungs=rungs, score=level, spread=0.008)

    near = dataclasses.replace(result, evaluations=(at(0.9, one), at(0.88, other)), best=0)
    assert "cannot be told apart" not in said(written(near, Evidence(), tmp_path))


@pytest.mark.parametrize(
    ("domain", "classes", "words"),
    [
        ("binary", ("no", "yes"), "Matthews correlation: 1 is without a mistake, 0 is no better"),
        ("multiclass", ("a", "b", "c"), "F1: for a class, 1 where all its rows are found"),
        ("regression", (), "RMSE: how far answers are off, in the unit of what is foretold"),
        ("clustering", (), "Silhouette: 1 where groups lie far apart"),
    ],
)
def test_the_metric_is_explained_in_words(domain, classes, words, tmp_path):
    page = written(made.result(domain, classes=classes), Evidence(), tmp_path)
    assert words in said(page)


def test_every_metric_is_explained_and_says_of_which_class_it_is():
    assert all(meaning_of(metric, made.facts()) for metric in METRICS)
    assert "“yes”" in meaning_of("recall", made.facts())
    assert "the mean over the classes" in meaning_of("recall", made.facts(classes=("a", "b", "c")))
    assert meaning_of("objective", made.facts()) == ""


def test_less_than_the_constant_answer_is_said_of_the_metric(tmp_path):
    text = said(written(made.result("regression", classes=()), Evidence(), tmp_path))
    assert re.search(r"RMSE is [\d.]+ % less than with the best constant answer, 77.00\.", text)


def test_what_is_not_there_is_not_spoken_of(tmp_path):
    one, other = (it for it in made.result("regression", classes=()).leaderboard[:2])
    result = made.result("regression", classes=(), num_folds=1, evaluations=(one, other))
    result = dataclasses.replace(result, best=one.candidate.number)
    text = said(written(result, Evidence(), tmp_path))
    assert "given up, or stopped, is drawn" not in text
    assert "mean over folds" not in text
    assert "all folds" not in text


def test_missing_values_are_a_share_of_the_rows_that_are_used(tmp_path):
    facts = dataclasses.replace(made.facts(rows=400), num_rows_in_file=1_000_000)
    assert "17 (4.2 %)" in said(written(made.result(facts=facts), Evidence(), tmp_path))


def test_levels_of_a_column_are_told_once(tmp_path):
    column = SearchColumn(name="city", kind="category", levels=("x", "y"), why="2 levels: x, y")
    facts = dataclasses.replace(made.facts(), columns=(column,))
    text = said(written(made.result(facts=facts), Evidence(), tmp_path))
    assert text.count("2 levels") == 1


def test_no_better_than_the_constant_answer_did_not_learn(tmp_path):
    result = made.result("regression", classes=(), baseline=1.0)
    assert "It did not learn" in said(written(result, Evidence(), tmp_path))
    best = result.leaderboard[0]
    nearly = dataclasses.replace(result, baseline=best.score + 0.1 * best.spread)
    text = said(written(nearly, Evidence(), tmp_path))
    assert "It may not have learned" in text
    assert "It did not learn" not in text


@pytest.mark.parametrize(
    ("score", "words"),
    [(0.95, "as foretold"), (0.6, "worse than foretold"), (1.0, "better than foretold")],
)
def test_rows_that_nobody_had_seen_are_compared_with_what_was_foretold(score, words, tmp_path):
    result = made.result()
    truth, answer = made.answers(2, 123, seed=5)
    request = dataclasses.replace(result.request, test="test.csv")
    model = dataclasses.replace(
        result.model, test_score=score, test_scores={"matthews": score, "f1": math.nan}
    )
    result = dataclasses.replace(result, request=request, model=model)
    evidence = dataclasses.replace(made.evidence(), test_truth=truth, test_answer=answer)
    text = said(written(result, evidence, tmp_path))
    assert f"On 123 rows that nobody had seen: Matthews correlation {score:.4f}" in text
    assert words in text
    assert "rows of the test table" in text
    assert "chosen by this very score" not in text


def test_few_rows_and_a_rare_class_are_warned_of(tmp_path):
    few = dataclasses.replace(made.facts(rows=60), class_counts=(53, 7))
    text = said(written(made.result(facts=few), Evidence(), tmp_path))
    assert "Few rows (60)" in text
    assert "Few rows of class yes (7)" in text


def test_without_any_candidate_that_is_done_it_says_why(tmp_path):
    random = np.random.default_rng(0)
    failed = tuple(made.evaluation(i, "binary", random, status="failed") for i in range(3))
    result = made.result(count=0, evaluations=failed)
    page = written(result, Evidence(), tmp_path)
    text = said(page)
    assert "Nothing was found" in text
    assert "3 failed, the first of them lightgbm (candidate 0): ValueError" in text
    assert "Traceback (most recent call last)" in text
    assert "Leaderboard" not in page.titles


def test_a_search_that_did_nothing_has_a_report(tmp_path):
    result = made.result(count=0, bill=type(made.result(count=0).bill)())
    assert "No candidate was begun" in said(written(result, Evidence(), tmp_path))


def test_a_single_candidate_on_a_single_split_has_a_report(tmp_path):
    result = made.result(count=1)
    (one,) = result.evaluations
    one = dataclasses.replace(one, spread=None, rungs=one.rungs[2:3], score=one.rungs[2].score)
    result = dataclasses.replace(result, evaluations=(one,), num_folds=1)
    text = said(written(result, made.evidence(), tmp_path))
    assert "how much of the score is luck is unknown" in text
    assert "(on a single split)" in text


def test_nan_and_infinity_are_told_as_unknown(tmp_path):
    result = made.result()
    best = result.leaderboard[0]
    odd = tuple(dataclasses.replace(it, score=math.inf, scores={}) for it in best.rungs[:3])
    settings = {"a": math.nan, "b": np.float32(math.inf), "c": np.int64(3), "d": None}
    result = with_best(
        result,
        rungs=(*odd, *best.rungs[3:]),
        scores={"accuracy": math.nan, "f1": math.inf},
        spread=math.nan,
        candidate=dataclasses.replace(best.candidate, settings=settings),
    )
    importances = (("c0", math.nan), ("c1", 0.5))
    evidence = dataclasses.replace(made.evidence(), importances=importances)
    truth, answer = made.answers(2)
    answer.values[:7, 0] = np.nan
    evidence = dataclasses.replace(evidence, truth=truth, answer=answer)
    written(result, evidence, tmp_path)
    plain = json.loads((tmp_path / "search.json").read_text())
    kept = next(it for it in plain["evaluations"] if it["candidate"]["number"] == result.best)
    assert kept["candidate"]["settings"] == {"a": None, "b": None, "c": 3, "d": None}


def test_names_cannot_become_markup(tmp_path):
    evil = "<script>alert(1)</script>|`x`*_\n"
    facts = made.facts(classes=(evil, evil + "2"))
    column = dataclasses.replace(facts.columns[0], name=evil, levels=(evil,), why=evil)
    facts = dataclasses.replace(facts, columns=(column,), target=evil, path=evil, notes=(evil,))
    result = made.result(
        facts=facts, notes=(evil,), command=evil, split=evil, environment={evil: evil}
    )
    best = result.leaderboard[0]
    candidate = dataclasses.replace(best.candidate, technique=evil, settings={evil: evil})
    result = with_best(result, candidate=candidate, failure=evil, notes=(evil,))
    evidence = dataclasses.replace(
        made.evidence(), importances=((evil, 1.0),), importances_how=evil
    )
    page = written(result, evidence, tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "<script" not in text
    assert "<script>alert(1)</script>" in said(page)
    assert "<script" not in "".join(
        line
        for part in (tmp_path / "report.md").read_text().split("```")[::2]
        for line in part.splitlines()
        if "\\<script" not in line
    )


def test_a_thousand_classes_and_five_hundred_columns_are_shown_in_part(tmp_path):
    classes = tuple(f"class {i}" for i in range(1000))
    facts = made.facts("multiclass", classes, rows=20_000, num_columns=500)
    result = made.result("multiclass", facts=facts, classes=classes)
    page = written(result, made.evidence("multiclass", 1000, 2000, 500), tmp_path)
    text = said(page)
    assert "The 20 classes with the most wrong answers" in text
    assert "… and 300 more." in text  # columns
    assert "… and 800 more." in text  # classes
    assert "Most often taken for another" in page.titles
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


def test_one_class_only_has_a_report(tmp_path):
    truth = np.zeros(50, np.int32)
    answer = Answer(np.tile([0.9, 0.1], (50, 1)), are_probabilities=True)
    evidence = Evidence(truth=truth, answer=answer)
    page = written(made.result(), evidence, tmp_path)
    assert "ROC curve" not in page.titles
    single = made.result(facts=made.facts(classes=("only",)))
    written(single, Evidence(truth=truth, answer=Answer(np.ones((50, 1)), True)), tmp_path)


def test_answers_of_another_form_are_told_and_not_drawn(tmp_path):
    truth, answer = made.answers(3, rows=10)
    page = written(made.result(), Evidence(truth=truth, answer=answer), tmp_path)
    assert "Confusion matrix" not in page.titles
    assert "answers of the form (10, 3) for 10" in said(page)


def test_decisions_that_are_no_probabilities_have_a_ranking_and_no_calibration(tmp_path):
    truth, answer = made.answers(2)
    evidence = Evidence(truth=truth, answer=Answer(np.log(answer.values)))
    page = written(made.result(), evidence, tmp_path)
    assert "ROC curve" in page.titles
    assert "Calibration" not in page.titles


def test_an_ensemble_is_told_by_its_members(tmp_path):
    result = made.result()
    members = [[result.leaderboard[0].candidate.number, 0.7], [0, 0.3]]
    one = dataclasses.replace(
        result.leaderboard[0],
        candidate=Candidate(
            number=99, technique="ensemble", settings={"members": members}, origin="ensemble"
        ),
        worker=-1,
        notes=("its score is with weights of other folds",),
    )
    result = dataclasses.replace(result, evaluations=(*result.evaluations, one), best=99)
    text = said(written(result, made.evidence(), tmp_path))
    assert "The best is an ensemble of 2 models" in text
    kind = result.leaderboard[0].candidate.technique
    assert f"0.70 × #{members[0][0]} {kind} + 0.30 × #0 lightgbm" in text
    assert "40 candidates in" in text  # an ensemble is not one that was tried


def test_a_function_is_drawn_with_where_it_was_tried(tmp_path):
    random = np.random.default_rng(0)
    found = []
    for number in range(30):
        x1, x2 = float(random.uniform(-5, 10)), float(random.uniform(0, 15))
        value = branin(x1, x2)
        found.append(
            Evaluation(
                candidate=Candidate(
                    number=number, technique="branin", settings={"x1": x1, "x2": x2}
                ),
                status="done",
                rungs=(RungScore(rung=Rung(fold=0), score=value, scores={"value": value}),),
                score=value,
                scores={"value": value},
                ended_s=0.1 * number,
            )
        )
    best = min(found, key=lambda one: one.score)
    result = SearchResult(
        request=SearchRequest(domain="function", techniques=("branin",)),
        metric="value",
        higher_is_better=False,
        evaluations=tuple(found),
        best=best.candidate.number,
        took_s=3.0,
    )
    page = written(result, Evidence(), tmp_path)
    assert "Where branin was tried" in page.titles
    assert f"The smallest value is {best.score:.4f}" in said(page)
    assert f"{best.score - 0.397887:.3g} above it" in said(page)


def test_a_script_has_a_history_and_its_settings(tmp_path):
    random = np.random.default_rng(0)
    found = tuple(
        dataclasses.replace(
            made.evaluation(
                i, "script", random, folds=1, status="done", kind="script", at=float(i)
            ),
            predict_row_s=0.0,
        )
        for i in range(9)
    )
    best = min(found, key=lambda one: one.score)
    result = SearchResult(
        request=SearchRequest(script="somewhere/train.py"),
        metric="loss",
        higher_is_better=False,
        evaluations=found,
        best=best.candidate.number,
        took_s=12.0,
        ended="trials",
    )
    page = written(result, Evidence(), tmp_path)
    assert {"History", "Settings of script"} <= set(page.titles)
    text = said(page)
    assert "train.py: settings searched" in text
    assert "Each candidate ran once" in text
    assert "Busy: time of a worker. Size: of the files that it has written. All" in text


def test_a_score_that_is_beyond_the_picture_is_drawn_at_its_edge(tmp_path):
    result = made.result("regression", classes=())
    first = result.evaluations[0]
    every = (dataclasses.replace(first, score=1e9), *result.evaluations[1:])
    text = said(written(dataclasses.replace(result, evaluations=every), Evidence(), tmp_path))
    assert "Scores beyond an edge are drawn at it" in text


def test_two_hundred_candidates_are_told_within_three_seconds(tmp_path):
    result, evidence = made.result(count=200), made.evidence()
    began = time.process_time()
    write_report(result, evidence, tmp_path)
    assert time.process_time() - began < 3.0


def test_a_search_that_is_late_is_said_to_be(tmp_path):
    request = SearchRequest(data="x.csv", time_s=10.0)
    late = made.result(request=request, took_s=12.0)
    assert "10.0 s were asked for, and it took 12.0 s" in said(written(late, Evidence(), tmp_path))
    kept = dataclasses.replace(late, took_s=10.2)
    assert "were asked for" not in said(written(kept, Evidence(), tmp_path))


def test_a_model_is_shown_with_how_to_load_it(tmp_path):
    result = made.result()
    assert isinstance(result.model, FoundModel)
    write_report(result, Evidence(), tmp_path)
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text()
        assert "from reparto.search import load" in text
        assert "reparto predict" in text
