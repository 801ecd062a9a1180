# SPDX-License-Identifier: Apache-2.0
"""A small scheduler: decodes first, then prefill chunks, staggered arrivals, preemptions, several steps in flight."""

from collections import deque
from dataclasses import dataclass, field

from engine.step import (BLOCK_SIZE, FinishedSequence, PendingStepOutput, SchedulerOutput, SequenceParams,
                         SequenceScheduleMetadata, StepInputs, StepOutputs)

from .workers import Workers


@dataclass
class Request:
    params: SequenceParams
    arrival: int = 0  # the step in which it starts
    preempted_after: int | None = None  # the number of outputs after which it starts again
    outputs: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    position: int = 0
    attempt: int = 0
    in_flight: bool = False
    told: bool = False
    finished: bool = False

    @property
    def known(self) -> int:
        return len(self.params.prompt_token_ids) + len(self.outputs)

    @property
    def done(self) -> bool:
        return len(self.outputs) >= self.params.sampling_params.max_tokens


def play(workers: Workers, requests: list[Request], *, kv_size: int, in_flight: int = 1,
         budget: int = 24) -> int:
    """Runs all requests to their ends; returns the number of steps. Steps are numbered from 1, as by a Controller."""
    under_way: deque[SchedulerOutput] = deque()
    pending: list[PendingStepOutput] = []
    schedule_id = 1
    while not all(request.finished for request in requests) or under_way:
        step = _next_step(schedule_id, requests, pending, kv_size, budget, in_flight)
        useful = step.scheduler_output.seq_schedule_metadata_list or step.scheduler_output.finished_seqs
        if useful:
            workers.start(step)
            under_way.append(step.scheduler_output)
            pending = []
        schedule_id += 1
        if under_way and (len(under_way) == in_flight or not useful):
            done = under_way.popleft()
            pending.append(_take(done, workers.finish(), requests, kv_size))
    return schedule_id - 1


def _next_step(schedule_id: int, requests: list[Request], pending: list[PendingStepOutput], kv_size: int,
               budget: int, in_flight: int) -> StepInputs:
    ready = [one for one in requests if one.arrival <= schedule_id and not one.in_flight and not one.finished]
    finished, preempted, new, chunks = [], [], [], []
    for one in ready:
        if one.done:
            one.finished = True
            finished.append(FinishedSequence(one.params.seq_id, "length"))
        elif one.preempted_after is not None and len(one.outputs) >= one.preempted_after:
            one.preempted_after, one.position = None, 0
            one.attempt += 1
            preempted.append(one.params.seq_id)
    going = sorted((one for one in ready if not one.finished), key=lambda one: one.known - one.position > 1)
    for one in going[:max(1, -(-len(requests) // in_flight))]:
        count = min(one.known - one.position, budget)
        if count == 0:
            continue
        budget -= count
        if not one.told:
            one.told = True
            new.append(one.params)
        blocks = -(-(one.position + count) // BLOCK_SIZE)
        chunks.append(SequenceScheduleMetadata(
            schedule_id, one.params.seq_id, count, one.position, one.attempt,
            {rank: len(range(rank, blocks, kv_size)) for rank in range(kv_size)}))
        one.position += count
        one.in_flight = True
    return StepInputs(SchedulerOutput(schedule_id, tuple(chunks), preempted_seq_ids=tuple(preempted),
                                      finished_seqs=tuple(finished)), tuple(new), tuple(pending))


def _take(done: SchedulerOutput, outputs: list[StepOutputs], requests: list[Request],
          kv_size: int) -> PendingStepOutput:
    assert len(outputs) == kv_size
    assert {output.schedule_id for output in outputs} == {done.schedule_id}
    assert len({output.tokens_hash for output in outputs}) == 1
    assert not any(output.sampler_outputs for output in outputs[1:])
    by_id = {one.params.seq_id: one for one in requests}
    for metadata in done.seq_schedule_metadata_list:
        by_id[metadata.seq_id].in_flight = False
    for output in outputs[0].sampler_outputs:
        by_id[output.seq_id].outputs += output.output_tokens
        by_id[output.seq_id].logprobs += [each.logprob for each in output.logprobs]
    return PendingStepOutput(done, outputs[0].sampler_outputs)
