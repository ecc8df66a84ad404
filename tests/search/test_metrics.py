"""Metrics: the numbers of scikit-learn, from our own few lines of numpy."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics as known

from reparto.errors import UsageError
from reparto.search._rows import Answer
from reparto.search.metrics import (
    METRICS,
    constant_answer,
    default_metric,
    metric_named,
    scores_of,
)
from reparto.spec import SearchColumn, TableFacts


def facts_of(num_classes):
    domain = "binary" if num_classes == 2 else "multiclass"
    return TableFacts(domain=domain, classes=tuple(f"k{n}" for n in range(num_classes)))


def drawn(num_classes, seed=0, num_rows=400, ties=False):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, num_classes, num_rows).astype(np.int32)
    raw = rng.normal(size=(num_rows, num_classes)) + 0.8 * np.eye(num_classes)[y]
    raw = np.round(raw, 0) if ties else raw
    shares = np.exp(raw)
    return y, shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("ties", [False, True])
def test_binary_scores_are_those_of_scikit_learn(ties):
    y, shares = drawn(2, ties=ties)
    scores = scores_of(facts_of(2), Answer(shares, are_probabilities=True), y)
    said, likely = shares.argmax(axis=1), shares[:, 1]
    assert scores == pytest.approx(
        {
            "accuracy": known.accuracy_score(y, said),
            "balanced-accuracy": known.balanced_accuracy_score(y, said),
            "precision": known.precision_score(y, said),
            "recall": known.recall_score(y, said),
            "specificity": known.recall_score(y, said, pos_label=0),
            "f1": known.f1_score(y, said),
            "matthews": known.matthews_corrcoef(y, said),
            "kappa": known.cohen_kappa_score(y, said),
            "auroc": known.roc_auc_score(y, likely),
            "aupr": known.average_precision_score(y, likely),
            "log-loss": known.log_loss(y, shares),
        }
    )


@pytest.mark.parametrize("ties", [False, True])
def test_multiclass_scores_are_the_macro_means_of_scikit_learn(ties):
    y, shares = drawn(4, seed=1, ties=ties)
    scores = scores_of(facts_of(4), Answer(shares, are_probabilities=True), y)
    said, each = shares.argmax(axis=1), np.eye(4)[y]
    against = [known.recall_score(y != k, said != k) for k in range(4)]
    assert scores == pytest.approx(
        {
            "accuracy": known.accuracy_score(y, said),
            "balanced-accuracy": known.balanced_accuracy_score(y, said),
            "precision": known.precision_score(y, said, average="macro"),
            "recall": known.recall_score(y, said, average="macro"),
            "specificity": np.mean(against),
            "f1": known.f1_score(y, said, average="macro"),
            "matthews": known.matthews_corrcoef(y, said),
            "kappa": known.cohen_kappa_score(y, said),
            "auroc": known.roc_auc_score(y, shares, multi_class="ovr", average="macro"),
            "aupr": known.average_precision_score(each, shares, average="macro"),
            "log-loss": known.log_loss(y, shares),
        }
    )


def test_regression_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    y = rng.normal(size=300)
    values = y + rng.normal(size=300)
    scores = scores_of(TableFacts(domain="regression"), Answer(values), y)
    assert scores == pytest.approx(
        {
            "rmse": known.root_mean_squared_error(y, values),
            "mae": known.mean_absolute_error(y, values),
            "r2": known.r2_score(y, values),
        }
    )


def test_silhouette_is_that_of_scikit_learn_in_scaled_space():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 3)) * [1.0, 100.0, 0.01]
    clusters = rng.integers(0, 3, 200)
    clusters[0] = 7  # a cluster of one row
    columns = tuple(SearchColumn(name=f"c{n}") for n in range(3))
    facts = TableFacts(domain="clustering", columns=columns)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    expected = known.silhouette_score(scaled, clusters)
    scores = scores_of(facts, Answer(clusters), None, x=x)
    assert scores == {"silhouette": pytest.approx(expected)}
    in_csr = scores_of(facts, Answer(clusters), None, x=sparse.csr_matrix(x))
    assert in_csr == {"silhouette": pytest.approx(expected)}


def test_silhouette_takes_missing_values_categories_and_many_rows():
    rng = np.random.default_rng(4)
    own = rng.integers(0, 2, 5000)
    x = np.column_stack([own * 5.0 + rng.normal(size=5000) * 0.1, own])
    x[::7, 0] = np.nan
    columns = (
        SearchColumn(name="a"),
        SearchColumn(name="b", kind="category", levels=("u", "v")),
    )
    facts = TableFacts(domain="clustering", columns=columns)
    (right,) = scores_of(facts, Answer(own), None, x=x).values()
    (wrong,) = scores_of(facts, Answer(rng.permutation(own)), None, x=x).values()
    assert right > 0.8 > 0.1 > wrong


def test_silhouette_of_sparse_rows_takes_missing_values():
    from scipy import sparse

    x = sparse.random(200, 30, 0.2, format="csr", random_state=0)
    facts = TableFacts(domain="clustering", columns=(SearchColumn(name="a"),) * 30)
    clusters = Answer((x[:, 0].toarray().ravel() > 0).astype(np.int64))
    plain = scores_of(facts, clusters, None, x=x)["silhouette"]
    x.data[3] = np.nan
    missing = scores_of(facts, clusters, None, x=x)["silhouette"]
    assert missing == pytest.approx(plain, abs=0.02) and missing != 0.0


def test_metrics_that_are_not_defined_are_left_out():
    y = np.zeros(10, np.int32)
    shares = np.tile([0.9, 0.1], (10, 1))
    scores = scores_of(facts_of(2), Answer(shares, are_probabilities=True), y)
    assert scores["accuracy"] == 1.0
    assert not {"auroc", "aupr", "recall", "kappa"} & set(scores)
    assert "log-loss" not in scores_of(facts_of(2), Answer(shares), y)
    constant = scores_of(TableFacts(domain="regression"), Answer(np.ones(3)), np.full(3, 2.0))
    assert constant == {"rmse": 1.0, "mae": 1.0}
    tenths = np.full(37, 0.1)
    assert "r2" not in scores_of(TableFacts(domain="regression"), Answer(tenths + 1e-4), tenths)
    alone = TableFacts(domain="clustering", columns=(SearchColumn(name="a"),))
    assert scores_of(alone, Answer(np.zeros(5, int)), None, x=np.ones((5, 1))) == {}


def test_a_class_without_rows_in_a_fold_does_not_count():
    y, shares = drawn(3, num_rows=90)
    wide = np.column_stack([shares, np.zeros(90)])
    narrow = scores_of(facts_of(3), Answer(shares, are_probabilities=True), y)
    assert scores_of(facts_of(4), Answer(wide, are_probabilities=True), y) == pytest.approx(narrow)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_answer_that_is_no_number_is_no_score(bad):
    values = np.array([1.0, bad, 3.0])
    with pytest.raises(ValueError, match="1 of 3 rows"):
        scores_of(TableFacts(domain="regression"), Answer(values), np.ones(3))


def test_an_answer_of_another_shape_is_no_score():
    with pytest.raises(ValueError, match="shape"):
        scores_of(facts_of(3), Answer(np.ones((4, 2))), np.zeros(4, np.int32))


def test_the_constant_answer_is_the_best_that_ignores_the_rows():
    y = np.array([0, 2, 2, 1, 2], np.int32)
    answer = constant_answer(facts_of(3), y, 2)
    assert answer.values.tolist() == [[0.2, 0.2, 0.6]] * 2
    assert answer.labels.tolist() == [2, 2]
    mean = constant_answer(TableFacts(domain="regression"), np.array([1.0, 4.0]), 3)
    assert mean.values.tolist() == [2.5] * 3
    whole = scores_of(facts_of(3), constant_answer(facts_of(3), y, 5), y)
    assert whole["matthews"] == 0.0 and whole["auroc"] == 0.5


@pytest.mark.parametrize("metric", [one for one in METRICS if one != "silhouette"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_no_constant_is_better_than_the_constant_answer_by_the_metric(metric, num_classes):
    y = np.array([0] * 9 + [1] * 4 + [2] * (num_classes == 3), np.int32)
    facts, others = facts_of(num_classes), np.eye(num_classes)
    if "regression" in METRICS[metric].domains:
        y, facts, others = np.array([0.0, 1.0, 2.0, 30.0]), TableFacts(domain="regression"), y
    sign = 1.0 if METRICS[metric].higher_is_better else -1.0

    def score(answer):
        return sign * scores_of(facts, answer, y)[metric]

    best = score(constant_answer(facts, y, len(y), metric))
    for one in others:
        shape = (len(y), *np.shape(one))
        constant = Answer(np.broadcast_to(one, shape).astype(float), are_probabilities=True)
        assert best >= score(constant) - 1e-12


@pytest.mark.parametrize(
    ("spelling", "domain", "name"),
    [
        ("roc_auc", "binary", "auroc"),
        ("ROC AUC", "multiclass", "auroc"),
        ("f1-macro", "multiclass", "f1"),
        ("mcc", "binary", "matthews"),
        ("neg_log_loss", "binary", "log-loss"),
        ("neg_root_mean_squared_error", "regression", "rmse"),
        ("R2", "regression", "r2"),
        ("", "clustering", "silhouette"),
        ("", "binary", "matthews"),
        ("balanced_accuracy", "binary", "balanced-accuracy"),
    ],
)
def test_metrics_are_found_by_the_names_that_people_use(spelling, domain, name):
    assert metric_named(spelling, domain).name == name


def test_unknown_and_unfit_metrics_are_refused_with_the_list():
    with pytest.raises(UsageError, match="did you mean accuracy"):
        metric_named("acuracy", "binary")
    with pytest.raises(UsageError, match="take one of rmse, mae, r2"):
        metric_named("f1", "regression")


def test_each_domain_has_a_default_and_each_metric_is_scored():
    domains = ("binary", "multiclass", "regression", "clustering")
    assert [default_metric(domain) for domain in domains] == [
        "matthews",
        "f1",
        "rmse",
        "silhouette",
    ]
    y, shares = drawn(2)
    scored = scores_of(facts_of(2), Answer(shares, are_probabilities=True), y)
    assert set(scored) == {name for name, one in METRICS.items() if "binary" in one.domains}
