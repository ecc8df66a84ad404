"""Time evaluation: what a model costs on a device.

supervised, maps ──► data that nobody has to download       read_midc ──► pairs ──► of a file
BenchReport ──► write_report ──► bench.html and a picture a figure
"""

from reparto.bench._irradiance import (
    generate,
    maps,
    pairs,
    persistence,
    read_midc,
    skill,
    supervised,
    write_midc,
)
from reparto.bench._page import write_report

__all__ = [
    "generate",
    "maps",
    "pairs",
    "persistence",
    "read_midc",
    "skill",
    "supervised",
    "write_midc",
    "write_report",
]
