# SPDX-License-Identifier: Apache-2.0
"""Attention of some queries on the keys that are here, and the merge of what several KV ranks found.

n: queries; H: heads; K: heads of keys, each shared by H / K heads; S: keys; D: width of a head. Queries [n, H, D] are
scaled already; keys and values are [K, S, D]; hidden [n, S] is -inf where a key is not to be seen, else 0, and None
where all are.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention


def whole(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
          hidden: torch.Tensor | None) -> torch.Tensor:
    """[n, H, D], where all keys are here."""
    if hidden is None and len(queries) == 1:
        # One call: at this size a call's time is that of its beginning.
        heads, width = queries.shape[1:]
        folded = queries.view(1, len(keys), heads // len(keys), width)
        return scaled_dot_product_attention(folded, keys[None], values[None], scale=1.0).view(1, heads, width)
    weights = _scores(queries, keys, hidden).softmax(-1)
    return _unfolded(torch.bmm(weights, values), queries)


def part(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
         hidden: torch.Tensor | None) -> torch.Tensor:
    """What merge() needs of this rank: [n, H, D + 1], the attention on the keys that are here, then the logarithm of
    the sum of their weights.

    A query that sees no key has 0 and -inf: it then has no weight in merge().
    """
    if keys.shape[1] == 0:
        none = queries.new_zeros((*queries.shape[:2], queries.shape[2] + 1))
        none[..., -1] = -torch.inf
        return none
    scores = _scores(queries, keys, hidden)
    # -inf less -inf would be no number.
    largest = scores.amax(-1, keepdim=True).clamp_min_(torch.finfo(scores.dtype).min)
    weights = scores.sub_(largest).exp_()
    total = weights.sum(-1, keepdim=True)
    # The largest weight is 1, so less is 0: no key.
    out = torch.bmm(weights, values).div_(total.clamp_min(1.0))
    return _unfolded(torch.cat((out, total.log_().add_(largest)), -1), queries)


def merge(parts: torch.Tensor) -> torch.Tensor:
    """The parts of all KV ranks [KVP, n, H, D + 1] to the attention on all keys [n, H, D], in the order of ranks: the
    same bits on every rank."""
    lse = parts[..., -1:]
    weights = (lse - lse.amax(0)).exp()
    total = torch.zeros_like(parts[0, ..., :-1])
    for its, weight in zip(parts, weights):
        total += its[..., :-1] * weight
    return total / weights.sum(0)


def _scores(queries: torch.Tensor, keys: torch.Tensor, hidden: torch.Tensor | None) -> torch.Tensor:
    """[K, n * H / K, S]: the heads that share keys lie below each other, so keys are not copied for them."""
    count, heads, width = queries.shape
    kv_heads, length = keys.shape[:2]
    folded = queries.view(count, kv_heads, heads // kv_heads, width).transpose(0, 1).reshape(
        kv_heads, -1, width)
    scores = torch.bmm(folded, keys.transpose(1, 2))
    if hidden is not None:
        scores.view(kv_heads, count, -1, length).add_(hidden[:, None])
    return scores


def _unfolded(out: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """[K, n * H / K, any] to [n, H, any]."""
    count, heads = queries.shape[:2]
    return out.view(len(out), count, -1, out.shape[2]).transpose(0, 1).reshape(count, heads, -1)
