"""Networks of machines on one machine: namespaces, rate limits, CPU shares; or emulated."""

from reparto.lab._check import CpuCheck, LabCheck, LineCheck, check
from reparto.lab._layout import Layout, lay_out
from reparto.lab._machine import Machine, this_machine
from reparto.lab._read import Flags, parse_rate, read_lab
from reparto.lab._standing import (
    Standing,
    down,
    down_abandoned,
    find,
    stand,
    standing,
    unreadable,
    up,
)
from reparto.spec import parse_size, parse_time, rate_text

__all__ = [
    "CpuCheck",
    "Flags",
    "LabCheck",
    "Layout",
    "LineCheck",
    "Machine",
    "Standing",
    "check",
    "down",
    "down_abandoned",
    "find",
    "lay_out",
    "parse_rate",
    "parse_size",
    "parse_time",
    "rate_text",
    "read_lab",
    "stand",
    "standing",
    "this_machine",
    "unreadable",
    "up",
]
