# SPDX-License-Identifier: Apache-2.0
"""Attention of queries on the keys of this rank, and the merge of the results of several KV ranks.

n: queries; H: heads; K: heads of keys, each shared by H / K heads; S: keys; D: width of a head. Queries [n, H, D] are
scaled already; keys and values are [K, S, D]; hidden [n, S] is -inf for a hidden key, else 0, and None
if all keys are visible.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention


def whole(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
          hidden: torch.Tensor | None) -> torch.Tensor:
    """Returns [n, H, D] if all keys are on this rank."""
    if hidden is None and len(queries) == 1:
        # One call: at this size the overhead of calls dominates.
        heads, width = queries.shape[1:]
        folded = queries.view(1, len(keys), heads // len(keys), width)
        return scaled_dot_product_attention(folded, keys[None], values[None], scale=1.0).view(1, heads, width)
    weights = _scores(queries, keys, hidden).softmax(-1)
    return _unfolded(torch.bmm(weights, values), queries)


def part(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
         hidden: torch.Tensor | None) -> torch.Tensor:
    """Returns this rank's input for merge(): [n, H, D + 1], the attention on the keys of this rank, then the logarithm
    of the sum of their weights.

    A query that sees no key has 0 and -inf: it then has no weight in merge().
    """
    if keys.shape[1] == 0:
        none = queries.new_zeros((*queries.shape[:2], queries.shape[2] + 1))
        none[..., -1] = -torch.inf
        return none
    scores = _scores(queries, keys, hidden)
    # -inf minus -inf would be a NaN.
    largest = scores.amax(-1, keepdim=True).clamp_min_(torch.finfo(scores.dtype).min)
    weights = scores.sub_(largest).exp_()
    total = weights.sum(-1, keepdim=True)
    # The largest weight is 1, so a smaller sum is 0: no key.
    out = torch.bmm(weights, values).div_(total.clamp_min(1.0))
    return _unfolded(torch.cat((out, total.log_().add_(largest)), -1), queries)


def merge(parts: torch.Tensor) -> torch.Tensor:
    """Merges the parts of all KV ranks [KVP, n, H, D + 1] into the attention on all keys [n, H, D], in rank order: each
    rank gets the same bits."""
    lse = parts[..., -1:]
    weights = (lse - lse.amax(0)).exp()
    total = torch.zeros_like(parts[0, ..., :-1])
    for its, weight in zip(parts, weights):
        total += its[..., :-1] * weight
    return total / weights.sum(0)


def _scores(queries: torch.Tensor, keys: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
    """Returns [K, n * H / K, S]: heads that share keys are adjacent, so that keys are not copied for them."""
    count, heads, width = queries.shape
    kv_heads, length = keys.shape[:2]
    folded = queries.view(count, kv_heads, heads // kv_heads, width).transpose(0, 1).reshape(
        kv_heads, -1, width)
    scores = torch.bmm(folded, keys.transpose(1, 2))
    if hidden is not None:
        scores.view(kv_heads, count, -1, length).add_(hidden[:, None])
    return scores


def _unfolded(out: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Converts [K, n * H / K, any] to [n, H, any]."""
    count, heads = queries.shape[:2]
    return out.view(len(out), count, -1, out.shape[2]).transpose(0, 1).reshape(count, heads, -1)
