"""What a trained estimator is kept in: ``model.skops``. Reading it executes nothing of it.

skops makes only objects whose types it is told to trust. What it knows itself (numpy, plain
scikit-learn estimators) and the types named here hold numbers; nothing else is made.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from reparto.errors import MissingExtraError, UsageError

NAME = "model.skops"
#: Types of scikit-learn that skops does not know by itself: numbers, and no code of the file's.
TRUSTED = (
    "scipy.sparse._csr.csr_matrix",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.EuclideanDistance32",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance32",
    "sklearn.neighbors._ball_tree.BallTree64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neighbors._kd_tree.KDTree64",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
)


def write_kept(state: dict[str, Any], folder: Path) -> None:
    """Write it.

    Raises:
        MissingExtraError: If skops is not installed.
        ValueError: If it holds something that could not be read back.
    """
    skops_io = _skops()
    data = skops_io.dumps(state)
    strange = set(skops_io.get_untrusted_types(data=data)) - set(TRUSTED)
    if strange:
        raise ValueError(f"the model holds {', '.join(sorted(strange))}, which is not trusted")
    (folder / NAME).write_bytes(data)


def read_kept(folder: Path) -> dict[str, Any]:
    """Read it.

    Raises:
        MissingExtraError: If skops is not installed.
        UsageError: If it is not there, or holds types that no technique of ours writes.
    """
    skops_io = _skops()
    path = folder / NAME
    if not path.exists():
        raise UsageError(f"there is no {path}", remedy="search again: the model is not whole")
    data = path.read_bytes()
    try:
        strange = set(skops_io.get_untrusted_types(data=data)) - set(TRUSTED)
    except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: {error}", remedy="it was changed; search again") from error
    if strange:
        raise UsageError(
            f"{path} holds {', '.join(sorted(strange))}: reparto writes no such thing",
            remedy="do not use this file",
        )
    found: dict[str, Any] = skops_io.loads(data, trusted=list(TRUSTED))
    return found


def _skops() -> Any:
    try:
        from reparto.search.techniques._skops import skops_io
    except ImportError as error:
        raise MissingExtraError("skops", "search") from error
    return skops_io
