"""The best technique and settings for a data set, found in parallel within a budget.

request ──► setup (table, folds, techniques) ──► conduct ⇄ crew of workers ──► finish ──► report
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reparto.search._watch import SearchWatcher

if TYPE_CHECKING:
    from reparto.search._model import Model, load
    from reparto.search._request import read_request
    from reparto.search._search import search

__all__ = ["Model", "SearchWatcher", "load", "read_request", "search"]

_WHERE = {"Model": "_model", "load": "_model", "read_request": "_request", "search": "_search"}


def __getattr__(name: str) -> Any:
    """Import on first use: scikit-learn and others take a second."""
    from importlib import import_module

    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
