# SPDX-License-Identifier: Apache-2.0
"""A worker of the engine whose outputs are wrong once: `engine.worker` with two more arguments in front, a file that
does not exist before the fault has happened, and the fault.

    garbage    bytes that are no message
    fewer      no token for the sequences that want one
    hash       another hash of the tokens than that of the other KV ranks
    error      an exception in place of outputs, after which the worker lives on
"""

import dataclasses
import sys
from pathlib import Path

from engine import wire, worker
from engine.runner import StepRunner

_GOOD_STEPS = 4  # before the fault


class _Fault:
    def __init__(self, name: str, done: Path) -> None:
        self.name = name
        self.done = done
        self.steps = 0
        self.run = StepRunner.run
        self.step_outputs = wire.step_outputs

    def is_due(self, outputs) -> bool:
        if outputs is None or self.done.exists():
            return False
        self.steps += 1
        if self.steps <= _GOOD_STEPS:
            return False
        try:
            self.done.touch(exist_ok=False)  # only one of the workers that are at the same step
        except FileExistsError:
            return False
        return True

    def outputs_of(self, runner, inputs):
        outputs = self.run(runner, inputs)
        if self.name == "garbage" or not self.is_due(outputs):
            return outputs
        if self.name == "error":
            raise ValueError("this step cannot be computed")
        if self.name == "fewer":
            return dataclasses.replace(outputs, sampler_outputs=())
        return dataclasses.replace(outputs, tokens_hash=outputs.tokens_hash ^ 1)

    def payload_of(self, outputs) -> bytes:
        if self.name != "garbage" or not self.is_due(outputs):
            return self.step_outputs(outputs)
        return b"\xff" * 9


if __name__ == "__main__":
    fault = _Fault(sys.argv[2], Path(sys.argv[1]))
    StepRunner.run = lambda runner, inputs: fault.outputs_of(runner, inputs)
    wire.step_outputs = fault.payload_of
    sys.exit(worker.main(sys.argv[3:]))
