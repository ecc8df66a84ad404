"""MLlib's algorithms as techniques: their names, what is searched, how rows are prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from reparto.errors import UsageError
from reparto.search._space import Choice, Float, Int, Space
from reparto.search._spark._mllib import MLlib
from reparto.search._spark._prepare import Way, num_slots
from reparto.search.techniques._names import kind_named, plain
from reparto.spec import Domain, Settings, TableFacts

_CLASSES: tuple[Domain, ...] = ("binary", "multiclass")
_ALL: tuple[Domain, ...] = ("regression", *_CLASSES)

#: Of trees, levels of a category are parted if there are no more of them than bins.
_BINS = 32


class LinearRegression(MLlib):
    """Least squares, with penalties."""

    kind = "linear-regression"
    domains = ("regression",)
    estimators: ClassVar = {"regression": "regression.LinearRegression"}

    def space(self, facts: TableFacts) -> Space:
        """The penalties."""
        return {"regParam": Float(1e-6, 10.0, log=True), "elasticNetParam": Float(0.0, 1.0)}

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Nearly none, and a lasso."""
        return (
            {"regParam": 1e-6, "elasticNetParam": 0.0},
            {"regParam": 0.1, "elasticNetParam": 1.0},
        )


class GeneralizedLinear(MLlib):
    """Generalized linear regression: the target's distribution and link are chosen."""

    kind = "generalized-linear"
    domains = ("regression",)
    estimators: ClassVar = {"regression": "regression.GeneralizedLinearRegression"}

    def way(self, settings: Settings, facts: TableFacts) -> Way:
        """Scaled: it is fitted by weighted least squares."""
        return "scaled"

    def space(self, facts: TableFacts) -> Space:
        """The penalty."""
        return {"family": Choice(("gaussian",)), "regParam": Float(1e-6, 10.0, log=True)}

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Nearly no penalty."""
        return ({"family": "gaussian", "regParam": 1e-6},)


class _Trees(MLlib):
    def way(self, settings: Settings, facts: TableFacts) -> Way:
        """Levels are parted where there are bins for them, and are columns where there are not."""
        named = {self.setting_named(name, facts): value for name, value in settings.items()}
        bins = int(named.get("maxBins", _BINS))
        return "placed" if all(len(it.levels) < bins for it in facts.columns) else "plain"


class DecisionTree(_Trees):
    """One tree."""

    kind = "decision-tree"
    domains = _ALL
    estimators: ClassVar = {
        "regression": "regression.DecisionTreeRegressor",
        **dict.fromkeys(_CLASSES, "classification.DecisionTreeClassifier"),
    }

    def space(self, facts: TableFacts) -> Space:
        """How far it grows."""
        return {
            "maxDepth": Int(2, 15),
            "minInstancesPerNode": Int(1, 100, log=True),
            "maxBins": Choice((32, 64, 128)),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """MLlib's own, and a deeper one."""
        return (
            {"maxDepth": 5, "minInstancesPerNode": 1, "maxBins": 32},
            {"maxDepth": 10, "minInstancesPerNode": 10, "maxBins": 64},
        )


