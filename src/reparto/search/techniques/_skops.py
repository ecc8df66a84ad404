"""``skops.io``, imported without torch, which takes seconds.

It looks into each module of scikit-learn, and one of them is for torch. Workers import this before
they fork, so that saving takes no time.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from collections.abc import Iterator
from typing import Any


class _NoTorch(importlib.abc.MetaPathFinder):
    """Lets the import of torch fail, as if it were not installed.

    ``sys.modules["torch"] = None`` would do so too, but SciPy takes what it finds there for a
    module, and fails.
    """

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        """Refuse torch; of others nothing is known."""
        if name == "torch":
            raise ModuleNotFoundError("torch is left out for now", name=name)


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    finder = _NoTorch()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _without_torch():
    import skops.io as skops_io

__all__ = ["skops_io"]
