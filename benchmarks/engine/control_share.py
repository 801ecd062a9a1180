# SPDX-License-Identifier: Apache-2.0
"""Measures the control part of a step at (1,2,1) with one request: from the outputs of a step on the last stage until
the first stage has applied the inputs of the next step. This covers the way to the controller, its decision, the
way to the worker and the reading there: more than from accepted outputs to applied inputs."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from client import Engine
from asked import jobs

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers" / "python"))
from ping_pong import percentile, print_document, row

REPEATS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controller-program", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times"
        worker = f"{Path(__file__).with_name('traced_worker.py')} {file}"
        with Engine(options.controller_program, "1,2,1", worker=worker) as engine:
            for _ in range(REPEATS):
                engine.complete(jobs()["batch 1"])
        applied = {step: at for what, step, at in json.loads(Path(f"{file}.0").read_text()) if what == "applied"}
        outputs = {step: at for what, step, at in json.loads(Path(f"{file}.1").read_text()) if what == "outputs"}
    control, steps = [], []
    for step, at in outputs.items():
        # Skips the first step, a prompt, and steps that were followed by a pause.
        if step + 1 in applied and step + 1 in outputs and step in applied and applied[step + 1] - at < 20e6:
            control.append((applied[step + 1] - at) / 1e3)
            steps.append((applied[step + 1] - applied[step]) / 1e3)
    print_document([row("engine (1,2,1)", mode, 0, statistics.median(found), percentile(sorted(found), 0.99))
                    for mode, found in (("control", control), ("step", steps))])


if __name__ == "__main__":
    main()
