"""Techniques and settings are found by the names that people and other systems use."""

import numpy as np
import pytest

from reparto.errors import MissingExtraError, UsageError
from reparto.search.techniques import (
    TECHNIQUES,
    setting_named,
    technique_named,
    techniques_for,
)
from reparto.spec import TableFacts
from tests.search.techniques.tables import facts_of

SPELLINGS = {
    "random-forest": "random-forest RandomForest random_forest_classifier rf",
    "decision-tree": "DecisionTree decision_tree DecisionTreeRegressor",
    "gradient-boosted-trees": "gbt GBTClassifier GBTRegressor GradientBoostedTrees "
    "GradientBoostedTree gradient_boosting GradientBoostingClassifier",
    "linear-svm": "LinearSVC linear-svc linear_support_vector_machine LinearSVM",
    "logistic-regression": "LogisticRegression binomial-logistic-regression "
    "MultinomialLogisticRegression logit",
    "naive-bayes": "NaiveBayes naive_bayes GaussianNB",
    "multilayer-perceptron": "MultilayerPerceptronClassifier mlp MLPClassifier",
    "linear-regression": "LinearRegression linear-regression",
    "generalized-linear": "GeneralizedLinearRegression generalized-linear-regression glm",
    "k-means": "KMeans kmeans k_means",
    "gaussian-mixture": "GaussianMixture gmm GaussianMixtureModel",
    "hist-boosting": "HistGradientBoostingClassifier hist_boosting",
    "lightgbm": "LightGBM LGBMClassifier lgbm",
    "extra-trees": "ExtraTreesClassifier extra_trees",
    "k-neighbors": "KNeighborsClassifier knn k-neighbours k-nearest-neighbors",
    "svm": "SVC SVR svm",
    "elastic-net": "ElasticNet elastic_net lasso Ridge",
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, names in SPELLINGS.items() for name in names.split()],
)
def test_a_technique_is_found_by_any_spelling(kind, name):
    assert technique_named(name).kind == kind


def test_every_algorithm_of_system_d_is_there_for_its_domain():
    regression = "linear-regression generalized-linear random-forest decision-tree"
    classes = (
        "linear-svm logistic-regression naive-bayes random-forest decision-tree "
        "gradient-boosted-trees multilayer-perceptron"
    )
    for kind in (*regression.split(), "gradient-boosted-trees"):
        assert "regression" in TECHNIQUES[kind].domains
    for kind in classes.split():
        assert {"binary", "multiclass"} <= set(TECHNIQUES[kind].domains)
    for kind in ("k-means", "gaussian-mixture"):
        assert TECHNIQUES[kind].domains == ("clustering",)


def test_a_name_that_is_nearly_right_is_told():
    with pytest.raises(UsageError, match="did you mean random-forest"):
        technique_named("randm-forst")


def test_an_unknown_technique_is_told_which_there_are():
    with pytest.raises(UsageError, match="there is no technique 'xyzzy'") as told:
        technique_named("xyzzy")
    assert "lightgbm" in told.value.remedy


def binary(num_rows=100, *, is_sparse=False):
    facts = facts_of(np.zeros((1, 4)), "binary", 2, is_sparse=is_sparse)
    return TableFacts(**{**facts.__dict__, "num_rows": num_rows})


def kinds(found):
    return [one.kind for one in found]


def test_modern_ones_that_suit_are_tried_the_strong_and_cheap_ones_first():
    found = kinds(techniques_for(binary()))
    assert found[:3] == ["lightgbm", "logistic-regression", "elastic-net"]
    assert {"logistic-regression", "extra-trees", "random-forest", "svm"} <= set(found)
    assert not {"decision-tree", "naive-bayes", "k-means"} & set(found)


def test_slow_ones_are_left_out_of_many_rows_unless_asked_for():
    assert "svm" not in kinds(techniques_for(binary(1_000_000)))
    assert kinds(techniques_for(binary(1_000_000), ("SVC",))) == ["svm"]


