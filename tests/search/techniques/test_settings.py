"""Settings are understood, or refused before anything runs; what they mean is what is done."""

import numpy as np
import pytest

from reparto.errors import UsageError
from reparto.search.techniques import Setting, technique_named
from tests.search.techniques.tables import facts_of, locked, table
from tests.search.techniques.test_contract import trained


def facts(domain="binary", num_columns=4):
    return facts_of(
        np.zeros((1, num_columns)), domain, {"binary": 2, "multiclass": 3}.get(domain, 0)
    )


BAD = [
    ("random-forest", {"num_trees": 0}, "a whole number from 1"),
    ("random-forest", {"num_trees": 2.5}, "a whole number from 1"),
    ("random-forest", {"max_depth": -1}, "a whole number from 0"),
    ("random-forest", {"max_features": "many"}, "auto, all, sqrt"),
    ("random-forest", {"max_features": 0.0}, "auto, all, sqrt"),
    ("random-forest", {"subsamplingRate": 1.5}, "above 0 up to 1"),
    ("random-forest", {"impurity": "variance"}, "one of gini, entropy"),
    ("random-forest", {"bootstrap": "maybe"}, "true or false"),
    ("lightgbm", {"learning_rate": 0}, "a number above 0"),
    ("lightgbm", {"learning_rate": float("nan")}, "a number above 0"),
    ("lightgbm", {"learning_rate": True}, "a number above 0"),
    ("logistic-regression", {"elasticNetParam": 2}, "from 0 up to 1"),
    ("logistic-regression", {"reg_param": None}, "a number from 0"),
    ("logistic-regression", {"thresholds": [0.5]}, "one above 0 a class"),
    ("logistic-regression", {"thresholds": [0.2, 0.3, 0.5]}, "one for each class"),
    ("logistic-regression", {"threshold": 0.3, "thresholds": [0.2, 0.8]}, "leave one of them out"),
    ("random-forest", {"maxDepth": 3, "max_depth": 4}, "leave one of them out"),
    ("multilayer-perceptron", {"layers": [5, 3, 2]}, r"take \[4, 3, 2\]"),
    ("multilayer-perceptron", {"layers": [4, 3, 2], "hidden_layers": [3]}, "leave one of them"),
    ("multilayer-perceptron", {"layers": "4,3,2"}, "a list of 2 or more values"),
    ("naive-bayes", {"model_type": "poisson"}, "one of multinomial"),
    ("svm", {"c": 0}, "a number above 0"),
]


@pytest.mark.parametrize(("name", "settings", "remedy"), BAD)
def test_a_setting_that_cannot_be_is_refused(name, settings, remedy):
    with pytest.raises(UsageError, match=remedy) as told:
        technique_named(name).check(settings, facts())
    assert name in told.value.message


def test_a_binomial_model_of_three_classes_is_refused():
    technique = technique_named("logistic-regression")
    with pytest.raises(UsageError, match="for two classes, and there are 3"):
        technique.check({"family": "binomial"}, facts("multiclass"))
    with pytest.raises(UsageError, match="a threshold is for two classes"):
        technique.check({"threshold": 0.3}, facts("multiclass"))
    technique.check({"family": "multinomial", "thresholds": [0.2, 0.3, 0.5]}, facts("multiclass"))


def test_a_family_has_its_links():
    technique = technique_named("glm")
    with pytest.raises(UsageError, match="poisson has no link logit"):
        technique.check({"family": "poisson", "link": "logit"}, facts("regression"))
    with pytest.raises(UsageError, match="tweedie has link_power"):
        technique.check({"family": "tweedie", "link": "log"}, facts("regression"))
    with pytest.raises(UsageError, match="it is 0, or 1 and more"):
        technique.check({"family": "tweedie", "variancePower": 0.5}, facts("regression"))
    technique.check(
        {"family": "tweedie", "variancePower": 1.5, "linkPower": 0}, facts("regression")
    )


def test_numbers_that_are_written_as_text_are_numbers():
    technique = technique_named("random-forest")
    read = technique.params("binary").read({"maxDepth": "5", "subsamplingRate": "0.5"})
    assert (read["max_depth"], read["subsampling_rate"]) == (5, 0.5)
    with pytest.raises(UsageError, match="max_depth is 'deep'"):
        technique.check({"max_depth": "deep"}, facts())


def test_what_changes_nothing_here_is_said():
    trainer = technique_named("random-forest").trainer(
        {"maxBins": 32, "maxMemoryInMB": 256, "num_trees": 3}, Setting(facts())
    )
    first, second = trainer.notes()
    assert first.startswith("maxBins changes nothing here: every value")
    assert second.startswith("maxMemoryInMB changes nothing here")


@pytest.mark.parametrize(
    ("value", "share"),
    [("all", 4), ("sqrt", 2), ("onethird", 1), ("log2", 2), (3, 3), (9, 4), (0.5, 2)],
)
def test_columns_a_split_looks_at_are_those_of_mllibs_words(value, share):
    _, rows = table("binary")
    part = locked(np.array(rows.x[:, :4]), rows.y)
    technique = technique_named("decision-tree")
    trainer = trained(technique, facts(), part, {"featureSubsetStrategy": value})
    assert trainer.estimator.max_features_ == share


