# SPDX-License-Identifier: Apache-2.0
"""A worker's state of sequences, from StepInputs alone; it never checks whether a sequence has ended."""

from __future__ import annotations

from dataclasses import dataclass

from .config import LlamaConfig
from .kv_cache import KvCache
from .step import (BLOCK_SIZE, Divergence, SequenceParams, SequenceScheduleMetadata, StepError,
                   StepInputs)


class Sequence:
    """The known tokens, and how many of them have their keys in the cache."""

    def __init__(self, params: SequenceParams) -> None:
        self.params = params
        self.prompt_count = len(params.prompt_token_ids)
        self.tokens = list(params.prompt_token_ids)
        self.computed = 0
        self.attempt = 0


@dataclass(frozen=True)
class Chunk:
    """The tokens [first, first + count) of a sequence, computed in this step."""

    sequence: Sequence
    first: int
    count: int
    samples: bool  # they are its last ones: the next token is chosen


class Sequences:
    """All sequences that the controller has announced and not ended."""

    def __init__(self, config: LlamaConfig, cache: KvCache) -> None:
        self._config, self._cache = config, cache
        self._known: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, seq_id: int) -> bool:
        return seq_id in self._known

    def clear(self) -> None:
        self._known.clear()
        self._cache.clear()

    def apply(self, step: StepInputs) -> list[Chunk]:
        """Returns the chunks of this step. Order: new sequences, pending outputs, ends, preemptions, schedule."""
        scheduled = step.scheduler_output
        for params in step.new_seq_params:
            self._admit(params)
        for pending in step.pending_step_outputs:
            for output in pending.sampler_outputs:
                # A sequence that ended during its last step is unknown now.
                sequence = self._known.get(output.seq_id)
                if sequence is not None:
                    self._check_tokens(output.seq_id, output.output_tokens)
                    sequence.tokens += output.output_tokens
        for seq_id in (*scheduled.ignored_seq_ids, *(one.seq_id for one in scheduled.finished_seqs)):
            self._known.pop(seq_id, None)
            self._cache.free(seq_id)
        for seq_id in scheduled.preempted_seq_ids:
            self._begin_anew(self._of(seq_id))
        seen: set[int] = set()
        chunks = []
        for metadata in scheduled.seq_schedule_metadata_list:
            if metadata.seq_id in seen:
                raise StepError(f"StepInputs: sequence {metadata.seq_id} is twice in step "
                                f"{scheduled.schedule_id}; legal is once")
            seen.add(metadata.seq_id)
            chunks.append(self._chunk(metadata))
        return chunks

    def _of(self, seq_id: int) -> Sequence:
        if seq_id not in self._known:
            raise Divergence(seq_id, "existence", "unknown", "known")
        return self._known[seq_id]

    def _admit(self, params: SequenceParams) -> None:
        if not 0 <= params.seq_id < 2**64:
            raise StepError(f"StepInputs: a seq_id is {params.seq_id}; legal is 0 to 2^64 - 1")
        if params.seq_id in self._known:
            raise Divergence(params.seq_id, "existence", "known", "new")
        if not params.prompt_token_ids:
            raise StepError(f"StepInputs: the prompt of sequence {params.seq_id} is empty; legal is one "
                            "token or more")
        if params.block_size != BLOCK_SIZE:
            raise StepError(f"StepInputs: block_size of sequence {params.seq_id} is {params.block_size}; "
                            f"legal is {BLOCK_SIZE}")
        self._check_tokens(params.seq_id, params.prompt_token_ids)
        if params.eos_token_id is not None:
            self._check_tokens(params.seq_id, (params.eos_token_id,))
        params.sampling_params.check()
        self._known[params.seq_id] = Sequence(params)

    def _check_tokens(self, seq_id: int, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            if not 0 <= token < self._config.vocabulary:
                raise StepError(f"StepInputs: sequence {seq_id} has the token {token}; legal is 0 to "
                                f"{self._config.vocabulary - 1}")

    def _begin_anew(self, sequence: Sequence) -> None:
        self._cache.free(sequence.params.seq_id)
        sequence.computed = 0

    def _chunk(self, metadata: SequenceScheduleMetadata) -> Chunk:
        seq_id, count = metadata.seq_id, metadata.num_q_tokens
        sequence = self._of(seq_id)
        if metadata.attempt < sequence.attempt:
            raise Divergence(seq_id, "attempt", sequence.attempt, metadata.attempt)
        if metadata.attempt > sequence.attempt:
            sequence.attempt = metadata.attempt
            self._begin_anew(sequence)
        if metadata.position != sequence.computed:
            raise Divergence(seq_id, "position", sequence.computed, metadata.position)
        end = metadata.position + count
        if count < 1 or end > len(sequence.tokens):
            raise Divergence(seq_id, "number of known tokens", len(sequence.tokens), end)
        if end > self._config.context:
            raise StepError(f"StepInputs: sequence {seq_id} would have {end} tokens; legal is a context of "
                            f"{self._config.context}")
        at_most = sequence.prompt_count + (sequence.params.sampling_params.max_tokens or 0)
        self._cache.extend(seq_id, end, min(at_most, self._config.context))
        yours = metadata.kvp_group_block_counter.get(self._cache.kv_rank)
        mine = len(self._cache.table(seq_id))
        if yours is not None and yours != mine:
            raise Divergence(seq_id, f"number of blocks on KV rank {self._cache.kv_rank}", mine, yours)
        sequence.computed = end
        return Chunk(sequence, metadata.position, count, end == len(sequence.tokens))
