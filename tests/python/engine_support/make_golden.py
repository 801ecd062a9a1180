#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden.safetensors: the results of `transformers` on SmolLM2, for test_engine_model.py.

    python3 -m venv golden
    golden/bin/pip install -r tests/python/engine_support/golden_requirements.txt
    golden/bin/pip install --no-deps -r examples/engine/requirements.txt
    golden/bin/python tests/python/engine_support/make_golden.py

The engine computes nothing here: `transformers` reads the GGUF file, dequantizes it and runs the model in float32, on
one thread. The engine's tokenizer makes the prompts; the file also has the tokens that the tokenizer of `transformers`
makes from the texts.
"""

import importlib.util
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "examples" / "engine"))
from engine import gguf_file  # noqa: E402
from engine.convert import TOKENIZER_KEYS  # noqa: E402
from engine.tokenizer import Tokenizer  # noqa: E402

POSITIONS = 8  # of each text
STRIDE = 64  # the golden file keeps each STRIDE-th logit, the 16 largest, and the logarithm of the sum of all
FREE_TOKENS = 64
FREE_PROMPTS = 8
MARGIN = 5e-4

TEXTS = [
    "Tendons carry the force of a muscle to the bone that it moves.",
    "def mean(values):\n    \"\"\"The mean of some numbers.\"\"\"\n    return sum(values) / len(values)\n",
    "The three primary colours of light are red, green and blue; mixed in equal parts they make white. " * 4,
    "In 1969 two people walked on the moon for 2 hours and 31 minutes, and 600 000 000 watched.",
    "Käse, naïve café, 東京 and 🙂: what is not ASCII takes more bytes than it has characters.",
]
PROMPTS = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Why is the sky blue?",
    "List three fruits and their colours.",
    "Explain what a tendon does.",
    "How do I boil an egg?",
    "Tell me a story about a robot who learns to paint.",
    "What is the difference between a list and a tuple in Python?",
    "Give me advice for my first day at a new job.",
    "What causes the seasons on Earth?",
    "Write a Python function that reverses a string.",
    "Summarize the water cycle in two sentences.",
    "Name the planets of the solar system.",
    "What is the meaning of the word 'serendipity'?",
    "How does a bicycle stay upright?",
    "Describe a sunset over the mountains.",
]


def main() -> None:
    torch.set_num_threads(1)
    path = gguf_file.find()
    gguf_file.check(path)
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, device_map="cpu").eval()
    metadata = gguf_file.GgufFile(path).metadata
    tokenizer = Tokenizer({key: metadata[key] for key in TOKENIZER_KEYS})
    kept: dict[str, torch.Tensor] = {}
    for number, text in enumerate(TEXTS):
        tokens = torch.tensor(tokenizer.encode(text))
        with torch.inference_mode():
            logits = model(tokens[None]).logits[0]
        positions = torch.linspace(0, len(tokens) - 1, POSITIONS).long()
        top = logits[positions].topk(16)
        kept |= {f"text.{number}.tokens": tokens.int(), f"text.{number}.positions": positions.int(),
                 f"text.{number}.logits": logits[positions, number::STRIDE].contiguous(),
                 f"text.{number}.top_tokens": top.indices.int(), f"text.{number}.top_logits": top.values,
                 f"text.{number}.logsumexp": logits[positions].double().logsumexp(1)}
    said = []
    for prompt in PROMPTS:
        tokens = tokenizer.encode_chat([{"role": "user", "content": prompt}])
        outputs, margins = free_run(model, tokens)
        print(f"{min(margins):.5f} {prompt} -> {tokenizer.decode(outputs)!r}")
        if min(margins) < MARGIN or len(said) == FREE_PROMPTS:
            continue
        number = len(said)
        said.append(prompt)
        kept |= {f"free.{number}.prompt": torch.tensor(tokens).int(),
                 f"free.{number}.output": torch.tensor(outputs).int(),
                 f"free.{number}.margins": torch.tensor(margins)}
    if len(said) < FREE_PROMPTS:
        sys.exit(f"{len(said)} prompts have margins of {MARGIN}; add others to PROMPTS")
    versions = {name: importlib.util.find_spec(name) and __import__(name).__version__
                for name in ("torch", "transformers", "accelerate", "tokenizers")}
    save_file(kept, HERE / "golden.safetensors", {
        "versions": json.dumps(versions), "sha256": gguf_file.SHA256, "texts": json.dumps(TEXTS),
        "their_tokens": json.dumps([theirs.encode(text) for text in TEXTS]), "prompts": json.dumps(said)})


def free_run(model: torch.nn.Module, tokens: list[int]) -> tuple[list[int], list[float]]:
    """Chooses FREE_TOKENS tokens by the largest logit and ignores ends; also returns the margins to the second
    largest."""
    outputs: list[int] = []
    margins: list[float] = []
    cache = None
    given = torch.tensor([tokens])
    with torch.inference_mode():
        while len(outputs) < FREE_TOKENS:
            result = model(given, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            values, indices = result.logits[0, -1].topk(2)
            outputs.append(int(indices[0]))
            margins.append(float(values[0] - values[1]))
            given = indices[:1][None]
    return outputs, margins


if __name__ == "__main__":
    main()
