"""Multilayer perceptron, scikit-learn's, by Spark MLlib's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reparto.errors import UsageError
from reparto.search._space import Choice, Float, Space
from reparto.search.techniques import _linear_params as common
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import Flag, Number, OneOf, Param, Params, Several, Whole
from reparto.search.techniques._prepare import Kind
from reparto.search.techniques._tree_params import THRESHOLD, THRESHOLDS
from reparto.spec import Domain, Settings, TableFacts

_SOLVERS = {"l-bfgs": "lbfgs", "gd": "sgd", "adam": "adam"}
_ACTIVATIONS = {"sigmoid": "logistic", "relu": "relu", "tanh": "tanh"}


class _PerceptronTrainer(EstimatorTrainer):
    # scikit-learn's solvers begin anew with each call of `fit`: trained in parts it would be
    # another network than the one that is trained at once in the end.
    goes_on = False

    def _preparation(self) -> Kind:
        return "scaled" if self.settings["standardization"] else "encoded"

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn.neural_network import MLPClassifier

        settings = self.settings
        solver = _SOLVERS[settings["solver"]]
        # MLlib's gradient descent takes all rows at each step.
        batch = num_rows if solver == "sgd" else min(settings["batch_size"], num_rows)
        stops = settings["early_stopping"] and solver == "adam" and num_rows >= 100
        if stops and self.has_kin:
            self._notes.append(
                "early_stopping is left out: it would go by rows that are drawn at random, and "
                "folds are by groups or by time"
            )
            stops = False
        return MLPClassifier(
            hidden_layer_sizes=hidden_of(settings),
            activation=_ACTIVATIONS[settings["activation"]],
            solver=solver,
            alpha=settings["l2"],
            batch_size=batch,
            learning_rate_init=settings["step_size"],
            max_iter=settings["max_iter"],
            tol=settings["tol"],
            early_stopping=stops,
            random_state=self.seed,
        )


class MultilayerPerceptron(EstimatorTechnique):
    """Layers of sums and bends. System D's; defaults are Spark MLlib's."""

    kind = "multilayer-perceptron"
    domains = ("binary", "multiclass")
    resource = "rows"
    takes_sparse = True
    is_modern = False
    trains = _PerceptronTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set; ``layers`` are MLlib's: columns, hidden ones, classes."""
        solvers = OneOf(tuple(_SOLVERS), (("lbfgs", "l-bfgs"), ("sgd", "gd")))
        activations = OneOf(tuple(_ACTIVATIONS), (("logistic", "sigmoid"),))
        return Params(
            self.kind,
            (
                Param("layers", Several(Whole(1), 2), None),
                Param("hidden_layers", Several(Whole(1)), None, ("hidden_layer_sizes",)),
                Param("activation", activations, "sigmoid"),
                Param("solver", solvers, "l-bfgs"),
                common.MAX_ITER,
                common.tolerance(1e-6),
                Param("step_size", Number(0.0, above=True), 0.03, ("learning_rate",)),
                Param("batch_size", Whole(1), 128),
                Param("l2", Number(0.0), 0.0, ("alpha",)),
                Param("early_stopping", Flag(), False),
                common.STANDARDIZATION,
                *THRESHOLDS,
                THRESHOLD,
                common.SEED,
                Param(
                    "block_size",
                    Whole(1),
                    unused="it is how many rows Spark multiplies at once",
                ),
                *common.IDLE,
            ),
        )

    def check_read(self, read: Mapping[str, Any], facts: TableFacts) -> None:
        """MLlib's layers begin with the columns and end with the classes."""
        layers = read["layers"]
        if layers is None:
            return
        if read["hidden_layers"] is not None:
            raise UsageError(
                f"{self.kind} is given layers and hidden_layers, which say the same",
                remedy="leave one of them out",
            )
        ends = (facts.num_columns, len(facts.classes))
        if (layers[0], layers[-1]) != ends:
            raise UsageError(
                f"{self.kind}: layers are {list(layers)}, and the table has {ends[0]} columns and "
                f"{ends[1]} classes",
                remedy=f"take {[ends[0], *layers[1:-1], ends[1]]}, or name hidden_layers alone",
            )

    def space(self, facts: TableFacts) -> Space:
        """Layers, their size, and steps."""
        return {
            "hidden_layers": Choice(((32,), (64,), (128,), (64, 32), (128, 64))),
            "activation": Choice(("relu", "tanh", "sigmoid")),
            "solver": Choice(("adam", "l-bfgs")),
            "l2": Float(1e-6, 10.0, log=True),
            "step_size": Float(3e-4, 0.03, log=True),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Adam with bent halves, and MLlib's way."""
        return (
            {
                "hidden_layers": (64, 32),
                "activation": "relu",
                "solver": "adam",
                "l2": 1e-3,
                "step_size": 0.003,
            },
            {
                "hidden_layers": (32,),
                "activation": "sigmoid",
                "solver": "l-bfgs",
                "l2": 1.0,
                "step_size": 0.03,
            },
        )


def hidden_of(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Sizes of the layers between the columns and the classes."""
    if settings["layers"] is not None:
        return tuple(settings["layers"][1:-1])
    hidden = settings["hidden_layers"]
    return (32,) if hidden is None else tuple(hidden)
