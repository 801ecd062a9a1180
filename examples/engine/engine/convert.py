# SPDX-License-Identifier: Apache-2.0
"""Converts the GGUF file, once, to one safetensors file that all workers map.

Names and layouts are the usual ones of Llama checkpoints, so other programs can read the file too. The head is
the embedding. The header of the file holds the tokenizer's data, because reading that from GGUF takes seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tendon

from . import gguf_file
from .config import LlamaConfig

# Increase it whenever the written data changes.
VERSION = 1
TOKENIZER_KEYS = tuple(f"tokenizer.{name}" for name in (
    "ggml.model", "ggml.pre", "ggml.tokens", "ggml.token_type", "ggml.merges", "ggml.bos_token_id",
    "ggml.eos_token_id", "chat_template"))
_LAYER_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}

Array = npt.NDArray[Any]


def cache_folder() -> Path:
    """XDG_CACHE_HOME is used if it is an absolute path, as its specification requires."""
    said = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(said) if os.path.isabs(said) else Path.home() / ".cache"
    return base / "tendon" / "engine"


def checkpoint_path() -> Path:
    """Returns the path of the converted file; another source or layout has another name."""
    return cache_folder() / f"smollm2-135m-{gguf_file.SHA256[:16]}-{VERSION}.safetensors"


def convert_once() -> Path:
    """Returns the path of the converted file, made if it is missing; two concurrent conversions write the same.

    The file appears whole or not at all, so an existing file is used as it is.
    """
    path = checkpoint_path()
    if path.is_file():
        return path
    source = gguf_file.find()
    gguf_file.check(source)
    file = gguf_file.GgufFile(source)
    config = LlamaConfig.from_gguf(file.metadata)
    tokenizer = {key: file.metadata[key] for key in TOKENIZER_KEYS if key in file.metadata}
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, config, from_gguf(config, file.tensors()), tokenizer)
    return path


def save(path: Path, config: LlamaConfig, tensors: Mapping[str, Array],
         tokenizer: Mapping[str, Any]) -> None:
    tendon.save(path, dict(tensors), metadata={
        "format": "pt", "config": config.to_json(), "tokenizer": json.dumps(tokenizer)})


def from_gguf(config: LlamaConfig, tensors: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Returns the same tensors by their checkpoint names, with queries and keys in the order of its rotation."""
    made = {}
    for name, tensor in tensors:
        rows_of_heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
        if name in _NAMES:
            made[_NAMES[name]] = tensor
            continue
        kind, layer, what, suffix = (name.split(".") + ["", "", ""])[:4]
        if kind != "blk" or what not in _LAYER_NAMES or suffix != "weight":
            raise ValueError(f"GGUF file: the tensor {name} is unknown; legal are those of a Llama "
                             "without biases, whose head is its embedding")
        if what in rows_of_heads:
            tensor = unpermute(tensor, rows_of_heads[what])
        made[f"model.layers.{int(layer)}.{_LAYER_NAMES[what]}.weight"] = tensor
    return made


def unpermute(weight: Array, heads: int) -> Array:
    """Reorders rows of queries or keys [heads * head_width, in], from adjacent pairs to pairs half a head apart.

    In GGUF the two elements that rope rotates together are adjacent.
    """
    rows, columns = weight.shape
    return np.ascontiguousarray(
        weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)).reshape(rows, columns)
