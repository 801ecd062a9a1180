# SPDX-License-Identifier: Apache-2.0
"""A forward loop of `transformers` on the engine's weights: float32, a KV cache, one thread, the most probable token.

Simultaneous requests form one batch of at most 8, which runs until the longest of them is done.
"""

from __future__ import annotations

import time

import torch
import transformers
from asked import TOGETHER, Asked, answer
from safetensors.torch import load_file

from engine import convert
from engine.config import LlamaConfig

torch.set_num_threads(1)


def model() -> torch.nn.Module:
    path = convert.convert_once()
    config = LlamaConfig.open(path)
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=config.vocabulary, hidden_size=config.width, intermediate_size=config.ffn_width,
        num_hidden_layers=config.layers, num_attention_heads=config.heads, num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.context, rms_norm_eps=config.rms_eps, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_base}, dtype=torch.float32)).eval()
    left = made.load_state_dict(load_file(path), strict=False)
    assert not left.unexpected_keys and left.missing_keys in ([], ["lm_head.weight"]), left
    made.tie_weights()
    return made


def continued(llama: torch.nn.Module, batch: list[Asked]) -> list[list[int]]:
    """Continues prompts that end at the same position: shorter ones are padded in front."""
    longest = max(len(one.prompt) for one in batch)
    given = torch.tensor([[0] * (longest - len(one.prompt)) + one.prompt for one in batch])
    mask = torch.tensor([[0] * (longest - len(one.prompt)) + [1] * len(one.prompt) for one in batch])
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    padded = not bool(mask.all())
    cache, outputs = None, []
    with torch.inference_mode():
        for _ in range(max(one.tokens for one in batch)):
            result = llama(given, attention_mask=mask if padded else None, position_ids=positions,
                           past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = result.past_key_values
            given = result.logits[:, -1].argmax(-1, keepdim=True)
            outputs.append(given)
            mask = torch.cat((mask, torch.ones_like(given)), 1)
            positions = positions[:, -1:] + 1
    return torch.cat(outputs, 1).tolist()


def main() -> None:
    llama = model()

    def run(asked: list[Asked]) -> tuple[list[list[int]], float]:
        begun = time.perf_counter()
        outputs = [output for first in range(0, len(asked), TOGETHER)
                   for output in continued(llama, asked[first:first + TOGETHER])]
        return outputs, time.perf_counter() - begun

    answer("transformers", run)


if __name__ == "__main__":
    main()
