"""Tensors laid end to end, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def laid(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors end to end; fresh, without a gradient."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def by_type(tensors: Iterable[Tensor | None]) -> list[list[Tensor]]:
    """In lists of one type and device, which can be laid; the missing and the empty left out."""
    found: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        if tensor is not None and tensor.numel():
            found.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return list(found.values())


def spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy what lies end to end into tensors."""
    with torch.no_grad():
        pieces = flat.split([tensor.numel() for tensor in tensors])
        for tensor, piece in zip(tensors, pieces, strict=True):
            tensor.copy_(piece.view(tensor.shape))


class Aside:
    """Parameters for which others stand in for a while, and their own values."""

    def __init__(self) -> None:
        self._kept: list[tuple[Sequence[Tensor], Tensor]] = []

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keep(self, tensors: Sequence[Tensor]) -> None:
        """Remember the values of some tensors, which are about to be replaced."""
        self._kept.append((tensors, laid(tensors)))

    def restore(self) -> None:
        """Put the values back."""
        for tensors, flat in self._kept:
            spread(flat, tensors)
        self._kept.clear()

    def clear(self) -> None:
        """Let what stands there stay."""
        self._kept.clear()


def padded(flat: Tensor, block: int) -> Tensor:
    """With zeros at the end, to a multiple of a block; itself if it is one."""
    missing = -flat.numel() % block
    return torch.nn.functional.pad(flat, (0, missing)) if missing else flat
