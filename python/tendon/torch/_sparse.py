# SPDX-License-Identifier: Apache-2.0
"""The sum of sparse COO tensors over a group."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

_MOST_DIMENSIONS = 64


def sum_of_sparse(tensor: torch.Tensor, size: int,
                  gather: Callable[[torch.Tensor, list[torch.Tensor]], None]) -> None:
    """Replaces `tensor` by the sum of those of all ranks, added in rank order.

    gather(mine, outputs): an all_gather of any sizes that is done when it returns.
    """
    mine = tensor.detach().coalesce()
    about = _about(mine)
    all_about = [torch.empty_like(about) for _ in range(size)]
    gather(about, all_about)
    for rank, theirs in enumerate(all_about):
        if not torch.equal(theirs[1:], about[1:]):
            raise dist.DistBackendError(
                f"rank {rank} gives a sparse tensor of another shape, dtype or number of sparse "
                f"dimensions than this rank, whose is {list(mine.shape)} of {mine.dtype}")
    counts = [int(theirs[0]) for theirs in all_about]
    indices, values = mine.indices().contiguous(), mine.values().contiguous()
    all_indices = [indices.new_empty((indices.size(0), count)) for count in counts]
    all_values = [values.new_empty((count, *values.shape[1:])) for count in counts]
    gather(indices, all_indices)
    gather(values, all_values)
    total = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values),
                                    mine.shape, check_invariants=True)
    with torch.no_grad():
        tensor.copy_(total.coalesce())


def _about(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the number of values, and the properties that must be the same on all ranks."""
    if tensor.dim() > _MOST_DIMENSIONS:
        raise dist.DistBackendError(f"a sparse tensor of {tensor.dim()} dimensions; legal are "
                                    f"{_MOST_DIMENSIONS}")
    about = torch.zeros(4 + _MOST_DIMENSIONS, dtype=torch.int64)
    dtype = sum(ord(letter) << (8 * (i % 7)) for i, letter in enumerate(str(tensor.dtype)))
    about[:4] = torch.tensor([tensor._nnz(), tensor.dim(), tensor.sparse_dim(), dtype])
    about[4:4 + tensor.dim()] = torch.tensor(tensor.shape, dtype=torch.int64)
    return about
