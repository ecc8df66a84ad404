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
    Surveyed,
    Usage,
    decode,
)
from reparto.spec._fit import DeviceFit, FitPoint, FitResult
from reparto.spec._forecast import Forecast, Prediction, Span, Wish
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
from reparto.spec._quantities import parse_rate, parse_size, parse_time, rate_text
from reparto.spec._run import Assignment, Failure, Options, RunResult, StepRecord
from reparto.spec._simulation import Milestone, Simulation
from reparto.spec._survey import (
    Exchange,
    LocalCost,
    Phase,
    SliceTime,
    Survey,
    SurveyRequest,
    Trial,
    WorkerProfile,
    WorkerSurvey,
)
from reparto.spec._usage import HostUsage, Recording, UsageSample

__all__ = [
    "Assignment",
    "Begin",
    "Cluster",
    "ComparedRun",
    "Comparison",
    "DeviceFit",
    "Diagnostic",
    "Divergence",
    "Done",
    "Event",
    "Exchange",
    "Failed",
    "Failure",
    "Finding",
    "FitPoint",
    "FitResult",
    "Forecast",
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
    "LocalCost",
    "Message",
    "Milestone",
    "Note",
    "Options",
    "Output",
    "Pattern",
    "Phase",
    "Place",
    "Plan",
    "Prediction",
    "Profile",
    "Program",
    "Recording",
    "RunResult",
    "ScalarDistance",
    "Simulation",
    "SliceTime",
    "SourceFile",
    "Span",
    "Step",
    "StepDistance",
    "StepRecord",
    "Stopping",
    "StrategyConfig",
    "Survey",
    "SurveyRequest",
    "Surveyed",
    "TensorDistance",
    "Traffic",
    "Trial",
    "Usage",
    "UsageSample",
    "VerifyResult",
    "Waypoint",
    "Wish",
    "WorkerProfile",
    "WorkerSurvey",
    "decode",
    "finite",
    "from_json",
    "from_plain",
    "parse_rate",
    "parse_size",
    "parse_time",
    "rate_text",
    "to_json",
    "to_plain",
    "wire_bytes",
]
