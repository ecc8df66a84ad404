"""What ``verify`` compares: written by worker 0 while the script runs, read afterwards.

One file, ``record``, that is only appended to. Each entry is a line of JSON, followed by as many
bytes of tensors as the line says; a run that dies leaves a record that can be read up to there:

    {"kind": "loss", "value": 0.71}
    {"kind": "gradient", "owner": "optimizer0", "step": 1, "bytes": 4096}
    ░░░ tensors ░░░
    {"kind": "value", "value": 0.71}
    ...
    {"kind": "state", "bytes": 8192}
    ░░░ tensors ░░░

A gradient of more than 4 Mi elements is kept as a *sketch*: each large tensor is multiplied by
fixed random signs and folded to 16 Ki elements. Sketching is linear and keeps norms to about 1 %,
so ‖Δg‖/‖g‖ can be read from two sketches, and equal gradients have equal sketches.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from reparto.errors import UsageError

FILE_NAME = "record"
MAX_EXACT = 4 << 20
SKETCH_SIZE = 16 << 10

_save = torch.save  # as it was before the runtime watches the script's own writes
_load = torch.load


class Recorder:
    """Writes a record.

    Calls come in the order of the script's own; ``close`` comes last. One thread.

    Args:
        folder: Where; made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / FILE_NAME).open("wb")

    def seed(self, value: int) -> None:
        """Keep a seed that the script has given, so that the other side can take the same."""
        self._append("seed", {"value": value}, {})

    def gradients(
        self,
        step: int,
        owner: str,
        tensors: Sequence[Tensor | None],
        *,
        names: Sequence[str] = (),
    ) -> None:
        """Keep the reduced gradient before clipping.

        Args:
            step: Counts the owner's steps.
            owner: Stable name: ``optimizer0``, ``loose``.
            tensors: One for each of the owner's parameters; None where it has no gradient.
            names: The parameters' names, where known.
        """
        sizes = [0 if tensor is None else tensor.numel() for tensor in tensors]
        exact = sum(sizes) <= MAX_EXACT
        kept = {
            str(index): _plain(tensor) if exact else sketch(_plain(tensor))
            for index, tensor in enumerate(tensors)
            if tensor is not None
        }
        shapes = [None if tensor is None else list(tensor.shape) for tensor in tensors]
        entry = {"owner": owner, "step": step, "shapes": shapes, "names": list(names)}
        self._append("gradient", entry, kept)
        self._file.flush()

    def loss(self, value: float) -> None:
        """Keep the global loss of a backward pass."""
        self._append("loss", {"value": float(value)})

    def value(self, value: float) -> None:
        """Keep a scalar that the script reads from a tensor."""
        self._append("value", {"value": float(value)})

    def state(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep every parameter and buffer, at the end."""
        self._append("state", {}, {name: _plain(tensor) for name, tensor in tensors.items()})

    def close(self) -> None:
        """Finish the record; later calls do nothing."""
        self._file.close()

    def _append(
        self, kind: str, entry: dict[str, Any], tensors: Mapping[str, Tensor] | None = None
    ) -> None:
        payload = b""
        if tensors is not None:
            buffer = io.BytesIO()
            _save(dict(tensors), buffer)
            payload = buffer.getvalue()
            entry = {**entry, "bytes": len(payload)}
        self._file.write(json.dumps({"kind": kind, **entry}).encode() + b"\n" + payload)


@dataclass(frozen=True)
class Entry:
    """One entry of a record.

    Attributes:
        order: Counts all entries, so that it tells what came first.
        kind: ``gradient``, ``loss``, ``value`` or ``state``.
        data: The line of JSON.
        offset: Where the tensors begin in the file.
    """

    order: int
    kind: str
    data: dict[str, Any]
    offset: int


class Record:
    """Reads a record; tensors are loaded when they are asked for.

    Args:
        folder: As it was given to the ``Recorder``.

    Raises:
        UsageError: If there is no record.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        if not self._path.is_file():
            raise UsageError(f"there is no record in {folder}")
        with self._path.open("rb") as file:
            self.entries = tuple(_entries(file, self._path.stat().st_size))

    def of_kind(self, kind: str) -> tuple[Entry, ...]:
        """All entries of one kind, in order."""
        return tuple(entry for entry in self.entries if entry.kind == kind)

    def tensors(self, entry: Entry) -> dict[str, Tensor]:
        """The tensors of an entry."""
        with self._path.open("rb") as file:
            file.seek(entry.offset)
            payload = io.BytesIO(file.read(entry.data["bytes"]))
        tensors: dict[str, Tensor] = _load(payload, map_location="cpu", weights_only=True)
        return tensors

    def state(self) -> dict[str, Tensor]:
        """Every parameter and buffer at the end; empty if the run did not get there."""
        found = self.of_kind("state")
        return self.tensors(found[-1]) if found else {}


def sketch(tensor: Tensor) -> Tensor:
    """Fold a tensor to ``SKETCH_SIZE`` elements with fixed random signs; small ones are kept."""
    flat = tensor.reshape(-1)
    if flat.numel() <= SKETCH_SIZE:
        return tensor
    folded = torch.zeros(SKETCH_SIZE, dtype=flat.dtype)
    # NumPy's: a draw of torch's would be taken for one of the script's.
    signs = np.random.default_rng(flat.numel())
    for row in torch.split(flat, SKETCH_SIZE):
        sign = torch.from_numpy(signs.integers(0, 2, row.numel()) * 2 - 1)
        folded[: row.numel()] += row * sign
    return folded


def _plain(tensor: Tensor) -> Tensor:
    data = tensor.detach()
    dense = data.to_dense() if data.layout != torch.strided else data
    return dense.as_subclass(Tensor).to("cpu", copy=True, memory_format=torch.contiguous_format)


def _entries(file: BinaryIO, size: int) -> list[Entry]:
    found: list[Entry] = []
    while line := file.readline():
        if not line.endswith(b"\n"):
            break  # the run died while it wrote
        data = json.loads(line)
        offset = file.tell()
        if offset + data.get("bytes", 0) > size:
            break
        file.seek(data.get("bytes", 0), io.SEEK_CUR)
        found.append(Entry(len(found), data.pop("kind"), data, offset))
    return found
