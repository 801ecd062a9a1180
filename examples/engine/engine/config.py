# SPDX-License-Identifier: Apache-2.0
"""The sizes of a Llama-type decoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes in elements; context in tokens."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    ffn_width: int
    vocabulary: int
    context: int
    rope_base: float
    rms_eps: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ValueError(f"config: {field.name} is {value}; legal is more than 0")
        if self.width % self.heads or self.head_width % 2:
            raise ValueError(f"config: {self.heads} heads of a width of {self.width}; legal is a "
                             "width that is a whole, even number for each head")
        if self.heads % self.kv_heads:
            raise ValueError(f"config: {self.heads} heads share {self.kv_heads} heads of keys; "
                             "legal is as many for each")

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @staticmethod
    def from_gguf(metadata: Mapping[str, Any]) -> LlamaConfig:
        """Returns the sizes from the metadata of a GGUF file."""
        said = metadata.get("general.architecture")
        if said != "llama":
            raise ValueError(f"GGUF metadata: general.architecture is {said!r}; legal is 'llama'")

        def of(name: str) -> Any:
            if f"llama.{name}" not in metadata:
                raise ValueError(f"GGUF metadata: llama.{name} is missing; take another file")
            return metadata[f"llama.{name}"]

        config = LlamaConfig(
            layers=int(of("block_count")), width=int(of("embedding_length")),
            heads=int(of("attention.head_count")), kv_heads=int(of("attention.head_count_kv")),
            ffn_width=int(of("feed_forward_length")), vocabulary=int(of("vocab_size")),
            context=int(of("context_length")), rope_base=float(of("rope.freq_base")),
            # The metadata holds it as a float32.
            rms_eps=float(f"{of('attention.layer_norm_rms_epsilon'):.6g}"))
        if of("rope.dimension_count") != config.head_width:
            raise ValueError(f"GGUF metadata: {of('rope.dimension_count')} elements of a head of "
                             f"{config.head_width} are rotated; legal is all")
        return config

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> LlamaConfig:
        return LlamaConfig(**json.loads(text))

    @staticmethod
    def open(checkpoint: Path) -> LlamaConfig:
        """Reads the sizes from the header of the converted file, without its tensors."""
        try:
            with safe_open(checkpoint, "np") as file:
                head = file.metadata() or {}
        except SafetensorError as error:
            raise ValueError(f"{checkpoint}: no converted file ({error}); delete it, and it is made again") from None
        if "config" not in head:
            raise ValueError(f"{checkpoint}: the head says nothing of a config; delete the file, and it "
                             "is converted again")
        return LlamaConfig.from_json(head["config"])
