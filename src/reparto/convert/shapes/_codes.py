"""Every diagnostic of the converter: code, reason, remedy. The page lists the same codes."""

from __future__ import annotations

from dataclasses import dataclass

from reparto.spec import Diagnostic, Place
from reparto.spec._program import Severity


@dataclass(frozen=True)
class Code:
    """A kind of diagnostic; ``reason`` and ``remedy`` may hold ``{fields}``."""

    code: str
    severity: Severity
    reason: str
    remedy: str = ""


_SINGLE = "run it on one worker with --strategy single"

_ALL = (
    # notes
    Code(
        "C101",
        "note",
        "nn.DataParallel is kept; each worker uses one device, so it has nothing to split",
        "it may be removed",
    ),
    Code(
        "C102",
        "note",
        "the batch is dimension {dim} here: {why}",
    ),
    # refusals
    Code("C200", "error", "syntax error: {message}", "correct the line; Python cannot read it"),
    Code(
        "C201",
        "error",
        "no loop that calls backward() and steps an optimizer was found",
        f"if it trains in a way that reparto does not see, {_SINGLE}",
    ),
    Code(
        "C202",
        "error",
        "reinforcement learning: each action depends on the environment's last answer "
        "({call}), so the steps of this loop cannot be shared out",
        f"{_SINGLE}; or train on recorded transitions in batches",
    ),
    Code(
        "C203",
        "error",
        "gradient-free search: each candidate is made from the one kept before it, so the "
        "iterations of this loop depend on each other and none has a gradient to share out",
        _SINGLE,
    ),
    Code(
        "C204",
        "error",
        "the model is trained on one sample at a time ({call}): a batch of one cannot be "
        "shared out",
        f"collect samples into batches (a DataLoader does); or {_SINGLE}",
    ),
    Code(
        "C205",
        "error",
        "the analysis of this script failed ({message}); this is a defect of reparto",
        f"report it; meanwhile {_SINGLE}",
    ),
    # unchanged
    Code("C301", "note", "the script distributes itself with {what}; it is left as it is"),
    Code("C302", "note", "the script starts its own processes or threads ({what})"),
    Code("C303", "note", "the script already uses reparto"),
    # warnings
    Code(
        "C401",
        "warning",
        "this loader has batches of one sample: only one worker computes at a time",
        "raise batch_size if the training allows it",
    ),
)

CODES: dict[str, Code] = {code.code: code for code in _ALL}


def diagnostic(code: str, place: Place, **fields: object) -> Diagnostic:
    """Make a diagnostic of a known code at a place."""
    kind = CODES[code]
    return Diagnostic(
        code=code,
        severity=kind.severity,
        place=place,
        reason=kind.reason.format(**fields),
        remedy=kind.remedy.format(**fields),
    )
