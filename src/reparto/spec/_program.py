"""Program: a user's script as reparto understood it, and what it became."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "warning", "error"]

_GPU_WORDS = re.compile(r"\bcuda\b|\baccelerator\b|gpu", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in the user's source; lines and columns count from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """Something the user should know about the conversion.

    Attributes:
        code: Stable, e.g. ``C201``; ``docs/reference/diagnostics.md`` lists them.
        severity: ``error`` means that the script is refused.
        place: Where in the user's source.
        reason: What was found, and why it matters.
        remedy: What to do about it; may be empty for notes.
    """

    code: str
    severity: Severity
    place: Place
    reason: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fact that the analysis found: a model, a loader, a loop, a reduction, a side effect.

    Attributes:
        kind: ``model optimizer loader loop batch reduction side-effect noise decision``.
        name: The variable, as the user wrote it.
        detail: One line for people: class, iterable, what is summed, ...
        place: Where in the user's source.
        rewritten: What was changed there, in words; empty where nothing was.
    """

    kind: str
    name: str
    detail: str
    place: Place
    rewritten: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file of the user's, before and after.

    Attributes:
        path: Absolute path on the machine where the conversion ran.
        module: Dotted name under which the script imports it; ``__main__`` for the script.
        original: The text as it was read.
        converted: The text that workers run; equal to ``original`` where nothing changed.
    """

    path: str
    module: str
    original: str
    converted: str

    @property
    def changed(self) -> bool:
        """Whether the conversion changed this file."""
        return self.original != self.converted


@dataclass(frozen=True, kw_only=True)
class Program:
    """A script with its own modules, analysed and converted.

    Attributes:
        script: Absolute path of the script.
        args: The script's own arguments.
        files: The script first, then each of the user's modules that it imports.
        findings: What the analysis found.
        diagnostics: What the user should know.
        launch: ``reparto`` for a converted script; ``torchrun`` for one that already
            distributes itself and expects RANK, WORLD_SIZE and MASTER_ADDR; ``plain`` for one
            that starts its own processes or has nothing to share out.
    """

    script: str
    args: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()
    findings: tuple[Finding, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    launch: Literal["reparto", "torchrun", "plain"] = "reparto"

    @property
    def names_gpu(self) -> bool:
        """Whether the script mentions a GPU anywhere: it may then ask for one."""
        return any(_GPU_WORDS.search(file.original) for file in self.files)