class RandomForest(_Trees):
    """Many trees, each on a sample."""

    kind = "random-forest"
    domains = _ALL
    estimators: ClassVar = {
        "regression": "regression.RandomForestRegressor",
        **dict.fromkeys(_CLASSES, "classification.RandomForestClassifier"),
    }

    def space(self, facts: TableFacts) -> Space:
        """How many, how far they grow, and what each sees."""
        return {
            "numTrees": Int(20, 200, log=True),
            "maxDepth": Int(3, 15),
            "minInstancesPerNode": Int(1, 20, log=True),
            "featureSubsetStrategy": Choice(("auto", "sqrt", "onethird")),
            "subsamplingRate": Float(0.3, 1.0),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """MLlib's own, and deeper ones."""
        own = {"minInstancesPerNode": 1, "featureSubsetStrategy": "auto", "subsamplingRate": 1.0}
        return (
            {"numTrees": 20, "maxDepth": 5, **own},
            {"numTrees": 100, "maxDepth": 10, **own},
        )


class GradientBoostedTrees(_Trees):
    """Trees, each of which corrects those before."""

    kind = "gradient-boosted-trees"
    domains = ("regression", "binary")
    estimators: ClassVar = {
        "regression": "regression.GBTRegressor",
        "binary": "classification.GBTClassifier",
    }

    def space(self, facts: TableFacts) -> Space:
        """How many, how far they grow, and how much each corrects."""
        return {
            "maxIter": Int(10, 100, log=True),
            "maxDepth": Int(2, 8),
            "stepSize": Float(0.02, 0.5, log=True),
            "subsamplingRate": Float(0.5, 1.0),
            "minInstancesPerNode": Int(1, 50, log=True),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """MLlib's own, and a slower one."""
        own = {"subsamplingRate": 1.0, "minInstancesPerNode": 1}
        return (
            {"maxIter": 20, "maxDepth": 5, "stepSize": 0.1, **own},
            {"maxIter": 60, "maxDepth": 4, "stepSize": 0.1, **own},
        )


class LinearSVM(MLlib):
    """Two classes parted by a plane with a margin."""

    kind = "linear-svm"
    domains = ("binary",)
    estimators: ClassVar = {"binary": "classification.LinearSVC"}

    def space(self, facts: TableFacts) -> Space:
        """The penalty."""
        return {"regParam": Float(1e-6, 1.0, log=True), "maxIter": Choice((100,))}

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """A weak penalty."""
        return ({"regParam": 1e-3, "maxIter": 100},)


class LogisticRegression(MLlib):
    """Binomial and multinomial logistic regression: ``family``."""

    kind = "logistic-regression"
    domains = _CLASSES
    estimators: ClassVar = dict.fromkeys(_CLASSES, "classification.LogisticRegression")

    def space(self, facts: TableFacts) -> Space:
        """The penalties."""
        return {"regParam": Float(1e-6, 1.0, log=True), "elasticNetParam": Float(0.0, 1.0)}

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Weak penalties."""
        return (
            {"regParam": 1e-3, "elasticNetParam": 0.0},
            {"regParam": 1e-2, "elasticNetParam": 1.0},
        )

    def check(self, settings: Settings, facts: TableFacts) -> None:
        """A binomial model tells two classes apart.

        Raises:
            UsageError: If it is asked to tell more.
        """
        super().check(settings, facts)
        if facts.domain == "multiclass" and settings.get("family") == "binomial":
            raise UsageError(
                f"{self.kind}: the family binomial is for two classes, and there are "
                f"{len(facts.classes)}",
                remedy="take the family multinomial, or auto",
            )


class NaiveBayes(MLlib):
    """Naive Bayes of four kinds: ``modelType``."""

    kind = "naive-bayes"
    domains = _CLASSES
    estimators: ClassVar = dict.fromkeys(_CLASSES, "classification.NaiveBayes")

    def way(self, settings: Settings, facts: TableFacts) -> Way:
        """Counts may not be negative, and Bernoulli's bits are bits."""
        named = {self.setting_named(name, facts): value for name, value in settings.items()}
        model = named.get("modelType", "multinomial")
        return {"gaussian": "plain", "bernoulli": "bits"}.get(str(model), "counts")  # type: ignore[return-value]

    def space(self, facts: TableFacts) -> Space:
        """Which kind, and how much is added to counts."""
        return {
            "modelType": Choice(("gaussian", "multinomial", "complement")),
            "smoothing": Float(1e-3, 10.0, log=True),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Measurements first, then counts."""
        return (
            {"modelType": "gaussian", "smoothing": 1.0},
            {"modelType": "multinomial", "smoothing": 1.0},
        )


class MultilayerPerceptron(MLlib):
    """A network of sigmoid layers; ``layers`` are all of them, inputs and classes too."""

    kind = "multilayer-perceptron"
    domains = _CLASSES
    estimators: ClassVar = dict.fromkeys(_CLASSES, "classification.MultilayerPerceptronClassifier")

    def way(self, settings: Settings, facts: TableFacts) -> Way:
        """Scaled, as sigmoids want it."""
        return "scaled"

    def layers(self, facts: TableFacts, *hidden: int) -> tuple[int, ...]:
        """All layers: as many inputs as there are slots, as many outputs as classes."""
        return (num_slots(facts, "scaled"), *hidden, len(facts.classes))

    def estimator(self, settings: Settings, facts: TableFacts, seed: int = 0) -> Any:
        """MLlib has no default for its layers."""
        names = {plain(name) for name in settings}
        given = settings if "layers" in names else {**settings, "layers": self.layers(facts, 64)}
        return super().estimator(given, facts, seed)

    def space(self, facts: TableFacts) -> Space:
        """The hidden layers, and how long they learn."""
        hidden = ((32,), (64,), (128,), (64, 32))
        return {
            "layers": Choice(tuple(self.layers(facts, *one) for one in hidden)),
            "maxIter": Int(50, 300, log=True),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """One hidden layer."""
        return ({"layers": self.layers(facts, 64), "maxIter": 100},)

    def check(self, settings: Settings, facts: TableFacts) -> None:
        """Its first layer is as wide as the rows, its last one has a unit for each class.

        Raises:
            UsageError: If not.
        """
        super().check(settings, facts)
        layers = settings.get("layers")
        right = self.layers(facts)
        if layers is None or (layers[0], layers[-1]) == right:
            return
        raise UsageError(
            f"{self.kind}: layers is {list(layers)}, and rows have {right[0]} inputs and "
            f"{right[1]} classes here",
            remedy=f"give {[right[0], *layers[1:-1], right[1]]}",
        )


class KMeans(MLlib):
    """So many centers, and each row belongs to the nearest."""

    kind = "k-means"
    domains = ("clustering",)
    estimators: ClassVar = {"clustering": "clustering.KMeans"}

    def way(self, settings: Settings, facts: TableFacts) -> Way:
        """Scaled: columns count alike."""
        return "scaled"

    def space(self, facts: TableFacts) -> Space:
        """How many."""
        return {"k": Int(2, 12)}

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Few."""
        return ({"k": 2}, {"k": 3}, {"k": 5})


class GaussianMixture(KMeans):
    """So many normal distributions, and each row belongs to the likeliest."""

    kind = "gaussian-mixture"
    estimators: ClassVar = {"clustering": "clustering.GaussianMixture"}


SPARK_TECHNIQUES: Mapping[str, MLlib] = {
    one.kind: one
    for one in (
        LogisticRegression(), LinearRegression(), RandomForest(), GradientBoostedTrees(),
        DecisionTree(), NaiveBayes(), LinearSVM(), MultilayerPerceptron(), GeneralizedLinear(),
        KMeans(), GaussianMixture(),
    )
}  # fmt: skip


def spark_technique_named(name: str) -> MLlib:
    """Find one by its name, or by what other programs call it.

    Raises:
        UsageError: If MLlib has none of that name.
    """
    try:
        return SPARK_TECHNIQUES[kind_named(name, tuple(SPARK_TECHNIQUES))]
    except UsageError as error:
        raise UsageError(f"{error.message} on Spark", remedy=error.remedy) from error


def spark_techniques_for(facts: TableFacts, asked: Sequence[str]) -> list[MLlib]:
    """Those that are to be tried: the ones that are asked for, or all that suit the domain.

    Raises:
        UsageError: If one that is asked for is none of MLlib's, or does not suit.
    """
    suited = [one for one in SPARK_TECHNIQUES.values() if facts.domain in one.domains]
    if not asked:
        return suited
    found = list(dict.fromkeys(map(spark_technique_named, asked)))
    for one in found:
        if one not in suited:
            raise UsageError(
                f"{one.kind} on Spark is for {' and '.join(one.domains)}, and this is a "
                f"{facts.domain} problem",
                remedy=f"take one of {', '.join(it.kind for it in suited)}",
            )
    return found
