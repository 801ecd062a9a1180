# SPDX-License-Identifier: Apache-2.0
"""Faults that the tests must find. Each is planted from outside into a running worker."""

from collections.abc import Callable

import torch

from engine import attention
from engine.kv_cache import BLOCK_SIZE, KvCache, Reading


def missing_block() -> Callable[[], None]:
    """Reads the first block of a sequence in place of the second."""
    read = KvCache.reading

    def reading(self: KvCache, seq_id: int, length: int) -> Reading:
        its = read(self, seq_id, length)
        slots = torch.arange(its.count) + its.first if its.slots is None else its.slots.clone()
        second = slots[BLOCK_SIZE:2 * BLOCK_SIZE]
        second.copy_(slots[:len(second)].clone())
        return Reading(its.count, 0, slots)

    KvCache.reading = reading
    return lambda: setattr(KvCache, "reading", read)


def mean_instead_of_lse() -> Callable[[], None]:
    """Weighs all KV ranks that see keys alike, however much their keys weigh."""
    merge = attention.merge

    def mean(parts: torch.Tensor) -> torch.Tensor:
        return merge(torch.cat((parts[..., :-1], parts[..., -1:].clamp(max=0).isfinite().log()), -1))

    attention.merge = mean
    return lambda: setattr(attention, "merge", merge)

