"""For tests: several workers in one process, and contract suites to subclass."""

from reparto.testing._alike import Given, assert_alike
from reparto.testing._workers import run_workers

__all__ = ["Given", "assert_alike", "run_workers"]
