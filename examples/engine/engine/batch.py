# SPDX-License-Identifier: Apache-2.0
"""The rows of one step: prefill chunks and decodes of many sequences, stacked without padding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .config import LlamaConfig
from .kv_cache import KvCache, Reading, tokens_here
from .sequences import Chunk


@dataclass(frozen=True)
class Piece:
    """The rows of one sequence, and the keys that they attend to."""

    rows: slice
    reading: Reading
    hidden: torch.Tensor | None  # [rows, keys]: -inf for a key after the row, else 0; None: no such key


@dataclass(frozen=True)
class Batch:
    """T rows. Made once per step, used in each layer."""

    tokens: torch.Tensor  # [T] int64
    cosines: torch.Tensor  # [T, 1, D], of rope's rotation angles: each twice, half a head apart
    sines: torch.Tensor  # the same; those of the first half are negative
    kept: torch.Tensor | None  # [kept] int64: the rows whose keys this rank keeps; None: all
    slots: torch.Tensor  # [kept] int64: their slots in the pool
    pieces: tuple[Piece, ...]
    last: torch.Tensor  # [m] int64: the rows that are followed by a chosen token

    def __len__(self) -> int:
        return len(self.tokens)


class Batches:
    """Makes batches; holds the angles of all positions."""

    def __init__(self, config: LlamaConfig, cache: KvCache, dtype: torch.dtype) -> None:
        self._cache, self._dtype = cache, dtype
        half = config.head_width // 2
        speeds = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(config.context, dtype=torch.float64)[:, None, None] * speeds
        cosines, sines = angles.cos(), angles.sin()
        self._cosines = torch.cat((cosines, cosines), -1).to(dtype)
        self._sines = torch.cat((-sines, sines), -1).to(dtype)

    def of(self, chunks: list[Chunk]) -> Batch:
        tokens: list[int] = []
        positions: list[int] = []
        kept, slots, pieces, last = [], [], [], []
        for chunk in chunks:
            begin, end = len(tokens), chunk.first + chunk.count
            seq_id = chunk.sequence.params.seq_id
            tokens += chunk.sequence.tokens[chunk.first:end]
            positions += range(chunk.first, end)
            here, where = self._cache.slots(seq_id, chunk.first, chunk.count)
            kept.append(here + begin)
            slots.append(where)
            reading = self._cache.reading(seq_id, end)
            pieces.append(Piece(slice(begin, len(tokens)), reading, self._hidden(chunk, reading.count)))
            if chunk.samples:
                last.append(len(tokens) - 1)
        at = torch.tensor(positions)
        rows = torch.cat(kept)
        return Batch(torch.tensor(tokens), self._cosines[at], self._sines[at],
                     None if len(rows) == len(tokens) else rows, torch.cat(slots), tuple(pieces),
                     torch.tensor(last, dtype=torch.int64))

    def _hidden(self, chunk: Chunk, keys: int) -> torch.Tensor | None:
        """Keys of this rank are in the order of their positions, so each row sees a prefix of them."""
        if chunk.count == 1:
            return None
        seen = torch.tensor([tokens_here(position + 1, self._cache.kv_rank, self._cache.kv_size)
                             for position in range(chunk.first, chunk.first + chunk.count)])
        behind = torch.arange(keys)[None] >= seen[:, None]
        return torch.zeros(behind.shape, dtype=self._dtype).masked_fill_(behind, -torch.inf)
