"""What single techniques promise beyond the contract, and what is kept of them."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn import datasets

from reparto.errors import UsageError
from reparto.search._rows import Rows
from reparto.search.metrics import constant_answer, scores_of
from reparto.search.techniques import TECHNIQUES, Setting, technique_named, techniques_for
from reparto.search.techniques._kept import NAME, read_kept
from reparto.spec import to_plain
from tests.search.techniques.tables import facts_of, locked, table
from tests.search.techniques.test_contract import little, trained


def known_table(name):
    """One of scikit-learn's, in parts that are trained and tested."""
    loaded = getattr(datasets, f"load_{name}")()
    order = np.random.default_rng(0).permutation(len(loaded.target))
    x, y = np.ascontiguousarray(loaded.data[order]), loaded.target[order]
    domain = {"breast_cancer": "binary", "diabetes": "regression"}.get(name, "multiclass")
    classes = 0 if domain == "regression" else len(np.unique(y))
    y = y.astype(np.float64 if domain == "regression" else np.int32)
    third = len(y) // 3
    return facts_of(x, domain, classes), locked(x[third:], y[third:]), locked(x[:third], y[:third])


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes"])
def test_each_modern_technique_is_far_better_than_a_constant(name):
    facts, train, test = known_table(name)
    metric, best = ("r2", 0.2) if facts.domain == "regression" else ("accuracy", 0.8)
    for technique in techniques_for(facts):
        if technique.kind == "network":
            continue  # has its own tests
        settings = {**technique.portfolio(facts)[0]}
        if "num_trees" in technique.params(facts.domain).read({}):
            settings["num_trees"] = 40
        answer = trained(technique, facts, train, settings).predict(test.x)
        found = scores_of(facts, answer, test.y)
        constant = scores_of(facts, constant_answer(facts, train.y, len(test)), test.y)
        assert found[metric] > best > constant.get(metric, 0.0), technique.kind
        if facts.is_classification:
            assert answer.are_probabilities
            assert found["log-loss"] < 0.5 * constant["log-loss"], technique.kind


@pytest.mark.parametrize("kind", ["lightgbm", "random-forest", "extra-trees", "hist-boosting"])
@pytest.mark.parametrize("domain", ["binary", "regression"])
def test_training_in_parts_ends_in_the_same_model_as_at_once(kind, domain):
    facts, rows = table(domain, messy=True)
    technique = TECHNIQUES[kind]
    settings = little(technique, facts)
    parts = trained(technique, facts, rows, settings, (1 / 9, 1 / 3, 1.0)).predict(rows.x)
    whole = trained(technique, facts, rows, settings, (1.0,)).predict(rows.x)
    assert np.allclose(parts.values, whole.values, rtol=1e-9)


@pytest.mark.parametrize("kind", ["lightgbm", "hist-boosting"])
def test_boosting_stops_when_spared_rows_are_not_foretold_better(kind):
    facts, rows = table("binary", num_rows=600)
    noise = np.random.default_rng(1).integers(0, 2, 600).astype(np.int32)
    settings = {"iterations": 400, "early_stopping": True, "learning_rate": 0.3}
    trainer = trained(TECHNIQUES[kind], facts, Rows(rows.x, noise), settings, (0.5, 1.0))
    inner = trainer.estimator
    done = inner.current_iteration() if kind == "lightgbm" else inner.n_iter_
    assert done < 100


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_a_regression_is_learnt_whatever_the_unit_of_its_target(scale, shift):
    facts, rows = table("regression")
    y = (rows.y - rows.y.mean()) / rows.y.std()
    moved = Rows(rows.x, (y + shift) * scale)
    for kind in ("decision-tree", "random-forest", "extra-trees", "hist-boosting", "lightgbm"):
        settings = little(TECHNIQUES[kind], facts)
        plain = trained(TECHNIQUES[kind], facts, Rows(rows.x, y), settings).predict(rows.x)
        found = trained(TECHNIQUES[kind], facts, moved, settings).predict(rows.x)
        off = found.values / scale - shift - plain.values
        assert np.abs(off).max() < 0.3 and np.std(off) < 0.05, kind


def test_what_a_split_has_to_gain_is_in_the_targets_own_unit():
    facts, rows = table("regression")
    variance = float(rows.y.var())
    for kind in ("decision-tree", "random-forest"):
        few = {"num_trees": 5} if kind == "random-forest" else {}
        settings = {"min_info_gain": 2.0 * variance, **few}
        trainer = trained(TECHNIQUES[kind], facts, rows, settings)
        assert np.ptp(trainer.predict(rows.x).values) < 1e-9, "no split gains that"
        settings["min_info_gain"] = 0.05 * variance
        assert np.ptp(trained(TECHNIQUES[kind], facts, rows, settings).predict(rows.x).values) > 1


