# SPDX-License-Identifier: Apache-2.0
"""The next token of a sequence, from its logits.

Randomness depends only on the seed and the position of the token, so a recomputed sequence gets the
same tokens, and all ranks choose alike without a message.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch

from .sequences import Sequence
from .step import SamplingParams, TokenLogprobs

# The number of most probable tokens that usually suffice for top_p; otherwise all tokens are sorted.
CANDIDATES = 1024
_MASK = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class Chosen:
    token: int
    logprobs: TokenLogprobs | None


def needs_logits(sequence: Sequence) -> bool:
    """Returns True unless the largest logit decides alone."""
    params = sequence.params.sampling_params
    return bool(params.temperature or params.logprobs is not None or _penalised(params)
                or _bans_end(sequence))


def choose(sequence: Sequence, logits: torch.Tensor) -> Chosen:
    """Chooses from logits [vocabulary], unchanged. Order: penalties, ban of the end, temperature, top_k, top_p, min_p.
    """
    params = sequence.params.sampling_params
    changed = _changed(sequence, logits) if _penalised(params) or _bans_end(sequence) else logits
    if params.temperature:
        token = _drawn(params, params.temperature, changed, uniform(_seed(sequence), len(sequence.tokens)))
    else:
        token = int(changed.argmax())  # the first of equals
    return Chosen(token, _logprobs(params, logits, token) if params.logprobs is not None else None)


def uniform(seed: int, position: int) -> float:
    """Returns a number in [0, 1), by two rounds of splitmix64 (S. Vigna)."""
    return (_mixed(_mixed(seed) ^ (position & _MASK)) >> 11) * 2.0**-53


def _mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def _seed(sequence: Sequence) -> int:
    said = sequence.params.sampling_params.seed
    return _mixed(sequence.params.seq_id) if said is None else said & _MASK


def _penalised(params: SamplingParams) -> bool:
    return bool(params.presence_penalty or params.frequency_penalty
                or params.repetition_penalty not in (None, 1.0))


def _bans_end(sequence: Sequence) -> bool:
    wanted = sequence.params.sampling_params.min_tokens or 0
    return (sequence.params.eos_token_id is not None
            and len(sequence.tokens) - sequence.prompt_count < wanted)


def _changed(sequence: Sequence, logits: torch.Tensor) -> torch.Tensor:
    params = sequence.params.sampling_params
    logits = logits.clone()
    if params.repetition_penalty not in (None, 1.0):
        seen = torch.tensor(sorted(set(sequence.tokens)))
        of_seen = logits[seen]
        logits[seen] = torch.where(of_seen > 0, of_seen / params.repetition_penalty,
                                   of_seen * params.repetition_penalty)
    output = Counter(sequence.tokens[sequence.prompt_count:])
    if output and (params.presence_penalty or params.frequency_penalty):
        counts = torch.tensor(list(output.values()), dtype=logits.dtype)
        logits[torch.tensor(list(output))] -= (
            (params.presence_penalty or 0.0) + (params.frequency_penalty or 0.0) * counts)
    if _bans_end(sequence):
        logits[sequence.params.eos_token_id] = -torch.inf
    return logits


def _drawn(params: SamplingParams, temperature: float, logits: torch.Tensor, at: float) -> int:
    """Returns the token at the place `at` of the distribution function after the cuts."""
    below = logits.double()
    weights = ((below - below.max()) / temperature).exp()
    top_p = params.top_p if params.top_p is not None and params.top_p < 1 else None
    tokens = None
    if top_p is not None or (params.top_k or 0) > 0:
        weights, tokens = _sorted_cut(weights, top_p, params.top_k or 0)
    if params.min_p:
        weights = torch.where(weights >= params.min_p * weights.max(), weights, 0.0)
    rising = weights.cumsum(0)
    # right: never a token of weight 0; only rounding reaches the sum itself.
    place = int(torch.searchsorted(rising, at * rising[-1], right=True))
    if place == len(rising):
        place = int(weights.nonzero()[-1])
    return place if tokens is None else int(tokens[place])


def _sorted_cut(weights: torch.Tensor, top_p: float | None, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the largest weights, falling, and their tokens: at most top_k, and only as many as reach top_p of
    their sum."""
    everything = len(weights)
    count = min(top_k if top_k > 0 else CANDIDATES, everything)
    kept, tokens = weights.topk(count)
    if top_p is None:
        return kept, tokens
    total = kept.sum() if top_k > 0 else weights.sum()
    if top_k <= 0 and count < everything and kept.sum() < top_p * total:
        kept, tokens = weights.sort(descending=True, stable=True)
    before = kept.cumsum(0) - kept
    needed = max(1, int((before < top_p * total).sum()))
    return kept[:needed], tokens[:needed]


def _logprobs(params: SamplingParams, logits: torch.Tensor, token: int) -> TokenLogprobs:
    all_of_them = logits.double().log_softmax(0)
    values, tokens = all_of_them.topk(min(params.logprobs or 0, len(logits)))
    return TokenLogprobs(token, float(all_of_them[token]),
                         tuple(zip(tokens.tolist(), values.tolist())))
