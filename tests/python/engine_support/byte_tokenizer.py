# SPDX-License-Identifier: Apache-2.0
"""A tokenizer without a model: the bytes, one merge, and two control tokens."""

from engine.tokenizer import _BYTES, Tokenizer

_CHARACTERS = {byte: character for character, byte in _BYTES.items()}
METADATA = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ["<|im_start|>", "<|im_end|>", *(_CHARACTERS[byte] for byte in range(256)), "he"],
    "tokenizer.ggml.token_type": [3, 3] + [1] * 257, "tokenizer.ggml.merges": ["h e"],
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.chat_template": "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
                               "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}


def byte_tokenizer() -> Tokenizer:
    return Tokenizer(METADATA)
