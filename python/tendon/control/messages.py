# SPDX-License-Identifier: Apache-2.0
"""The messages of a language model's engine: proto/tendon/v1/step.proto.

    from tendon.control import messages

    step = messages.StepInputs.FromString(worker.next_step().payload)

They are made from their description in a pool of this module's own, so they do not
clash with another program's messages of these names. Needs the package `protobuf`.
"""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "tendon.v1"


def _classes() -> dict[str, Any]:
    descriptions = descriptor_pb2.FileDescriptorSet.FromString(
        (Path(__file__).parent / "tendon_v1.binpb").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    for file in descriptions.file:
        pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}"))
        for file in descriptions.file
        for message in file.message_type
    }


_made = _classes()

FinishedSequence: Any = _made["FinishedSequence"]
PendingStepOutput: Any = _made["PendingStepOutput"]
SamplerOutput: Any = _made["SamplerOutput"]
SamplingParams: Any = _made["SamplingParams"]
SchedulerOutput: Any = _made["SchedulerOutput"]
SequenceParams: Any = _made["SequenceParams"]
SequenceScheduleMetadata: Any = _made["SequenceScheduleMetadata"]
StepDurations: Any = _made["StepDurations"]
StepInputs: Any = _made["StepInputs"]
StepMicrobatchOutputs: Any = _made["StepMicrobatchOutputs"]
StepOutputs: Any = _made["StepOutputs"]
TokenLogprob: Any = _made["TokenLogprob"]
TokenLogprobs: Any = _made["TokenLogprobs"]

# Numbers of tendon.v1.FinishReason.
FINISH_REASON_STOP = 1
FINISH_REASON_LENGTH = 2
FINISH_REASON_CANCELLED = 3
FINISH_REASON_FAILED = 4
