"""The nouns of reparto: frozen, strict, no torch. Reading this folder is reading the system."""

from reparto.spec._cluster import Cluster, Host, Line, Link
from reparto.spec._codec import finite, from_json, from_plain, to_json, to_plain
from reparto.spec._comparison import ComparedRun, Comparison, Waypoint
from reparto.spec._equality import (
    Divergence,
    ScalarDistance,
    StepDistance,
    TensorDistance,
    VerifyResult,
)
from reparto.spec._events import (
    Begin,
    Done,
    Event,
    Failed,
    Note,
    Output,
    Step,
    Stopping,
    Usage,
    decode,
)
from reparto.spec._job import Job
from reparto.spec._lab import Lab, LabHost, LabLink
from reparto.spec._lab_sweep import LabCell, LabSweep
from reparto.spec._plan import (
    Message,
    Pattern,
    Plan,
    Profile,
    StrategyConfig,
    Traffic,
    wire_bytes,
)
from reparto.spec._program import Diagnostic, Finding, Place, Program, SourceFile
from reparto.spec._run import Assignment, Failure, Options, RunResult, StepRecord
from reparto.spec._usage import HostUsage, Recording, UsageSample

__all__ = [
    "Assignment",
    "Begin",
    "Cluster",
    "ComparedRun",
    "Comparison",
    "Diagnostic",
    "Divergence",
    "Done",
    "Event",
    "Failed",
    "Failure",
    "Finding",
    "Host",
    "HostUsage",
    "Job",
    "Lab",
    "LabCell",
    "LabHost",
    "LabLink",
    "LabSweep",
    "Line",
    "Link",
    "Message",
    "Note",
    "Options",
    "Output",
    "Pattern",
    "Place",
    "Plan",
    "Profile",
    "Program",
    "Recording",
    "RunResult",
    "ScalarDistance",
    "SourceFile",
    "Step",
    "StepDistance",
    "StepRecord",
    "Stopping",
    "StrategyConfig",
    "TensorDistance",
    "Traffic",
    "Usage",
    "UsageSample",
    "VerifyResult",
    "Waypoint",
    "decode",
    "finite",
    "from_json",
    "from_plain",
    "to_json",
    "to_plain",
    "wire_bytes",
]
