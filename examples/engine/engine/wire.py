# SPDX-License-Identifier: Apache-2.0
"""Steps as bytes: converts the messages of proto/tendon/v1/step.proto to those of step.py, and back."""

from __future__ import annotations

from typing import Any

from tendon.control import messages

from .step import (FinishedSequence, PendingStepOutput, SamplerOutput, SamplingParams, SchedulerOutput,
                   SequenceParams, SequenceScheduleMetadata, StepInputs, StepOutputs)

_REASONS = {messages.FINISH_REASON_STOP: "stop", messages.FINISH_REASON_LENGTH: "length",
            messages.FINISH_REASON_CANCELLED: "cancelled", messages.FINISH_REASON_FAILED: "failed"}
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "presence_penalty",
             "frequency_penalty", "logprobs", "min_tokens", "max_tokens")


def step_inputs(payload: bytes) -> StepInputs:
    said = messages.StepInputs.FromString(payload)
    return StepInputs(
        scheduler_output=_scheduler_output(said.scheduler_output),
        new_seq_params=tuple(map(_sequence_params, said.new_seq_params)),
        pending_step_outputs=tuple(
            PendingStepOutput(SchedulerOutput(one.scheduler_output.schedule_id),
                              tuple(map(_sampler_output, one.sampler_outputs)))
            for one in said.pending_step_outputs),
        deadline_ms=said.deadline_ms or None,
        move_timeout_ms=said.move_timeout_ms or None)


def step_outputs(outputs: StepOutputs) -> bytes:
    """Returns the payload for Worker.send_outputs()."""
    made = messages.StepOutputs(schedule_id=outputs.schedule_id, tokens_hash=outputs.tokens_hash)
    for one in outputs.sampler_outputs:
        sampled = made.sampler_outputs.add(schedule_id=one.schedule_id, seq_id=one.seq_id,
                                           output_tokens=one.output_tokens)
        for each in one.logprobs:
            logprobs = sampled.logprobs.add(logprob=each.logprob)
            for token, logprob in each.top:
                logprobs.top.add(token_id=token, logprob=logprob)
    made.step_ns.compute, made.step_ns.wait, made.step_ns.move = (
        outputs.step_ns.compute, outputs.step_ns.wait, outputs.step_ns.move)
    return bytes(made.SerializeToString())


def _scheduler_output(said: Any) -> SchedulerOutput:
    return SchedulerOutput(
        said.schedule_id,
        tuple(SequenceScheduleMetadata(
            one.schedule_id, one.seq_id, one.num_q_tokens, one.position, one.attempt,
            dict(one.kvp_group_block_counter), tuple(one.kvp_group_ids), one.is_kvp_request)
            for one in said.seq_schedule_metadata_list),
        tuple(said.ignored_seq_ids), tuple(said.preempted_seq_ids),
        tuple(FinishedSequence(one.seq_id, _REASONS.get(one.reason, "unknown")) for one in said.finished_seqs))


def _sequence_params(said: Any) -> SequenceParams:
    sampling = said.sampling_params
    return SequenceParams(
        said.seq_id, tuple(said.prompt_token_ids), said.prompt, said.block_size,
        said.eos_token_id or None,  # 0: the model has none
        said.arrival_time / 1e9,
        SamplingParams(ignore_eos=sampling.ignore_eos, stop=tuple(sampling.stop),
                       **{name: getattr(sampling, name) for name in _SAMPLING if sampling.HasField(name)}))


def _sampler_output(said: Any) -> SamplerOutput:
    return SamplerOutput(said.schedule_id, said.seq_id, tuple(said.output_tokens))
