# SPDX-License-Identifier: Apache-2.0
"""A Llama decoder in NumPy: whole, without a cache, on weights in the order of GGUF. It shares nothing with the engine
but the numbers for drawing."""

import numpy as np

from engine.config import LlamaConfig
from engine.sampler import uniform
from engine.step import SequenceParams

TINY = LlamaConfig(layers=5, width=48, heads=6, kv_heads=3, ffn_width=96, vocabulary=120, context=128,
                   rope_base=10000.0, rms_eps=1e-5)


def random_tensors(config: LlamaConfig, seed: int) -> dict[str, np.ndarray]:
    """The weights in float64, by the names of GGUF."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return random.normal(size=(rows, columns)) * 1.5 / np.sqrt(columns)

    keys = config.kv_heads * config.head_width
    tensors = {"token_embd.weight": matrix(config.vocabulary, config.width) * 4,
               "output_norm.weight": random.uniform(0.5, 1.5, config.width)}
    for layer in range(config.layers):
        tensors |= {f"blk.{layer}.{name}.weight": value for name, value in {
            "attn_norm": random.uniform(0.5, 1.5, config.width), "attn_q": matrix(config.width, config.width),
            "attn_k": matrix(keys, config.width), "attn_v": matrix(keys, config.width),
            "attn_output": matrix(config.width, config.width),
            "ffn_norm": random.uniform(0.5, 1.5, config.width),
            "ffn_gate": matrix(config.ffn_width, config.width), "ffn_up": matrix(config.ffn_width, config.width),
            "ffn_down": matrix(config.width, config.ffn_width)}.items()}
    return tensors


def logits_after(config: LlamaConfig, tensors: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """The logits [vocabulary] after the last of the tokens."""
    def norm(rows: np.ndarray, name: str) -> np.ndarray:
        return rows / np.sqrt((rows**2).mean(1, keepdims=True) + config.rms_eps) * tensors[f"{name}.weight"]

    def rope(rows: np.ndarray) -> np.ndarray:
        """Rotates adjacent pairs, as complex numbers."""
        count, heads, width = rows.shape
        speeds = config.rope_base ** (-np.arange(width // 2) / (width // 2))
        turned = np.exp(1j * np.arange(count)[:, None, None] * speeds)
        pairs = (rows[..., ::2] + 1j * rows[..., 1::2]) * turned
        return np.stack((pairs.real, pairs.imag), -1).reshape(rows.shape)

    rows = tensors["token_embd.weight"][tokens]
    count, width = len(tokens), config.head_width
    for layer in range(config.layers):
        def of(name: str, layer=layer) -> np.ndarray:
            return tensors[f"blk.{layer}.{name}.weight"]

        normed = norm(rows, f"blk.{layer}.attn_norm")
        queries = rope((normed @ of("attn_q").T).reshape(count, -1, width))
        keys = rope((normed @ of("attn_k").T).reshape(count, -1, width))
        values = (normed @ of("attn_v").T).reshape(count, -1, width)
        out = np.empty_like(queries)
        for head in range(config.heads):
            shared = head * config.kv_heads // config.heads
            scores = queries[:, head] @ keys[:, shared].T / np.sqrt(width)
            scores[np.triu_indices(count, 1)] = -np.inf
            weights = np.exp(scores - scores.max(1, keepdims=True))
            out[:, head] = weights / weights.sum(1, keepdims=True) @ values[:, shared]
        rows = rows + out.reshape(count, -1) @ of("attn_output").T
        normed = norm(rows, f"blk.{layer}.ffn_norm")
        gate = normed @ of("ffn_gate").T
        rows = rows + (gate / (1 + np.exp(-gate)) * (normed @ of("ffn_up").T)) @ of("ffn_down").T
    return norm(rows[-1:], "output_norm")[0] @ tensors["token_embd.weight"].T


def continuation(config: LlamaConfig, tensors: dict[str, np.ndarray],
                 params: SequenceParams) -> tuple[list[int], list[float], float]:
    """max_tokens tokens, the logarithm of the probability of each, and the smallest distance between the largest two
    logits (or of a draw from a border)."""
    tokens, logprobs, margin = list(params.prompt_token_ids), [], np.inf
    asked = params.sampling_params
    for _ in range(asked.max_tokens):
        logits = logits_after(config, tensors, tokens)
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        if asked.temperature:
            heated = probabilities ** (1 / asked.temperature)
            borders = np.cumsum(heated / heated.sum())
            drawn = uniform(asked.seed, len(tokens))
            token = int(np.searchsorted(borders, drawn, side="right"))
            margin = min(margin, np.abs(borders - drawn).min())
        else:
            token = int(logits.argmax())
            second, first = np.sort(logits)[-2:]
            margin = min(margin, first - second)
        tokens.append(token)
        logprobs.append(float(np.log(probabilities[token])))
    return tokens[len(params.prompt_token_ids):], logprobs, float(margin)
