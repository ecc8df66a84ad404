"""Facts about a script: visitors that look and change nothing.

From the bottom up: ``_source`` reads files, ``_scopes`` finds who binds which name,
``_evaluate`` says what an expression may be, ``_effects`` what a piece of code does,
``_loops`` which loops train. ``Facts`` holds them all; shapes read it.
"""

from reparto.convert.gather._facts import Facts, gather
from reparto.convert.gather._source import Source, SourceError, load, parse

__all__ = ["Facts", "Source", "SourceError", "gather", "load", "parse"]
