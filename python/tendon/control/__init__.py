# SPDX-License-Identifier: Apache-2.0
"""One controller sends numbered steps to many workers, each a process of its own.

    controller = Controller(tendon.ParallelLayout(tensor=2), "127.0.0.1:7100")
    controller.wait_for_workers(timeout=30)
    controller.broadcast(1, b"what to do")
    [outputs] = controller.collect(1)

    # rank 0 and rank 1
    with Worker("127.0.0.1:7100", layout, rank) as worker:
        step = worker.next_step()
        worker.send_outputs(step.schedule_id, b"done")

Payloads are bytes. `tendon.control.messages` has the messages of a language
model's engine; you may use any other message.
"""

from importlib.util import find_spec as _find_spec

from .. import _tendon

try:
    from .. import _control
except ImportError as missing:
    if _find_spec("tendon._control") is None:
        remedy = (
            "this build of tendon has no control plane: install ZeroMQ and Protobuf (Debian: libzmq3-dev cppzmq-dev "
            "libprotobuf-dev protobuf-compiler), and build the package again"
        )
    else:
        remedy = (
            f"the control plane of tendon cannot be loaded ({missing}): install ZeroMQ and Protobuf (Debian: libzmq5 "
            "libprotobuf-lite32), or build the package again with those that are here"
        )
    raise _tendon.NotSupported(remedy) from missing

from .._control import Controller as Controller
from .._control import ControllerStatus as ControllerStatus
from .._control import FlowStats as FlowStats
from .._control import Step as Step
from .._control import StepOutputs as StepOutputs
from .._control import Worker as Worker
from .._control import WorkerStatus as WorkerStatus

for _entry in vars(_control).values():
    if isinstance(_entry, type):
        _entry.__module__ = "tendon.control"
del _entry

_tendon._explain_arguments(_control)

__all__ = ["Controller", "ControllerStatus", "FlowStats", "Step", "StepOutputs", "Worker", "WorkerStatus"]
