# SPDX-License-Identifier: Apache-2.0
"""The controller's side of engine/wire.py: StepInputs to bytes, and StepOutputs from them."""

from tendon.control import messages

from engine.step import SamplerOutput, StepInputs, StepNs, StepOutputs, TokenLogprobs

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "presence_penalty",
             "frequency_penalty", "logprobs", "min_tokens", "max_tokens")


def inputs_message(step: StepInputs) -> bytes:
    made = messages.StepInputs(deadline_ms=step.deadline_ms or 0, move_timeout_ms=step.move_timeout_ms or 0)
    for params in step.new_seq_params:
        new = made.new_seq_params.add(seq_id=params.seq_id, prompt_token_ids=params.prompt_token_ids,
                                      block_size=params.block_size, eos_token_id=params.eos_token_id or 0)
        for name in _SAMPLING:
            value = getattr(params.sampling_params, name)
            if value is not None:
                setattr(new.sampling_params, name, value)
    for pending in step.pending_step_outputs:
        told = made.pending_step_outputs.add()
        for output in pending.sampler_outputs:
            told.sampler_outputs.add(seq_id=output.seq_id, output_tokens=output.output_tokens)
    scheduled, its = step.scheduler_output, made.scheduler_output
    its.schedule_id = scheduled.schedule_id
    its.ignored_seq_ids.extend(scheduled.ignored_seq_ids)
    its.preempted_seq_ids.extend(scheduled.preempted_seq_ids)
    for finished in scheduled.finished_seqs:
        its.finished_seqs.add(seq_id=finished.seq_id, reason=messages.FINISH_REASON_LENGTH)
    for part in scheduled.seq_schedule_metadata_list:
        said = its.seq_schedule_metadata_list.add(
            schedule_id=part.schedule_id, seq_id=part.seq_id, num_q_tokens=part.num_q_tokens,
            position=part.position, attempt=part.attempt)
        for rank, blocks in part.kvp_group_block_counter.items():
            said.kvp_group_block_counter[rank] = blocks
    return made.SerializeToString()


def outputs_of(payload: bytes) -> StepOutputs:
    said = messages.StepOutputs.FromString(payload)
    return StepOutputs(said.schedule_id, tuple(
        SamplerOutput(one.schedule_id, one.seq_id, tuple(one.output_tokens), tuple(
            TokenLogprobs(token, each.logprob, tuple((top.token_id, top.logprob) for top in each.top))
            for token, each in zip(one.output_tokens, one.logprobs)))
        for one in said.sampler_outputs), said.tokens_hash, StepNs(
            said.step_ns.compute, said.step_ns.wait, said.step_ns.move))