def test_a_depth_of_zero_is_one_leaf():
    known, rows = table("regression")
    trainer = trained(technique_named("decision-tree"), known, rows, {"maxDepth": 0})
    assert np.allclose(trainer.predict(rows.x).values, rows.y.mean())


def test_a_penalty_of_the_line_is_mllibs():
    """Its objective, with columns and target of deviation 1, has this gradient at its minimum."""
    known, rows = table("regression")
    penalty = 4.0
    trainer = trained(technique_named("linear-regression"), known, rows, {"regParam": penalty})
    x = (rows.x - rows.x.mean(axis=0)) / rows.x.std(axis=0)
    y = (rows.y - rows.y.mean()) / rows.y.std()
    weights = trainer.estimator.coef_
    gradient = -x.T @ (y - x @ weights) / len(y) + penalty / rows.y.std() * weights
    assert np.abs(gradient).max() < 1e-10


def test_a_penalty_of_the_logistic_regression_is_mllibs():
    known, rows = table("binary")
    settings = {"regParam": 0.1, "tol": 1e-10, "maxIter": 1000}
    weights = trained(technique_named("logistic-regression"), known, rows, settings).estimator
    x = (rows.x - rows.x.mean(axis=0)) / rows.x.std(axis=0)
    foretold = 1 / (1 + np.exp(-(x @ weights.coef_[0] + weights.intercept_[0])))
    gradient = x.T @ (foretold - rows.y) / len(x) + 0.1 * weights.coef_[0]
    assert np.abs(gradient).max() < 1e-5
    both = {**settings, "family": "multinomial"}
    halved = trained(technique_named("logistic-regression"), known, rows, both).estimator
    foretold = 1 / (1 + np.exp(-(x @ halved.coef_[0] + halved.intercept_[0])))
    gradient = x.T @ (foretold - rows.y) / len(x) + 0.05 * halved.coef_[0]
    assert np.abs(gradient).max() < 1e-5


def test_a_threshold_moves_the_border():
    known, rows = table("binary")
    technique = technique_named("logistic-regression")
    plain = trained(technique, known, rows, {"regParam": 0.1}).predict(rows.x)
    high = trained(technique, known, rows, {"regParam": 0.1, "threshold": 0.9}).predict(rows.x)
    assert np.array_equal(high.labels == 1, plain.values[:, 1] > 0.9)
    assert plain.are_probabilities
    assert not high.are_probabilities


def test_a_threshold_of_a_distance_moves_the_border():
    known, rows = table("binary")
    technique = technique_named("LinearSVC")
    trainer = trained(technique, known, rows, {"regParam": 0.1, "threshold": 0.7})
    distances = trainer.estimator.decision_function(trainer.preparation.transform(rows.x))
    assert np.array_equal(trainer.predict(rows.x).labels == 1, distances > 0.7)


def test_generalized_lines_are_those_of_scikit_learn():
    from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 3))
    mean = np.exp(x @ [0.3, -0.2, 0.1] + 0.5)
    known = facts_of(x, "regression")
    for y, settings, other in (
        (random.poisson(mean), {"family": "poisson"}, PoissonRegressor),
        (random.gamma(2, mean / 2), {"family": "gamma", "link": "log"}, GammaRegressor),
        (
            random.poisson(mean),
            {"family": "tweedie", "variancePower": 1.5, "linkPower": 0},
            lambda **more: TweedieRegressor(power=1.5, link="log", **more),
        ),
    ):
        y = y.astype(float)
        own = trained(technique_named("glm"), known, locked(x, y), settings).predict(x)
        theirs = other(alpha=0.0, tol=1e-9, max_iter=2000).fit(x, y).predict(x)
        assert np.allclose(own.values, theirs, rtol=1e-5)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_a_binomial_line_foretells_shares(link):
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 2))
    share = 1 / (1 + np.exp(-(x @ [1.0, -1.0])))
    y = (random.random(400) < share).astype(float)
    known = facts_of(x, "regression")
    settings = {"family": "binomial", "link": link}
    answer = trained(technique_named("glm"), known, locked(x, y), settings).predict(x)
    assert np.abs(answer.values - share).mean() < 0.06


def test_a_family_that_does_not_suit_the_target_says_so():
    known, rows = table("regression")
    below = locked(np.array(rows.x), np.array(rows.y) - 100.0)
    with pytest.raises(ValueError, match="gamma wants a target above 0"):
        trained(technique_named("glm"), known, below, {"family": "gamma"})


def test_counts_below_zero_are_refused_by_naive_bayes_with_the_way_out():
    known, rows = table("binary")
    with pytest.raises(ValueError, match="take model_type gaussian"):
        trained(technique_named("naive-bayes"), known, rows, {"smoothing": 1.0})


def test_clusters_by_cosine_are_by_direction():
    x = np.array([[1.0, 0.1], [5.0, 0.3], [9.0, 0.2], [0.1, 1.0], [0.2, 7.0], [0.4, 9.0]])
    known = facts_of(x, "clustering")
    settings = {"k": 2, "distanceMeasure": "cosine", "standardization": False}
    found = trained(technique_named("kmeans"), known, locked(x), settings).predict(x).values
    assert len(set(found[:3])) == len(set(found[3:])) == 1
    assert found[0] != found[3]
