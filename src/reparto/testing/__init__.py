"""For tests: several workers in one process, and contract suites to subclass.

The suites need pytest, which the extra ``dev`` brings.
"""

from reparto.testing._alike import Given, assert_alike
from reparto.testing._compressors import CompressorContract
from reparto.testing._groups import GroupContract, run_members
from reparto.testing._strategies import StrategyContract
from reparto.testing._workers import run_workers

__all__ = [
    "CompressorContract",
    "Given",
    "GroupContract",
    "StrategyContract",
    "assert_alike",
    "run_members",
    "run_workers",
]
