# SPDX-License-Identifier: Apache-2.0
"""The jobs for the engine and for `transformers`: prompts with known continuations, and the numbers of tokens."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "python" / "engine_support" / "golden.safetensors"
TOKENS = 64
TOGETHER = 8
ARRIVING = 24


@dataclass(frozen=True)
class Asked:
    prompt: list[int]
    tokens: int


def golden(kind: str, number: int) -> list[int]:
    """Returns tokens. kind: prompt or output, of the eight prompts with unambiguous continuations."""
    with safe_open(GOLDEN, "np") as file:
        return file.get_tensor(f"free.{number}.{kind}").tolist()


def jobs() -> dict[str, list[Asked]]:
    prompts = [golden("prompt", number) for number in range(TOGETHER)]
    lengths = random.Random(7)
    return {"batch 1": [Asked(prompts[0], TOKENS)],
            "batch 8": [Asked(prompt, TOKENS) for prompt in prompts],
            f"{ARRIVING} at once": [Asked(prompts[number % TOGETHER], lengths.randint(8, TOKENS))
                                    for number in range(ARRIVING)]}


def answer(path: str, run: Callable[[list[Asked]], tuple[list[list[int]], float]]) -> None:
    """Reads the name of a job from each line of the input and prints its time on a line, until the input ends.
    run: returns the outputs, the first of which are compared with the known ones, and the seconds."""
    known = jobs()
    run(known["batch 8"][:2])
    print("ready", flush=True)
    for line in sys.stdin:
        asked = known[line.strip()]
        outputs, seconds = run(asked)
        if line.strip() == "batch 1" and outputs[0] != golden("output", 0)[:len(outputs[0])]:
            raise SystemExit(f"the first prompt goes on by other tokens than it should: {outputs[0]}")
        tokens = sum(one.tokens for one in asked)
        print(json.dumps({"path": path, "mode": line.strip(), "size_bytes": 0, "ratio": {},
                          "tokens_per_s": tokens / seconds}), flush=True)