def test_an_iteration_without_luck_is_not_the_last_one():
    facts, train, test = known_table("iris")
    settings = {**TECHNIQUES["lightgbm"].portfolio(facts)[0], "min_samples_leaf": 30}
    assert settings["extra_trees"], "splits are drawn, and none may fit"
    trainer = trained(TECHNIQUES["lightgbm"], facts, train, settings)
    assert trainer.estimator.current_iteration() > 200
    assert scores_of(facts, trainer.predict(test.x), test.y)["accuracy"] > 0.85


@pytest.mark.parametrize("num_rows", [30, 60, 150])
def test_every_portfolio_can_split_a_small_table(num_rows):
    facts, rows = table("regression", num_rows=num_rows)
    for kind in ("lightgbm", "hist-boosting"):
        for settings in TECHNIQUES[kind].portfolio(facts):
            answer = trained(TECHNIQUES[kind], facts, rows, settings).predict(rows.x)
            assert np.ptp(answer.values) > 0.2 * np.ptp(rows.y), (kind, settings)


def test_rows_are_spared_where_a_class_has_one_only():
    facts, rows = table("multiclass", num_rows=300)
    y = np.minimum(rows.y, 1)
    y[7] = 2
    for kind in ("lightgbm", "hist-boosting"):
        settings = {"iterations": 5, "early_stopping": True}
        answer = trained(TECHNIQUES[kind], facts, Rows(rows.x, y), settings).predict(rows.x)
        assert answer.values.shape == (300, 3), kind


@pytest.mark.parametrize(
    ("scale", "shift"), [(1e-15, 0.0), (1e-40, 0.0), (1e40, 0.0), (1.0, 1e9), (1.0, -1e10)]
)
def test_rows_are_told_apart_whatever_the_units_of_their_columns(scale, shift):
    facts, rows = table("binary", num_rows=400)
    x = rows.x * scale + shift
    half, rest = locked(x[:200], rows.y[:200]), locked(x[200:], rows.y[200:])
    for technique in TECHNIQUES.values():
        if "binary" in technique.domains:
            settings = little(technique, facts)
            plain = trained(technique, facts, Rows(rows.x[:200], rows.y[:200]), settings)
            answer = trained(technique, facts, half, settings).predict(rest.x)
            right = np.mean(plain.predict(rows.x[200:]).labels == rest.y)
            assert np.mean(answer.labels == rest.y) > right - 0.05, technique.kind


def test_one_huge_value_does_not_hide_the_others():
    facts, rows = table("binary", num_rows=400)
    x = np.array(rows.x)
    x[5, 0] = 1.797e308
    for kind in ("random-forest", "hist-boosting", "lightgbm"):
        settings = little(TECHNIQUES[kind], facts)
        plain = trained(TECHNIQUES[kind], facts, rows, settings).predict(rows.x)
        answer = trained(TECHNIQUES[kind], facts, locked(x, rows.y), settings).predict(x)
        right = np.mean(plain.labels == rows.y)
        assert np.mean(answer.labels == rows.y) > right - 0.05 > 0.6, kind


def test_no_rows_are_no_answers():
    for domain in ("binary", "regression"):
        facts, rows = table(domain)
        for technique in techniques_for(facts):
            trainer = trained(technique, facts, rows, little(technique, facts))
            assert len(trainer.predict(rows.x[:0]).values) == 0, technique.kind


READS = """
import json, pathlib, sys
import numpy as np
from reparto.search.techniques import technique_named

for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    about = json.loads(line)
    folder = pathlib.Path(about["folder"])
    model = technique_named(about["kind"]).load(folder, about)
    answer = model.predict(np.load(folder / "x.npy")).values
    print(folder.name, np.array_equal(answer, np.load(folder / "answer.npy")))
"""


