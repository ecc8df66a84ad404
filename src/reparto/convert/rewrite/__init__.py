"""Edits of a script: they carry out what was decided, and decide nothing.

Edits work on the text at the places that the syntax tree gives, so that every character
outside of them (comments, spacing, quotes) stays as the user wrote it.
"""

from reparto.convert.rewrite._apply import apply
from reparto.convert.rewrite._edits import Edit, Share, Wrap

__all__ = ["Edit", "Share", "Wrap", "apply"]
