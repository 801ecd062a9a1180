# SPDX-License-Identifier: Apache-2.0
"""Runs steps on one rank: StepInputs in, StepOutputs out."""

from __future__ import annotations

import torch

import tendon

from . import layout as layouts
from . import sampler
from .batch import Batches
from .kv_cache import KvCache
from .layout import Groups
from .model import Decoder
from .moves import Moves
from .sequences import Chunk, Sequences
from .step import (SamplerOutput, StepError, StepInputs, StepNs, StepOutputs, TokenLogprobs,
                   tokens_hash)
from .weights import Checkpoint, stage_weights


class StepRunner:
    """One rank's weights, cache and sequences. All ranks of the layout run the same steps in the same order.

    Single-threaded. An error of run() leaves a step half applied, here and perhaps in the cache: run() then refuses
    steps until reset(), after which the controller must admit every sequence again.
    """

    def __init__(self, checkpoint: Checkpoint, layout: tendon.ParallelLayout, rank: int, groups: Groups, *,
                 blocks: int) -> None:
        """blocks: the blocks of keys and values that this rank has room for, 16 tokens each."""
        layouts.check(checkpoint.config, layout)
        config, place = checkpoint.config, layout.place_of(rank)
        weights = stage_weights(checkpoint, layout, rank)
        self._vocabulary, self._head_first = config.vocabulary, weights.head_first
        self.is_first_stage = place.pipeline == 0
        self.is_last_stage = place.pipeline == layout.pipeline - 1
        self.gives_outputs = self.is_last_stage and place.tensor == 0
        self.gives_microbatches = self.is_first_stage and layout.pipeline > 1 and place.tensor == 0
        self._gives_tokens = place.kv == 0
        self._moves = Moves(groups)
        self.cache = KvCache(layers=len(weights.layers), kv_heads=config.kv_heads // layout.tensor,
                             head_width=config.head_width, blocks=blocks, dtype=checkpoint.dtype,
                             kv_rank=place.kv, kv_size=layout.kv)
        self.sequences = Sequences(config, self.cache)
        self._batches = Batches(config, self.cache, checkpoint.dtype)
        self._decoder = Decoder(config, weights, self.cache, self._moves)
        self._whole = True
        self.last_step_ns = StepNs()

    @property
    def free_blocks(self) -> int:
        return self.cache.free_blocks

    def run(self, step: StepInputs) -> StepOutputs | None:
        """Returns the outputs on TP rank 0 of the last stage, None on the others.

        Raises Divergence and StepError for invalid steps, and Tendon's errors of groups.
        """
        if not self._whole:
            raise StepError("StepRunner: the step before ended by an error; call reset() first")
        self._whole = False
        self._moves.begin(step.scheduler_output.schedule_id, step.deadline_ms, step.move_timeout_ms)
        with torch.inference_mode():
            chunks = self.sequences.apply(step)
            logits = self._decoder.forward(self._batches.of(chunks)) if chunks else None
            outputs: tuple[SamplerOutput, ...] = ()
            if logits is not None:
                outputs = self._outputs(step.scheduler_output.schedule_id,
                                        [chunk for chunk in chunks if chunk.samples], logits)
        self.last_step_ns = self._moves.end()
        self._whole = True
        if not self.gives_outputs:
            return None
        return StepOutputs(step.scheduler_output.schedule_id, outputs if self._gives_tokens else (),
                           tokens_hash(outputs), self.last_step_ns)

    def reset(self) -> None:
        """Forgets all sequences and frees all blocks."""
        self.sequences.clear()
        self._whole = True

    def regroup(self, groups: Groups) -> None:
        """Continues in new groups of the same layout, without any sequence."""
        self.reset()
        self._moves.groups = groups

    def _outputs(self, schedule_id: int, chunks: list[Chunk],
                 logits: torch.Tensor) -> tuple[SamplerOutput, ...]:
        """logits [m, vocabulary / TP], a row for each of the chunks."""
        chosen: dict[int, tuple[int, tuple[TokenLogprobs, ...]]] = {}
        asked = [row for row, chunk in enumerate(chunks) if sampler.needs_logits(chunk.sequence)]
        if len(asked) < len(chunks):
            for row, token in enumerate(self._greedy(logits)):
                chosen[row] = token, ()
        if asked:
            parts = self._moves.gather_over_tensor(logits[asked])
            whole = parts.transpose(0, 1).reshape(len(asked), self._vocabulary)
            for row, its in zip(asked, whole):
                one = sampler.choose(chunks[row].sequence, its)
                chosen[row] = one.token, (one.logprobs,) if one.logprobs is not None else ()
        return tuple(
            SamplerOutput(schedule_id, chunk.sequence.params.seq_id, (chosen[row][0],), chosen[row][1])
            for row, chunk in enumerate(chunks))

    def _greedy(self, logits: torch.Tensor) -> list[int]:
        """Returns the token of the largest logit of each row, the lowest of equals."""
        values, indices = logits.max(1)
        # A double holds both exactly, so one array is enough.
        mine = torch.stack((values.double(), (indices + self._head_first).double()), 1)
        parts = self._moves.gather_over_tensor(mine)
        best = parts[:, :, 0].argmax(0)  # the first of equals has the lower tokens
        return [int(parts[rank, row, 1]) for row, rank in enumerate(best.tolist())]
