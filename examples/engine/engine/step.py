# SPDX-License-Identifier: Apache-2.0
"""The controller's messages for a step and the replies: those of tendon.v1 without Protobuf.

Names and meanings are those of the messages, so a worker converts them field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BLOCK_SIZE = 16  # tokens of a block of keys and values
# Inclusive limits; a NaN is illegal. The limits of penalties and logprobs are usual for HTTP servers too.
_LEGAL = (("temperature", 0.0, 100.0), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0),
          ("repetition_penalty", 0.01, 100.0), ("presence_penalty", -2.0, 2.0),
          ("frequency_penalty", -2.0, 2.0), ("logprobs", 0, 20), ("min_tokens", 0, 2**32 - 1),
          ("max_tokens", 1, 2**32 - 1), ("seed", 0, 2**64 - 1))


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; None: not set.

    Without a temperature, or with 0, it is the token of the largest logit. max_tokens, ignore_eos and stop are for
    the controller: a worker never ends a sequence.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None  # 0 or less: all
    min_p: float | None = None
    seed: int | None = None  # unsigned, 64 bits; None: made from the seq_id
    repetition_penalty: float | None = None  # for tokens of prompt and output
    presence_penalty: float | None = None  # for tokens of the output
    frequency_penalty: float | None = None
    logprobs: int | None = None  # alternatives besides the chosen token; 0: only the chosen one
    min_tokens: int | None = None  # no eos_token_id is chosen before
    max_tokens: int | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises StepError for a number that a sampler cannot use."""
        for name, least, most in _LEGAL:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise StepError(f"sampling_params.{name} is {value}; legal is {least} to {most}")


@dataclass(frozen=True)
class SequenceParams:
    """A sequence that is new to the workers."""

    seq_id: int
    prompt_token_ids: tuple[int, ...]
    prompt: str = ""  # for people; not used for computing
    block_size: int = BLOCK_SIZE
    eos_token_id: int | None = None
    arrival_time: float = 0.0  # seconds since the epoch
    sampling_params: SamplingParams = SamplingParams()


@dataclass(frozen=True)
class SequenceScheduleMetadata:
    """num_q_tokens tokens of a sequence, computed in this step from `position` on."""

    schedule_id: int
    seq_id: int
    num_q_tokens: int
    position: int  # its tokens whose keys exist before this step
    attempt: int = 0  # increases each time that it starts again at position 0
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
    """Natural logarithms of the model's own probabilities: before temperature, penalties and cuts."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the most probable, in falling order


@dataclass(frozen=True)
class SamplerOutput:
    schedule_id: int
    seq_id: int
    output_tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, if requested


@dataclass(frozen=True)
class PendingStepOutput:
    """The outputs of an earlier step, which all workers need before this one.

    After a rebuild, one with all accepted tokens restores a sequence.
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
    """The parts of a step's time, in nanoseconds."""

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
    """The first stage has finished this step."""

    schedule_id: int


def tokens_hash(outputs: Iterable[SamplerOutput]) -> int:
    """FNV-1a, 64 bits, of seq_id, number of tokens and tokens of each output, as 8 bytes each, lowest byte first."""
    value = 0xCBF29CE484222325
    for output in outputs:
        for word in (output.seq_id, len(output.output_tokens), *output.output_tokens):
            for byte in word.to_bytes(8, "little"):
                value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


class StepError(ValueError):
    """These StepInputs cannot be run; call StepRunner.reset() before the next ones."""


class Divergence(StepError):
    """Controller and worker differ about a sequence."""

    def __init__(self, seq_id: int, what: str, mine: object, yours: object) -> None:
        super().__init__(f"divergence: {what} of sequence {seq_id} is {mine} here and {yours} in "
                         "StepInputs; free all sequences and admit them again")
        self.seq_id, self.mine, self.yours = seq_id, mine, yours
