# SPDX-License-Identifier: Apache-2.0
"""A worker of the engine that records when it has applied the inputs of a step, and when it has outputs to send.

    traced_worker.py FILE ARGUMENTS-OF-engine.worker

FILE followed by the rank: a JSON list of [what, schedule_id, nanoseconds of CLOCK_MONOTONIC].
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from engine import wire, worker
from engine.sequences import Sequences

times: list[tuple[str, int, int]] = []
apply, step_outputs = Sequences.apply, wire.step_outputs


def applied(self, step):
    chunks = apply(self, step)
    times.append(("applied", step.scheduler_output.schedule_id, time.monotonic_ns()))
    return chunks


def made(outputs):
    payload = step_outputs(outputs)
    times.append(("outputs", outputs.schedule_id, time.monotonic_ns()))
    return payload


Sequences.apply, wire.step_outputs = applied, made
code = worker.main(sys.argv[2:])
Path(f"{sys.argv[1]}.{sys.argv[sys.argv.index('--rank') + 1]}").write_text(json.dumps(times))
sys.exit(code)
