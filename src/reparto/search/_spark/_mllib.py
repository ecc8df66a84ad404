"""MLlib: what all its algorithms have in common: params that MLlib itself checks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from reparto.errors import UsageError
from reparto.search._spark._prepare import Way
from reparto.search._spark._typed import FEATURES, LABEL
from reparto.search.techniques._base import Setting, Technique, Trainer
from reparto.search.techniques._names import plain
from reparto.spec import Domain, Settings, TableFacts

#: What MLlib's estimators take, and a search does not let be set.
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("thresholds", "threshold"), "the likeliest class is the answer, as with all techniques"
    ),
    **dict.fromkeys(
        (
            "lowerBoundsOnCoefficients",
            "upperBoundsOnCoefficients",
            "lowerBoundsOnIntercepts",
            "upperBoundsOnIntercepts",
            "initialWeights",
        ),
        "it is a matrix, which a request cannot hold",
    ),
}


class MLlib(Technique):
    """An algorithm of MLlib. Its settings are MLlib's params, checked by MLlib itself.

    Attributes:
        estimators: By domain, the estimator's name in ``pyspark.ml``.
    """

    estimators: ClassVar[Mapping[Domain, str]]
    takes_sparse = True

    def way(self, settings: Settings, facts: TableFacts) -> Way:
        """How rows are prepared for it."""
        return "plain"

    def estimator(self, settings: Settings, facts: TableFacts, seed: int = 0) -> Any:
        """MLlib's estimator with these settings; needs a session.

        Raises:
            UsageError: If MLlib does not take them.
        """
        from pyspark.errors import IllegalArgumentException

        made = _class_named(self.estimators[facts.domain])()
        given = {self.setting_named(name, facts): value for name, value in settings.items()}
        for name, value in given.items():
            try:
                made._set(**{name: value})
                made._transfer_params_to_java()
            except (TypeError, ValueError, IllegalArgumentException) as error:
                raise UsageError(
                    f"{self.kind}: {name} cannot be {value!r}",
                    remedy=f"MLlib says of it: {made.explainParam(name).split(' (current')[0]}",
                ) from error
        own = {"featuresCol": FEATURES}
        if made.hasParam("labelCol"):
            own["labelCol"] = LABEL
        if made.hasParam("seed") and "seed" not in given:
            own["seed"] = seed  # type: ignore[assignment]
        return made._set(**own)

    def setting_named(self, name: str, facts: TableFacts) -> str:
        """MLlib's name of a param, whatever its signs between words: ``max-depth``, ``maxDepth``.

        Raises:
            UsageError: If there is none, or it is not for a search to set.
        """
        cls = _class_named(self.estimators[facts.domain])
        known = {plain(one): one for one in _param_names(cls)}
        found = known.get(plain(name))
        why = _REFUSED.get(found or "") or (
            "columns are told by the table" if (found or "").endswith("Col") else ""
        )
        if found is not None and not why:
            return found
        own = sorted(
            one for one in known.values() if not one.endswith("Col") and one not in _REFUSED
        )
        raise UsageError(
            f"{self.kind} on Spark has no setting {name!r}" + (f": {why}" if why else ""),
            remedy=f"MLlib's {self.estimators[facts.domain]} has {', '.join(own)}",
        )

    def check(self, settings: Settings, facts: TableFacts) -> None:
        """Ask MLlib whether it takes these settings.

        Raises:
            UsageError: Says which it does not take, and what MLlib says of it.
        """
        self.estimator(settings, facts)

    def trainer(self, settings: Settings, setting: Setting) -> Trainer:
        """Refuse: it is the cluster that trains it.

        Raises:
            UsageError: Always.
        """
        raise UsageError(f"{self.kind} of MLlib is trained on a cluster", remedy="--engine spark")

    def load(self, folder: Path, about: Mapping[str, Any]) -> Trainer:
        """What was brought home from the cluster."""
        from reparto.search._spark._brought import load_brought

        return load_brought(folder, about["facts"])


def _class_named(name: str) -> Any:
    from importlib import import_module

    module, _, own = name.partition(".")
    return getattr(import_module(f"pyspark.ml.{module}"), own)


def _param_names(cls: Any) -> list[str]:
    from pyspark.ml.param import Param

    return [name for name in dir(cls) if isinstance(getattr(cls, name, None), Param)]
