# SPDX-License-Identifier: Apache-2.0
"""Attention of some queries on the keys that are here, and the merge of what several KV ranks found.

n: queries; H: heads; K: heads of keys, each shared by H / K heads; S: keys; D: width of a head.
"""

from __future__ import annotations

import torch


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
           hidden: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries [n, H, D], already scaled, on keys and values [K, S, D]; hidden [n, S]: -inf where a key is not
    to be seen, else 0; None: all are. Gives out [n, H, D] and lse [n, H].

    A query that sees no key has out 0 and lse -inf: it then has no weight in merge().
    """
    count, heads, width = queries.shape
    kv_heads, length = keys.shape[:2]
    if length == 0:
        return torch.zeros_like(queries), queries.new_full((count, heads), -torch.inf)
    shared = heads // kv_heads
    folded = queries.view(count, kv_heads, shared, width).transpose(0, 1).reshape(
        kv_heads, count * shared, width)
    scores = torch.bmm(folded, keys.transpose(1, 2)).view(kv_heads, count, shared, length)
    if hidden is not None:
        scores += hidden[:, None]
    lse = scores.logsumexp(-1, keepdim=True)
    # -inf less -inf would be no number.
    scores.sub_(lse.clamp_min(torch.finfo(lse.dtype).min)).exp_()
    out = torch.bmm(scores.view(kv_heads, count * shared, length), values)
    return (out.view(kv_heads, count, shared, width).transpose(0, 1).reshape(count, heads, width),
            lse.view(kv_heads, count, shared).transpose(0, 1).reshape(count, heads))


def pack(out: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """[n, H, D + 1]: one array to gather instead of two."""
    return torch.cat((out, lse[..., None]), -1)


def merge(parts: torch.Tensor) -> torch.Tensor:
    """What each KV rank packed [KVP, n, H, D + 1] to the attention over all keys [n, H, D], in the order of ranks:
    the same bits on every rank."""
    lse = parts[..., -1:]
    weights = (lse - lse.amax(0)).exp()
    total = torch.zeros_like(parts[0, ..., :-1])
    for part, weight in zip(parts, weights):
        total += part[..., :-1] * weight
    return total / weights.sum(0)
