# SPDX-License-Identifier: Apache-2.0
"""One worker of the engine, a program: runs the steps of the controller.

    python -m engine.worker --controller 127.0.0.1:7100 --layout 3,2,1 --rank 0 --blocks 128

It ends when the controller stops (exit code 0) or is lost (1). When another worker is lost it forgets all sequences
and waits for the next roster, in which the controller sends them again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

import torch

import tendon
from tendon.control import Worker

from . import convert, wire
from . import layout as layouts
from .layout import Groups
from .lean import forget_file
from .runner import StepRunner
from .weights import Checkpoint

# All workers import torch at once, on a busy machine; the controller times out before.
JOIN_PATIENCE_S = 600
SEND_PATIENCE_S = 60


def main(words: list[str] | None = None) -> int:
    """words: of the command, after the program's name; None: those of this process."""
    arguments = _arguments(words)
    torch.set_num_threads(1)
    path = arguments.checkpoint or convert.checkpoint_path()
    checkpoint = Checkpoint.open(path)
    layouts.check(checkpoint.config, arguments.layout)
    try:
        with (tendon.Context(name=f"worker {arguments.rank}") as context,
              Worker(arguments.controller, arguments.layout, arguments.rank, free_blocks=arguments.blocks,
                     context=context, timeout=JOIN_PATIENCE_S) as worker):
            runner = StepRunner(checkpoint, arguments.layout, arguments.rank, _groups(worker), blocks=arguments.blocks)
            forget_file(str(path.resolve()))  # columns were copied, and most of the rest belongs to other ranks
            _serve(worker, runner)
    except tendon.EndOfStream:
        return 0
    except tendon.Error as error:
        print(f"worker {arguments.rank}: {error}", file=sys.stderr)
        return 1


def _serve(worker: Worker, runner: StepRunner) -> NoReturn:
    """Serves until the controller stops (EndOfStream) or is lost (PeerLost)."""
    while True:
        cause: Exception
        try:
            step = worker.next_step()
        except tendon.RosterClosed as error:
            cause = error
        else:
            try:
                _run(worker, runner, step)
                continue
            except Exception as error:  # a failed move, or an invalid step: the controller is told
                cause = error
                print(f"worker {worker.rank}: step {step.schedule_id}: {type(error).__name__}: {error}",
                      file=sys.stderr)
        runner.reset()
        worker.rebuild(cause, timeout=JOIN_PATIENCE_S)
        runner.regroup(_groups(worker))


def _run(worker: Worker, runner: StepRunner, step: tendon.control.Step) -> None:
    inputs = wire.step_inputs(step.payload)
    outputs = runner.run(inputs)
    if inputs.scheduler_output.seq_schedule_metadata_list:
        worker.set_load(runner.last_step_ns.compute / 1e6)  # for the live page: most ranks send nothing else
    worker.signal_microbatch(step.schedule_id, timeout=SEND_PATIENCE_S)
    if outputs is None:
        worker.send_outputs(step.schedule_id, timeout=SEND_PATIENCE_S)
    else:
        worker.send_outputs(step.schedule_id, wire.step_outputs(outputs), agreement=outputs.tokens_hash,
                            timeout=SEND_PATIENCE_S)


def _groups(worker: Worker) -> Groups:
    return Groups(tensor=worker.tensor_group, kv=worker.kv_group, pipeline=worker.pipeline_group)


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="engine.worker", description="One worker of the engine.")
    parser.add_argument("--controller", required=True, metavar="ADDRESS", help="where the controller listens")
    parser.add_argument("--layout", required=True, type=layouts.parse, metavar="TP,PP,KVP")
    parser.add_argument("--rank", required=True, type=int)
    parser.add_argument("--blocks", required=True, type=int, help="of keys and values, 16 tokens each")
    parser.add_argument("--checkpoint", type=Path, help="the converted file; the one in the cache by default")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
