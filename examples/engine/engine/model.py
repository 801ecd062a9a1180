# SPDX-License-Identifier: Apache-2.0
"""One rank's part of a Llama decoder.

T: rows of the batch; W: width; H, K: this rank's heads and heads of keys; D: width of a head.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch.nn.functional import linear, rms_norm, silu

from . import attention
from .batch import Batch
from .config import LlamaConfig
from .kv_cache import KvCache
from .moves import Moves
from .weights import LayerWeights, StageWeights


def _rows_to_transpose() -> range:
    """Returns the numbers of rows that are multiplied faster as columns of the product. The library, MKL, uses
    other methods on other processors (torch 2.15, one thread).

    On an AMD EPYC 2 rows take half of the time and 4 take 0.6 of it. On an Intel Xeon 2 rows take twice as long, and
    7 to 15 rows of the head take 0.8 to 0.46 of it. Ranks of one host must compute alike, so nothing is measured
    here.
    """
    is_intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return range(7, 16) if is_intel else range(2, 5)


ROWS_TO_TRANSPOSE = _rows_to_transpose()


def product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiplies rows [T, in] by weight [out, in], transposed: [T, out]."""
    if len(rows) in ROWS_TO_TRANSPOSE:
        return torch.mm(weight, rows.t()).t().contiguous()
    return linear(rows, weight)


def rotate(heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Applies rope to heads [T, n, D], whose pairs are half a head apart; cosines and sines are those of Batch."""
    return torch.addcmul(heads * cosines, heads.roll(heads.shape[-1] // 2, -1), sines)


class Decoder:
    """The layers of this rank's stage. Every rank of the layout makes the same calls with an equal batch."""

    def __init__(self, config: LlamaConfig, weights: StageWeights, cache: KvCache, moves: Moves) -> None:
        self._config, self._weights, self._cache, self._moves = config, weights, cache, moves
        self._scale = 1 / math.sqrt(config.head_width)

    def forward(self, batch: Batch) -> torch.Tensor | None:
        """Runs the embedding or receives from the stage before, runs the layers, and makes logits or
        sends to the next stage.

        Returns the logits [m, vocabulary / TP] of batch.last in the last stage, None in the others.
        """
        weights = self._weights
        if weights.embedding is not None:
            rows = weights.embedding[batch.tokens]
        else:
            rows = self._moves.receive(
                torch.empty(len(batch), self._config.width, dtype=self._cache.dtype))
        for number, layer in enumerate(weights.layers):
            rows = rows + self._attention(number, layer, rows, batch)
            rows += self._feed_forward(layer, rows)
        if weights.norm is None or weights.head is None:
            self._moves.send(rows)
            return None
        return product(self._norm(rows[batch.last], weights.norm), weights.head)

    def _norm(self, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(rows, (self._config.width,), weight, self._config.rms_eps)

    def _attention(self, number: int, layer: LayerWeights, rows: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Returns [T, W]."""
        width, count = self._config.head_width, len(batch)
        normed = self._norm(rows, layer.input_norm)
        queries = product(normed, layer.q).view(count, -1, width)
        keys = product(normed, layer.k).view(count, -1, width)
        values = product(normed, layer.v).view(count, -1, width)
        # Together: the overhead of calls dominates here.
        rotated = rotate(torch.cat((queries, keys), 1), batch.cosines, batch.sines)
        queries, keys = rotated[:, :queries.shape[1]], rotated[:, queries.shape[1]:]
        if batch.kept is not None:
            keys, values = keys[batch.kept], values[batch.kept]
        self._cache.write(number, batch.slots, keys, values)
        queries = queries * self._scale
        attend = attention.whole if self._cache.kv_size == 1 else attention.part
        outs = []
        for piece in batch.pieces:
            keys, values = self._cache.read(number, piece.reading)
            outs.append(attend(queries[piece.rows], keys, values, piece.hidden))
        out = torch.cat(outs) if len(outs) > 1 else outs[0]
        if self._cache.kv_size > 1:
            out = attention.merge(self._moves.gather_over_kv(out))
        return self._moves.sum_over_tensor(product(out.reshape(count, -1), layer.o))

    def _feed_forward(self, layer: LayerWeights, rows: torch.Tensor) -> torch.Tensor:
        """Returns [T, W]."""
        normed = self._norm(rows, layer.post_norm)
        inner = silu(product(normed, layer.gate), inplace=True).mul_(product(normed, layer.up))
        return self._moves.sum_over_tensor(product(inner, layer.down))
