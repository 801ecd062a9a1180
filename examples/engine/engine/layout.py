# SPDX-License-Identifier: Apache-2.0
"""The roles of ranks: rank = tp + TP * (kvp + KVP * pp), and the groups in which ranks work together."""

from __future__ import annotations

from dataclasses import dataclass

import tendon

from .config import LlamaConfig


MOST_WORKERS = 128  # processes on one host


def parse(text: str) -> tendon.ParallelLayout:
    """Parses 'TP,PP,KVP', such as '3,2,1'."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"layout: {text[:60]!r} is not TP,PP,KVP; legal is three whole numbers, such as 3,2,1")
    tensor, pipeline, kv = (int(part) if len(part) < 10 else 10**9 for part in parts)
    if tensor * pipeline * kv > MOST_WORKERS:
        raise ValueError(f"layout: {text[:60]!r} is a layout of {tensor * pipeline * kv} workers; legal is up to "
                         f"{MOST_WORKERS}")
    return tendon.ParallelLayout(tensor=tensor, pipeline=pipeline, kv=kv)


def check(config: LlamaConfig, layout: tendon.ParallelLayout) -> None:
    """Raises ValueError if the model cannot be split like that."""
    ways = layout.tensor
    for count, what in ((config.heads, "heads"), (config.kv_heads, "heads of keys and values"),
                        (config.ffn_width, "columns of the feed-forward layer"),
                        (config.vocabulary, "tokens of the vocabulary")):
        if count % ways:
            legal = [n for n in range(1, config.kv_heads + 1) if all(
                size % n == 0 for size in (config.heads, config.kv_heads, config.ffn_width,
                                           config.vocabulary))]
            raise ValueError(f"layout: TP is {ways}, and {count} {what} cannot be shared equally by "
                             f"{ways} ranks; give TP as one of {legal}")
    if layout.pipeline > config.layers:
        raise ValueError(f"layout: PP is {layout.pipeline}, and {config.layers} layers leave a stage "
                         f"without any; give PP as 1 to {config.layers}")


@dataclass(frozen=True)
class Groups:
    """The groups that one rank works in; a group of one member is never used for a move."""

    tensor: tendon.Group
    kv: tendon.Group
    pipeline: tendon.Group

    def close(self) -> None:
        for group in (self.pipeline, self.kv, self.tensor):
            group.close()


def split(world: tendon.Group, layout: tendon.ParallelLayout, *, timeout: float | None = 30) -> Groups:
    """Makes the groups; every member of the world calls it. All workers use the order TP, KV, PP."""
    if world.size != layout.world_size:
        raise ValueError(f"layout: {layout!r} is for {layout.world_size} ranks, and the world has "
                         f"{world.size}; start {layout.world_size} workers or give another layout")
    rank = world.rank
    return Groups(tensor=world.split(layout.tensor_group_of(rank), timeout=timeout, name="tp"),
                  kv=world.split(layout.kv_group_of(rank), timeout=timeout, name="kv"),
                  pipeline=world.split(layout.pipeline_group_of(rank), timeout=timeout, name="pp"))
