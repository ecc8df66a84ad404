"""The path of a conversion: read, gather, decide, rewrite."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from reparto.convert._accelerated import accelerated
from reparto.convert._result import Converted, Refused, Result, Unchanged
from reparto.convert.gather import Facts, Source, SourceError, gather, load, parse
from reparto.convert.rewrite import Share, apply
from reparto.convert.shapes import Decision, every_shape
from reparto.convert.shapes._codes import diagnostic
from reparto.errors import UsageError
from reparto.spec import Diagnostic, Place, Program, SourceFile


def convert(script: Path, args: Sequence[str] = ()) -> Result:
    """Turn a sequential training script into one that workers share out.

    Args:
        script: The script; its own modules are found from its folder.
        args: The script's own arguments, kept with the program.

    Returns:
        Converted, Unchanged (it distributes itself already) or Refused (with the reason and
        the place). Never raises on what a script contains.

    Raises:
        UsageError: If the script is missing or cannot be read.

    Example:
        >>> result = convert(Path("train.py"))  # doctest: +SKIP
        >>> print(diff(result.program))         # doctest: +SKIP
    """
    path = Path(script).absolute()
    found = _convert(script, path, args, anywhere=False)
    if isinstance(found, Refused) and {one.code for one in found.program.diagnostics} == {"C201"}:
        # The loop may be in a package of the user's that does not lie beside the script.
        elsewhere = _convert(script, path, args, anywhere=True)
        if len(elsewhere.program.files) > len(found.program.files):
            return elsewhere
    return found


def accelerate(script: Path, args: Sequence[str] = ()) -> Program:
    """The script as an accelerated run takes it, on one worker; see `_accelerated`.

    Args:
        script: The script; its own modules are found from its folder.
        args: The script's own arguments, kept with the program.

    Returns:
        A program that differs from the script only in when numbers are read. A script that
        cannot be read as Python comes back as it is.

    Raises:
        UsageError: If the script is missing.
    """
    path = Path(script).absolute()
    try:
        sources = load(path, anywhere=False)
    except OSError as error:
        raise UsageError(
            f"{script}: {error.strerror or error}", remedy="give the path of a Python script"
        ) from error
    except SourceError:
        text = path.read_bytes().decode(errors="replace")
        file = SourceFile(path=str(path), module="__main__", original=text, converted=text)
        return Program(script=str(path), args=tuple(args), files=(file,))
    files = []
    for index, (source, before) in enumerate(zip(sources, _originals(sources), strict=True)):
        converted = accelerated(source, is_script=index == 0)
        parse(converted, source.path)  # a wrong edit must not reach a worker
        files.append(replace(before, converted=converted))
    return Program(script=str(path), args=tuple(args), files=tuple(files))


def _convert(script: Path, path: Path, args: Sequence[str], *, anywhere: bool) -> Result:
    try:
        sources = load(path, anywhere=anywhere)
    except OSError as error:
        raise UsageError(
            f"{script}: {error.strerror or error}", remedy="give the path of a Python script"
        ) from error
    except SourceError as error:
        found = diagnostic("C200", error.place, message=error.reason)
        text = error.text if error.place.file == str(path) else ""
        file = SourceFile(path=str(path), module="__main__", original=text, converted=text)
        return Refused(
            program=Program(
                script=str(path), args=tuple(args), files=(file,), diagnostics=(found,)
            )
        )
    try:
        decision = _decide(gather(sources))
        files = _files(sources, decision)
    except Exception as error:  # a defect of ours must not stop the user without a word
        message = f"{type(error).__name__}: {error}"
        found = diagnostic("C205", Place(file=str(path), line=1), message=message)
        return Refused(program=_program(path, args, _originals(sources), [found]))
    return _result(path, args, sources, decision, files)


def _decide(facts: Facts) -> Decision:
    whole = Decision()
    for shape in every_shape():
        part = shape.find(facts)
        whole.edits += part.edits
        whole.findings += part.findings
        whole.diagnostics += part.diagnostics
        if part.launch is not None:
            whole.launch, whole.reason = part.launch, part.reason
            return whole
        if any(found.severity == "error" for found in part.diagnostics):
            return whole  # one good reason is enough
    return whole


def _result(
    path: Path,
    args: Sequence[str],
    sources: list[Source],
    decision: Decision,
    files: tuple[SourceFile, ...],
) -> Result:
    if decision.launch is not None:
        program = _program(
            path, args, _originals(sources), decision.diagnostics, decision, decision.launch
        )
        return Unchanged(program=program, reason=decision.reason)
    refused = any(found.severity == "error" for found in decision.diagnostics)
    if refused:
        files = _originals(sources)
    program = _program(path, args, files, decision.diagnostics, decision)
    return Refused(program=program) if refused else Converted(program=program)


def _program(
    path: Path,
    args: Sequence[str],
    files: tuple[SourceFile, ...],
    diagnostics: Sequence[Diagnostic],
    decision: Decision | None = None,
    launch: Literal["reparto", "torchrun", "plain"] = "reparto",
) -> Program:
    findings = sorted(
        decision.findings if decision else (),
        key=lambda found: (found.place.file != str(path), found.place.file, found.place.line),
    )
    return Program(
        script=str(path),
        args=tuple(args),
        files=files,
        findings=tuple(findings),
        diagnostics=tuple(diagnostics),
        launch=launch,
    )


def _originals(sources: list[Source]) -> tuple[SourceFile, ...]:
    return tuple(
        SourceFile(
            path=str(source.path),
            module=source.module,
            original=source.text,
            converted=source.text,
        )
        for source in sources
    )


def _files(sources: list[Source], decision: Decision) -> tuple[SourceFile, ...]:
    files = []
    for index, source in enumerate(sources):
        edits = [edit for edit in decision.edits if _anchor(edit) in source.parents]
        converted = apply(source, edits, is_script=index == 0)
        parse(converted, source.path)  # a wrong edit must not reach a worker
        files.append(
            SourceFile(
                path=str(source.path),
                module=source.module,
                original=source.text,
                converted=converted,
            )
        )
    return tuple(files)


def _anchor(edit: object) -> ast.AST:
    return edit.before if isinstance(edit, Share) else edit.node  # type: ignore[attr-defined]