def test_a_new_process_reads_each_model_and_answers_the_same(tmp_path):
    lines = []
    pairs = [(one, domain) for one in TECHNIQUES.values() for domain in one.domains]
    for technique, domain in pairs:
        if technique.kind == "network":
            continue  # has its own tests
        facts, rows = table(domain, num_rows=60, messy=True)
        settings = little(technique, facts)
        trainer = trained(technique, facts, rows, settings)
        folder = tmp_path / f"{technique.kind}-{domain}"
        folder.mkdir()
        trainer.save(folder)
        np.save(folder / "x.npy", rows.x)
        np.save(folder / "answer.npy", trainer.predict(rows.x).values)
        about = {"kind": technique.kind, "settings": settings, "facts": to_plain(facts)}
        lines.append(json.dumps({**about, "folder": str(folder)}))
    (tmp_path / "models.jsonl").write_text("\n".join(lines))
    ran = subprocess.run(
        [sys.executable, "-c", READS, tmp_path / "models.jsonl"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    found = dict(line.split() for line in ran.stdout.splitlines())
    assert len(found) == len(lines) > 25
    assert set(found.values()) == {"True"}


class Intruder:
    """What no technique writes."""

    def __init__(self):
        self.name = "intruder"


def test_a_file_that_holds_anything_else_is_not_read(tmp_path):
    import skops.io

    (tmp_path / NAME).write_bytes(skops.io.dumps({"estimator": Intruder()}))
    with pytest.raises(UsageError, match="Intruder: reparto writes no such thing"):
        read_kept(tmp_path)
    (tmp_path / NAME).write_bytes(b"not an archive")
    with pytest.raises(UsageError, match="it was changed"):
        read_kept(tmp_path)
    (tmp_path / NAME).unlink()
    with pytest.raises(UsageError, match="the model is not whole"):
        read_kept(tmp_path)


def test_a_model_holds_none_of_the_rows_it_is_trained_on():
    import pickle

    facts, rows = table("regression", num_rows=2000)
    for kind in ("lightgbm", "random-forest", "elastic-net"):
        technique = TECHNIQUES[kind]
        settings = {"num_trees": 1, "max_depth": 2} if kind == "random-forest" else {}
        settings = {"iterations": 3} if kind == "lightgbm" else settings
        trainer = trained(technique, facts, rows, settings, (0.5,))
        assert len(pickle.dumps(trainer)) < rows.x.nbytes / 2


def test_portfolios_name_every_setting_that_is_searched():
    for technique in TECHNIQUES.values():
        for domain in technique.domains:
            facts, _ = table(domain)
            space = technique.space(facts)
            for settings in technique.portfolio(facts):
                if technique.kind not in ("network", "decision-tree", "gradient-boosted-trees"):
                    assert set(space) <= set(settings), technique.kind


def test_large_and_wide_tables_have_portfolios_of_their_own():
    import dataclasses

    for num_rows, num_columns in ((500, 10), (5000, 10), (50_000, 10), (5000, 800)):
        x = np.zeros((1, num_columns))
        for domain, classes in (("regression", 0), ("binary", 2)):
            facts = dataclasses.replace(facts_of(x, domain, classes), num_rows=num_rows)
            for technique in techniques_for(facts):
                for settings in technique.portfolio(facts):
                    technique.check(settings, facts)
                    features = settings.get("max_features")
                    if technique.kind in ("lightgbm", "hist-boosting") and num_columns == 800:
                        assert features <= 0.15


@pytest.mark.parametrize("kind", ["svm", "linear-svm"])
@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_support_vectors_answer_where_a_class_has_one_row_only(kind, num_classes):
    centres = 4.0 * np.eye(num_classes)
    y = np.array([*range(num_classes - 1)] * 5 + [num_classes - 1], np.int32)
    x = centres[y] + 0.1 * np.random.default_rng(0).normal(size=(len(y), num_classes))
    facts = facts_of(x, "binary" if num_classes == 2 else "multiclass", num_classes)
    trainer = trained(TECHNIQUES[kind], facts, locked(x, y), {})
    answer = trainer.predict(centres)
    assert np.array_equal(answer.labels[:-1], range(num_classes - 1))
    assert np.allclose(answer.values.sum(axis=1), 1.0)


def test_probabilities_of_support_vectors_are_about_right():
    random = np.random.default_rng(0)
    x = random.normal(size=(800, 4))
    share = 1.0 / (1.0 + np.exp(-2.0 * x[:, 0]))
    y = (random.random(800) < share).astype(np.int32)
    facts = facts_of(x, "binary", 2)
    for kind in ("svm", "linear-svm"):
        technique = technique_named(kind)
        settings = technique.portfolio(facts)[-1]
        trainer = technique.trainer(settings, Setting(facts, seed=0))
        trainer.train(Rows(x[:600], y[:600]), 1.0)
        said = trainer.predict(x[600:]).values[:, 1]
        assert np.abs(said - share[600:]).mean() < 0.12
