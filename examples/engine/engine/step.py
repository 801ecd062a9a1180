# SPDX-License-Identifier: Apache-2.0
"""What the controller says for a step and what comes back: the messages of tendon.v1 without Protobuf.

Names and meanings are those of the messages, so a worker turns one into the other field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BLOCK_SIZE = 16  # tokens of a block of keys and values
# Least and most, both included; a NaN is neither. Those of penalties and logprobs are usual for HTTP servers too.
_LEGAL = (("temperature", 0.0, 100.0), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0),
          ("repetition_penalty", 0.01, 100.0), ("presence_penalty", -2.0, 2.0),
          ("frequency_penalty", -2.0, 2.0), ("logprobs", 0, 20), ("min_tokens", 0, 2**32 - 1),
          ("max_tokens", 1, 2**32 - 1), ("seed", 0, 2**64 - 1))


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; None: not said.

    Without a temperature, or with 0, it is the token of the largest logit. max_tokens, ignore_eos and stop are
    the controller's: a worker never ends a sequence.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None  # 0 or less: all
    min_p: float | None = None
    seed: int | None = None  # unsigned, 64 bits; None: made from the seq_id
    repetition_penalty: float | None = None  # of tokens of prompt and output
    presence_penalty: float | None = None  # of tokens of the output
    frequency_penalty: float | None = None
    logprobs: int | None = None  # how many others beside the chosen token; 0: the chosen one
    min_tokens: int | None = None  # before which no eos_token_id is chosen
    max_tokens: int | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises StepError where a number is none that a sampler can use."""
        for name, least, most in _LEGAL:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise StepError(f"sampling_params.{name} is {value}; legal is {least} to {most}")


@dataclass(frozen=True)
class SequenceParams:
    """A sequence that the workers hear of for the first time."""

    seq_id: int
    prompt_token_ids: tuple[int, ...]
    prompt: str = ""  # for people; nothing is computed from it
    block_size: int = BLOCK_SIZE
    eos_token_id: int | None = None
    arrival_time: float = 0.0  # seconds since the epoch
    sampling_params: SamplingParams = SamplingParams()


@dataclass(frozen=True)
class SequenceScheduleMetadata:
    """num_q_tokens tokens of a sequence are computed in this step, from `position` on."""

    schedule_id: int
    seq_id: int
    num_q_tokens: int
    position: int  # tokens of it whose keys are there before this step
    attempt: int = 0  # one more each time that it begins anew, at position 0
    kvp_group_block_counter: Mapping[int, int] = field(default_factory=dict)  # by KV rank, after this step
    kvp_group_ids: tuple[int, ...] = ()
    is_kvp_request: bool = False


@dataclass(frozen=True)
class FinishedSequence:
    seq_id: int
    reason: str  # stop, length, cancelled, ...


@dataclass(frozen=True)
class SchedulerOutput:
    schedule_id: int
    seq_schedule_metadata_list: tuple[SequenceScheduleMetadata, ...] = ()
    ignored_seq_ids: tuple[int, ...] = ()  # refused: forgotten
    preempted_seq_ids: tuple[int, ...] = ()  # their blocks are freed, their tokens kept
    finished_seqs: tuple[FinishedSequence, ...] = ()  # forgotten, blocks freed


@dataclass(frozen=True)
class TokenLogprobs:
    """Natural logarithms, of the model's own probabilities: before temperature, penalties and cuts."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the most probable, falling


@dataclass(frozen=True)
class SamplerOutput:
    schedule_id: int
    seq_id: int
    output_tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()  # one a token where they were asked for


@dataclass(frozen=True)
class PendingStepOutput:
    """What an earlier step gave, as all workers have to know before this one.

    After a rebuild, one with all tokens that were accepted brings a sequence back to where it was.
    """

    scheduler_output: SchedulerOutput
    sampler_outputs: tuple[SamplerOutput, ...]


@dataclass(frozen=True)
class StepInputs:
    scheduler_output: SchedulerOutput
    new_seq_params: tuple[SequenceParams, ...] = ()
    pending_step_outputs: tuple[PendingStepOutput, ...] = ()
    deadline_ms: int | None = None  # for all of the step's moves together; None: move_timeout_ms, for each
    move_timeout_ms: int | None = None  # None: 30 s


@dataclass(frozen=True)
class StepNs:
    """Where a step's time went, in nanoseconds."""

    compute: int = 0
    wait: int = 0  # for a peer
    move: int = 0


@dataclass(frozen=True)
class StepOutputs:
    schedule_id: int
    sampler_outputs: tuple[SamplerOutput, ...]  # none from KV ranks other than 0
    tokens_hash: int  # equal on all KV ranks
    step_ns: StepNs


@dataclass(frozen=True)
class StepMicrobatchOutputs:
    """The first stage is done with this step."""

    schedule_id: int


def tokens_hash(outputs: Iterable[SamplerOutput]) -> int:
    """FNV-1a, 64 bits, of seq_id, number of tokens and tokens of each output, as 8 bytes each, the lowest first."""
    value = 0xCBF29CE484222325
    for output in outputs:
        for word in (output.seq_id, len(output.output_tokens), *output.output_tokens):
            for byte in word.to_bytes(8, "little"):
                value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


class StepError(ValueError):
    """These StepInputs cannot be run; call StepRunner.reset() before the next."""


class Divergence(StepError):
    """Controller and worker differ in what a sequence is."""

    def __init__(self, seq_id: int, what: str, mine: object, yours: object) -> None:
        super().__init__(f"divergence: {what} of sequence {seq_id} is {mine} here and {yours} in "
                         "StepInputs; free all sequences and admit them again")
        self.seq_id, self.mine, self.yours = seq_id, mine, yours
