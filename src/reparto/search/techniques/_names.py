"""Names of techniques: ours, and those by which people and other systems call them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from reparto.errors import UsageError

#: What others call them, without the signs between words.
SPELLINGS: Mapping[str, str] = {
    **dict.fromkeys("linear ols linearmodel leastsquares".split(), "linear-regression"),
    **dict.fromkeys("elasticnetcv ridge lasso glmnet ridgeregression".split(), "elastic-net"),
    **dict.fromkeys(
        "glm generalizedlinearregression generalisedlinearregression generalizedlinearmodel "
        "generalisedlinear tweedie poissonregression".split(),
        "generalized-linear",
    ),
    **dict.fromkeys("rf randomforests forest".split(), "random-forest"),
    **dict.fromkeys("xt et extratree extremelyrandomizedtrees".split(), "extra-trees"),
    **dict.fromkeys("tree dt cart decisiontrees".split(), "decision-tree"),
    **dict.fromkeys(
        "gbt gbts gbm gbdt gradientboostedtree gradientboostingtrees gradientboosting "
        "gradientboost boostedtrees".split(),
        "gradient-boosted-trees",
    ),
    **dict.fromkeys(
        "hist histgb hgb histgradientboosting histogramboosting histogramgradientboosting".split(),
        "hist-boosting",
    ),
    **dict.fromkeys("lgbm lgb lightgradientboosting".split(), "lightgbm"),
    **dict.fromkeys("linearsvc lsvc linearsupportvectormachine svmlinear".split(), "linear-svm"),
    **dict.fromkeys(
        "svc svr kernelsvm rbfsvm supportvectormachine supportvectormachines svms nusvr nusvc "
        "libsvm".split(),
        "svm",
    ),
    **dict.fromkeys(
        "logistic logit lr binomiallogisticregression multinomiallogisticregression "
        "binomiallogistic multinomiallogistic logisticregressionbinomial "
        "logisticregressionmultinomial softmaxregression binarylogisticregression".split(),
        "logistic-regression",
    ),
    **dict.fromkeys(
        "nb bayes gaussiannb multinomialnb bernoullinb complementnb".split(), "naive-bayes"
    ),
    **dict.fromkeys(
        "mlp multilayerperceptrons perceptron mlpclassifier".split(), "multilayer-perceptron"
    ),
    **dict.fromkeys(
        "knn neighbors neighbours kneighbours kneighbor kneighbour nearestneighbors "
        "nearestneighbours knearestneighbors knearestneighbours".split(),
        "k-neighbors",
    ),
    **dict.fromkeys("kmeansclustering kmean".split(), "k-means"),
    **dict.fromkeys(
        "gmm gaussianmixturemodel gaussianmixtures mixtureofgaussians".split(), "gaussian-mixture"
    ),
    **dict.fromkeys(
        "neuralnetwork tabularnetwork nn net torch deeplearning neuralnet resnet".split(),
        "network",
    ),
}
_ENDINGS = ("classifier", "classification", "regressor", "regression", "model", "clustering")


def plain(name: str) -> str:
    """A name without the signs between words."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def kind_named(name: str, kinds: tuple[str, ...]) -> str:
    """Which of the kinds that is.

    Args:
        name: As people or other systems write it: ``RandomForestClassifier``, ``random_forest``.
        kinds: Those that there are.

    Raises:
        UsageError: If it is none of them; tells those that are nearly called so.
    """
    known = {other: kind for other, kind in SPELLINGS.items() if kind in kinds}
    known |= {plain(kind): kind for kind in kinds}
    found = plain(name)
    tries = [found]
    tries += [found.removesuffix(one) for one in _ENDINGS if found.endswith(one)]
    tries += [one + more for one in tries for more in ("regression", "trees", "tree")]
    for one in tries:
        if one in known:
            return known[one]
    close = difflib.get_close_matches(tries[-1], list(known), 3, 0.6)
    close += difflib.get_close_matches(found, list(known), 3, 0.6)
    hints = list(dict.fromkeys(known[one] for one in close))[:3]
    hint = f"did you mean {' or '.join(hints)}? " if hints else ""
    raise UsageError(
        f"there is no technique {name!r}", remedy=f"{hint}there are {', '.join(kinds)}"
    )
