# SPDX-License-Identifier: Apache-2.0
"""The engine's arithmetic at (3,1,1) without its control plane, one request: its transfers use Tendon's groups or
torch.distributed over gloo. Everything else is the same."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from asked import TOKENS, golden

import tendon
from engine import convert, layout
from engine.layout import Groups
from engine.runner import StepRunner
from engine.step import (PendingStepOutput, SamplerOutput, SamplingParams, SchedulerOutput, SequenceParams,
                         SequenceScheduleMetadata, StepInputs)
from engine.weights import Checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers" / "python"))
from ping_pong import PATIENCE_S, free_port, print_document, row_of

LAYOUT = "3,1,1"
REPEATS = 2


class Gloo:
    """The part of a group that Moves uses."""

    def __init__(self, rank: int, size: int, port: int) -> None:
        import torch.distributed as dist

        self._dist, self.rank, self.size = dist, rank, size
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)

    def all_reduce(self, tensor: torch.Tensor, timeout: float | None = None) -> None:
        self._dist.all_reduce(tensor)

    def all_gather(self, mine: torch.Tensor, outputs: torch.Tensor, timeout: float | None = None) -> None:
        self._dist.all_gather(list(outputs.unbind()), mine)


def steps(first_id: int, seq_id: int) -> list[StepInputs]:
    """Returns the steps of a prompt and its known continuation, token by token."""
    prompt, outputs = golden("prompt", 0), golden("output", 0)
    made = []
    for number in range(TOKENS):
        position = 0 if number == 0 else len(prompt) + number - 1
        schedule_id = first_id + number
        part = SequenceScheduleMetadata(schedule_id, seq_id, len(prompt) if number == 0 else 1, position)
        params = SequenceParams(seq_id, tuple(prompt), sampling_params=SamplingParams(max_tokens=TOKENS))
        pending = PendingStepOutput(SchedulerOutput(schedule_id - 1), (
            SamplerOutput(schedule_id - 1, seq_id, (outputs[number - 1],)),))
        made.append(StepInputs(SchedulerOutput(schedule_id, (part,)), (params,) if number == 0 else (),
                               () if number == 0 else (pending,)))
    return made


def serve(pipe: Connection, by: str, rank: int, size: int, port: int) -> None:
    torch.set_num_threads(1)
    parallel = layout.parse(LAYOUT)
    if by == "gloo":
        group = Gloo(rank, size, port)
        groups = Groups(group, group, group)
    else:
        world = tendon.Group.join(rank=rank, size=size, address=f"127.0.0.1:{port}", timeout=PATIENCE_S)
        groups = layout.split(world, parallel)
    runner = StepRunner(Checkpoint.open(convert.convert_once()), parallel, rank, groups, blocks=64)
    times_us = []
    for repeat in range(REPEATS):
        for number, step in enumerate(steps(1 + repeat * TOKENS, repeat)):
            begun = time.perf_counter_ns()
            outputs = runner.run(step)
            if repeat > 0 and number > 0:
                times_us.append((time.perf_counter_ns() - begun) / 1e3)
            if rank == 0 and outputs.sampler_outputs[0].output_tokens[0] != golden_outputs[number]:
                raise SystemExit("a token is not that of the whole model")
        runner.reset()
    pipe.send(times_us)
    pipe.recv()


golden_outputs = golden("output", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by", choices=["tendon", "gloo"], required=True)
    options = parser.parse_args()
    size = layout.parse(LAYOUT).world_size
    port = free_port()
    context = multiprocessing.get_context("spawn")
    pipes = []
    for rank in range(size):
        mine, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, options.by, rank, size, port), daemon=True).start()
        theirs.close()
        pipes.append(mine)
    times_us = pipes[0].recv()
    for pipe in pipes[1:]:
        pipe.recv()
    for pipe in pipes:
        pipe.send(None)
    print_document([row_of(f"({LAYOUT}) step", options.by, 0, times_us)])


if __name__ == "__main__":
    main()
