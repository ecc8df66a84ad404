"""Logs that TensorBoard shows; the only place that imports it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NO_TENSORBOARD = "no logs of graph and scalars: pip install 'reparto[bench]' brings tensorboard"


def write_logs(
    folder: Path, scalars: Mapping[str, Sequence[float]], model: Any = None, inputs: Any = None
) -> str:
    """Write the graph of a model, and numbers by step.

    Args:
        folder: The trace lies there too, so that TensorBoard shows it as the profile.
        scalars: By name, a number a step.
        model: Whose graph is drawn; None for none.
        inputs: What it is called with.

    Returns:
        What could not be written, in words; empty if all was.
    """
    try:
        import tensorboard  # noqa: F401
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return NO_TENSORBOARD
    told = ""
    with contextlib.closing(SummaryWriter(str(folder))) as writer:
        for name, numbers in scalars.items():
            for step, number in enumerate(numbers, 1):
                writer.add_scalar(name, number, step)
        if model is not None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    writer.add_graph(model, inputs, use_strict_trace=False)
            except Exception as error:  # drawing runs the model under a tracer of torch's own
                told = f"no graph: {str(error).strip().partition(chr(10))[0]}"
    return told
