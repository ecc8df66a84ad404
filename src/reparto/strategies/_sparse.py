"""Gradients of embeddings: a few rows, sent as such."""

from __future__ import annotations

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.strategies._base import grad_of, set_grad


def sum_sparse(group: Group, tensor: Tensor) -> None:
    """Put the sum of all workers' sparse gradients on a tensor; some workers may have none."""
    grad = grad_of(tensor)
    empty = torch.zeros_like(tensor).to_sparse(1)  # by rows, as those of embeddings are
    grad = (empty if grad is None else grad).coalesce()
    counts = torch.zeros(group.size(), dtype=torch.int64, device=tensor.device)
    counts[group.rank()] = grad.indices().shape[1]
    rows = group.sum(counts).tolist()
    if not sum(rows):
        return
    indices = group.gather_rows(grad.indices().t().contiguous(), rows)
    values = group.gather_rows(grad.values().contiguous(), rows)
    total = torch.sparse_coo_tensor(torch.cat(indices).t(), torch.cat(values), tensor.shape)
    set_grad(tensor, total.coalesce())
