"""Answers: what candidates said of rows that they were not trained on, kept in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reparto.search._rows import Answer


class Answers:
    """One file a candidate, so that thousands of candidates take no memory.

    Args:
        folder: Where files go; it is made when the first is kept.

    Attributes:
        trouble: Why the latest are not kept; empty if they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.trouble = ""

    def keep(self, number: int, answers: Sequence[Answer]) -> None:
        """Of a candidate, for each fold; where that cannot be written, `trouble` says why."""
        self.trouble = ""
        if not answers:
            return
        try:
            self._write(number, answers)
        except OSError as error:
            self.trouble = f"{self._folder}: {error.strerror or error}"

    def _write(self, number: int, answers: Sequence[Answer]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        arrays = {f"fold{fold}": one.values for fold, one in enumerate(answers)}
        flags = np.array([one.are_probabilities for one in answers])
        part = self._folder / f"{number}.part.npz"
        np.savez(part, probabilities=flags, **arrays)  # type: ignore[arg-type]
        part.replace(self._path(number))

    def of(self, number: int) -> list[Answer] | None:
        """For each fold; None if they are not there."""
        try:
            with np.load(self._path(number), allow_pickle=False) as kept:
                flags = kept["probabilities"]
                return [Answer(kept[f"fold{i}"], bool(it)) for i, it in enumerate(flags)]
        except (OSError, KeyError, ValueError):
            return None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.npz"
