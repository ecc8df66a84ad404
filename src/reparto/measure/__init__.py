"""What is run to learn about machines and scripts."""

from __future__ import annotations

from reparto.measure._doctor import Facts, Problem, diagnose, examine
from reparto.measure._gpus import unlike_gpus
from reparto.measure._left import memory_left_bytes
from reparto.measure._machine import local_host, num_cores, num_gpus, torch_has_cuda
from reparto.measure._network import is_loopback, peer_address
from reparto.measure._outputs import MAX_FILES, files_written_since
from reparto.measure._trend import Trend
from reparto.measure._usage import UsageSampler

__all__ = [
    "MAX_FILES",
    "Facts",
    "Problem",
    "Trend",
    "UsageSampler",
    "diagnose",
    "examine",
    "files_written_since",
    "is_loopback",
    "local_host",
    "memory_left_bytes",
    "num_cores",
    "num_gpus",
    "peer_address",
    "torch_has_cuda",
    "unlike_gpus",
]
