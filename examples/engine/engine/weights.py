# SPDX-License-Identifier: Apache-2.0
"""The converted file as mapped memory, and one rank's part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.dlpack import from_dlpack

import tendon

from .config import LlamaConfig


@dataclass(frozen=True)
class Checkpoint:
    """All weights, as views of the mapped file: processes that map it share its pages."""

    config: LlamaConfig
    tensors: Mapping[str, torch.Tensor]

    @staticmethod
    def open(path: Path) -> Checkpoint:
        batch = tendon.load(path)
        return Checkpoint(LlamaConfig.open(path), {name: from_dlpack(batch[name]) for name in batch.keys()})

    def of(self, name: str, *shape: int) -> torch.Tensor:
        tensor = self.tensors.get(f"model.{name}.weight")
        if tensor is None or tuple(tensor.shape) != shape:
            found = "missing" if tensor is None else f"{list(tensor.shape)}"
            raise ValueError(f"weights: model.{name}.weight is {found}; legal is {list(shape)}")
        return tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.of("norm", self.config.width).dtype


@dataclass(frozen=True)
class LayerWeights:
    """One rank's part of a layer. W: width; H, K: this rank's heads and heads of keys; D: a head's width;
    F: this rank's columns of the feed-forward layer."""

    input_norm: torch.Tensor  # [W]
    q: torch.Tensor  # [H*D, W]
    k: torch.Tensor  # [K*D, W]
    v: torch.Tensor  # [K*D, W]
    o: torch.Tensor  # [W, H*D], a copy: its columns are not contiguous in the file
    post_norm: torch.Tensor  # [W]
    gate: torch.Tensor  # [F, W]
    up: torch.Tensor  # [F, W]
    down: torch.Tensor  # [W, F], a copy


@dataclass(frozen=True)
class StageWeights:
    """The weights of one rank."""

    layers: tuple[LayerWeights, ...]
    embedding: torch.Tensor | None  # [vocabulary, W], in the first stage
    norm: torch.Tensor | None  # [W], in the last stage
    head: torch.Tensor | None  # [vocabulary / TP, W], in the last stage
    head_first: int  # the token of its first row


def stage_weights(checkpoint: Checkpoint, layout: tendon.ParallelLayout, rank: int) -> StageWeights:
    """Rows are views of the mapping; a part of the columns is copied."""
    config, place, ways = checkpoint.config, layout.place_of(rank), layout.tensor
    width, queries = config.width, config.heads * config.head_width
    keys = config.kv_heads * config.head_width

    def rows(name: str, count: int) -> torch.Tensor:
        share = count // ways
        return checkpoint.of(name, count, width)[place.tensor * share:(place.tensor + 1) * share]

    def columns(name: str, count: int) -> torch.Tensor:
        share = count // ways
        whole = checkpoint.of(name, width, count)
        return whole[:, place.tensor * share:(place.tensor + 1) * share].contiguous()

    def layer(number: int) -> LayerWeights:
        at = f"layers.{number}"
        return LayerWeights(
            input_norm=checkpoint.of(f"{at}.input_layernorm", width),
            q=rows(f"{at}.self_attn.q_proj", queries), k=rows(f"{at}.self_attn.k_proj", keys),
            v=rows(f"{at}.self_attn.v_proj", keys), o=columns(f"{at}.self_attn.o_proj", queries),
            post_norm=checkpoint.of(f"{at}.post_attention_layernorm", width),
            gate=rows(f"{at}.mlp.gate_proj", config.ffn_width),
            up=rows(f"{at}.mlp.up_proj", config.ffn_width),
            down=columns(f"{at}.mlp.down_proj", config.ffn_width))

    last = place.pipeline == layout.pipeline - 1
    return StageWeights(
        layers=tuple(map(layer, layout.layers_of(place.pipeline, config.layers))),
        embedding=(checkpoint.of("embed_tokens", config.vocabulary, width)
                   if place.pipeline == 0 else None),
        norm=checkpoint.of("norm", width) if last else None,
        head=rows("embed_tokens", config.vocabulary) if last else None,
        head_first=place.tensor * (config.vocabulary // ways))