def test_sparse_tables_are_tried_with_those_that_take_them():
    found = kinds(techniques_for(binary(is_sparse=True)))
    assert "lightgbm" in found
    assert "hist-boosting" not in found
    with pytest.raises(UsageError, match="hist-boosting cannot train on a sparse table"):
        techniques_for(binary(is_sparse=True), ("hist-boosting",))


def test_those_asked_for_are_tried_once_in_their_order():
    found = techniques_for(binary(), ("naive-bayes", "rf", "RandomForestClassifier"))
    assert kinds(found) == ["naive-bayes", "random-forest"]


def test_one_of_another_domain_is_refused():
    with pytest.raises(UsageError, match="k-means is for clustering") as told:
        techniques_for(binary(), ("k-means",))
    assert "logistic-regression" in told.value.remedy


def test_one_whose_package_is_missing_is_left_out_and_told_if_asked_for(monkeypatch):
    from importlib import util

    real = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name, *more: None if name == "lightgbm" else real(name, *more)
    )
    assert "lightgbm" not in kinds(techniques_for(binary()))
    with pytest.raises(MissingExtraError, match="lightgbm is not installed"):
        techniques_for(binary(), ("lightgbm",))


MLLIB = {
    "random-forest": {
        "numTrees": "num_trees",
        "maxDepth": "max_depth",
        "minInstancesPerNode": "min_samples_leaf",
        "minInfoGain": "min_info_gain",
        "featureSubsetStrategy": "max_features",
        "subsamplingRate": "subsampling_rate",
        "impurity": "criterion",
        "maxBins": "max_bins",
        "maxMemoryInMB": "max_memory_in_mb",
        "checkpointInterval": "checkpoint_interval",
        "cacheNodeIds": "cache_node_ids",
        "thresholds": "thresholds",
        "seed": "seed",
    },
    "gradient-boosted-trees": {
        "maxIter": "iterations",
        "stepSize": "learning_rate",
        "lossType": "loss",
        "validationTol": "validation_tol",
    },
    "logistic-regression": {
        "regParam": "reg_param",
        "elasticNetParam": "elastic_net_param",
        "maxIter": "max_iter",
        "tol": "tol",
        "fitIntercept": "fit_intercept",
        "standardization": "standardization",
        "family": "family",
        "threshold": "threshold",
        "aggregationDepth": "aggregation_depth",
    },
    "linear-svm": {"regParam": "reg_param", "threshold": "margin_threshold"},
    "naive-bayes": {"smoothing": "smoothing", "modelType": "model_type"},
    "multilayer-perceptron": {
        "layers": "layers",
        "blockSize": "block_size",
        "stepSize": "step_size",
        "solver": "solver",
    },
}


@pytest.mark.parametrize(
    ("technique", "name", "ours"),
    [(kind, name, ours) for kind, names in MLLIB.items() for name, ours in names.items()],
)
def test_settings_are_found_by_mllibs_names(technique, name, ours):
    assert setting_named(technique, name, binary()) == ours
    assert setting_named(technique, ours.replace("_", "-"), binary()) == ours


def test_regressions_and_clusterings_have_mllibs_names_too():
    line = facts_of(np.zeros((1, 2)), "regression")
    points = facts_of(np.zeros((1, 2)), "clustering")
    for (
        name
    ) in "family link linkPower variancePower regParam maxIter tol fitIntercept solver".split():
        assert setting_named("GeneralizedLinearRegression", name, line)
    for name in "regParam elasticNetParam loss epsilon solver aggregationDepth".split():
        assert setting_named("LinearRegression", name, line)
    for name in "k initMode initSteps maxIter tol distanceMeasure seed".split():
        assert setting_named("KMeans", name, points)
    for name in "k maxIter tol seed aggregationDepth".split():
        assert setting_named("GaussianMixture", name, points)


def test_a_setting_that_is_nearly_right_is_told():
    with pytest.raises(UsageError, match="did you mean max_depth"):
        setting_named("random-forest", "maxDeph", binary())


def test_a_setting_that_has_no_meaning_here_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="there are no such columns here"):
        setting_named("logistic-regression", "weightCol", binary())
