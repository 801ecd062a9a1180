# SPDX-License-Identifier: Apache-2.0
"""Keys and values in blocks of 16 tokens, in one pool for each layer.

Block b of a sequence lies on KV rank b mod KVP. The steps alone decide its block of the pool, so no
message names it. Blocks are adjacent where possible: then attention reads the pool in place.
"""

from __future__ import annotations

import bisect

import torch

from .step import BLOCK_SIZE, StepError


def tokens_here(length: int, kv_rank: int, kv_size: int) -> int:
    """Returns how many of the first `length` tokens of a sequence have their keys on this KV rank."""
    round_tokens = BLOCK_SIZE * kv_size
    rest = length % round_tokens - BLOCK_SIZE * kv_rank
    return length // round_tokens * BLOCK_SIZE + min(max(rest, 0), BLOCK_SIZE)


def blocks_here(length: int, kv_rank: int, kv_size: int) -> int:
    return -(-tokens_here(length, kv_rank, kv_size) // BLOCK_SIZE)


class BlockPool:
    """The free blocks. A sequence begins in the smallest gap that holds all of it, and continues in the
    next block; other sequences take the blocks after it only if nothing else is free."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._free = list(range(blocks))  # rising
        self._meant: dict[int, range] = {}  # by sequence, the range that it will grow into

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, owner: int, after: int | None, count: int, expected: int) -> list[int]:
        """Takes `count` blocks, after `after` if possible; `expected`: the sequence's largest number of blocks with
        these.
        """
        if count > len(self._free):
            raise StepError(f"KV cache: sequence {owner} needs {count} blocks, and {len(self._free)} of "
                            f"{self.blocks} are free; preempt a sequence first")
        taken: list[int] = []
        for left in range(count, 0, -1):
            at = -1 if after is None else bisect.bisect_left(self._free, after + 1)
            if after is None or at == len(self._free) or self._free[at] != after + 1:
                at = self._begin(owner, max(left, expected - len(taken)))
            after = self._free.pop(at)
            taken.append(after)
        return taken

    def _begin(self, owner: int, wanted: int) -> int:
        """Returns the index in the list of the block to begin with."""
        meant = sorted((one.start, one.stop) for who, one in self._meant.items() if who != owner)
        gaps: list[tuple[int, int, int]] = []  # length, first block, place
        kept = 0
        for place, block in enumerate(self._free):
            while kept < len(meant) and meant[kept][1] <= block:
                kept += 1
            if kept < len(meant) and meant[kept][0] <= block:
                continue
            if gaps and gaps[-1][1] + gaps[-1][0] == block:
                gaps[-1] = (gaps[-1][0] + 1, gaps[-1][1], gaps[-1][2])
            else:
                gaps.append((1, block, place))
        if not gaps:
            return 0
        fit = [gap for gap in gaps if gap[0] >= wanted]
        length, first, place = min(fit) if fit else max(gaps, key=lambda gap: (gap[0], -gap[1]))
        self._meant[owner] = range(first, first + min(length, wanted))
        return place

    def give_back(self, owner: int, blocks: list[int]) -> None:
        self._meant.pop(owner, None)
        for block in blocks:
            bisect.insort(self._free, block)


class KvCache:
    """The keys and values on this rank, and their places for each sequence.

    K: heads of keys on this rank; D: width of a head; a pool is [2, K, blocks * 16, D], keys before values.
    """

    def __init__(self, *, layers: int, kv_heads: int, head_width: int, blocks: int,
                 dtype: torch.dtype, kv_rank: int = 0, kv_size: int = 1) -> None:
        self.kv_rank, self.kv_size, self.dtype = kv_rank, kv_size, dtype
        # A page is touched only when its block is used, so a large pool costs nothing before.
        self._pools = [torch.empty(2, kv_heads, blocks * BLOCK_SIZE, head_width, dtype=dtype)
                       for _ in range(layers)]
        self._by_slot = [pool.permute(2, 0, 1, 3) for pool in self._pools]
        self._pool = BlockPool(blocks)
        self._tables: dict[int, list[int]] = {}

    @property
    def free_blocks(self) -> int:
        return self._pool.free

    def table(self, seq_id: int) -> tuple[int, ...]:
        """Returns the blocks of a sequence on this rank, in order."""
        return tuple(self._tables.get(seq_id, ()))

    def extend(self, seq_id: int, length: int, at_most: int) -> None:
        """Makes room for the first `length` tokens; at_most: the largest number of tokens of the sequence."""
        table = self._tables.setdefault(seq_id, [])
        more = blocks_here(length, self.kv_rank, self.kv_size) - len(table)
        if more > 0:
            expected = blocks_here(max(at_most, length), self.kv_rank, self.kv_size) - len(table)
            table += self._pool.take(seq_id, table[-1] if table else None, more, expected)

    def free(self, seq_id: int) -> None:
        self._pool.give_back(seq_id, self._tables.pop(seq_id, []))

    def clear(self) -> None:
        for seq_id in list(self._tables):
            self.free(seq_id)

    def slots(self, seq_id: int, first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns which of the tokens [first, first + count) are kept here, counted from `first`, and their slots."""
        positions = torch.arange(first, first + count)
        blocks = positions // BLOCK_SIZE
        here = (blocks % self.kv_size == self.kv_rank).nonzero().squeeze(1)
        table = torch.tensor(self._tables[seq_id], dtype=torch.int64)
        mine = blocks[here] // self.kv_size
        return here, table[mine] * BLOCK_SIZE + positions[here] % BLOCK_SIZE

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Writes keys and values [tokens, K, D] of the tokens kept here to slots [tokens]."""
        self._by_slot[layer].index_copy_(0, slots, torch.stack((keys, values), 1))

    def reading(self, seq_id: int, length: int) -> Reading:
        """Returns how to read the keys of the first `length` tokens of a sequence on this rank, in all layers."""
        count = tokens_here(length, self.kv_rank, self.kv_size)
        table = self._tables[seq_id][:-(-count // BLOCK_SIZE)]
        if not table or table[-1] - table[0] == len(table) - 1 and table == sorted(table):
            return Reading(count, table[0] * BLOCK_SIZE if table else 0, None)
        slots = torch.tensor(table)[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)
        return Reading(count, 0, slots.flatten()[:count])

    def read(self, layer: int, reading: Reading) -> torch.Tensor:
        """Returns [2, K, count, D]: a view if the blocks are adjacent, else a copy."""
        pool = self._pools[layer]
        if reading.slots is None:
            return pool.narrow(2, reading.first, reading.count)
        return pool.index_select(2, reading.slots)


class Reading:
    """The places of one sequence's keys: one run from `first`, or the slots [count]."""

    __slots__ = ("count", "first", "slots")

    def __init__(self, count: int, first: int, slots: torch.Tensor | None) -> None:
        self.count, self.first, self.slots = count, first, slots
