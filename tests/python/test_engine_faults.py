# SPDX-License-Identifier: Apache-2.0
"""The engine as processes, with workers that say what is wrong."""

import os
import sys

import pytest

import tendon
from conftest import SANITIZED

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")
pytest.importorskip("tendon.control", reason="this build has no control plane", exc_type=tendon.NotSupported)
pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from engine_support.running import CONTROLLER, Engine, golden_runs, run_golden, worker_command

pytestmark = [
    pytest.mark.skipif(not os.access(CONTROLLER, os.X_OK),
                       reason="TENDON_ENGINE_CONTROLLER is not set: run tools/python_tests.sh"),
    pytest.mark.skipif(SANITIZED, reason="torch's arithmetic takes minutes here")]


@pytest.fixture(scope="module")
def golden() -> list[tuple[list[int], list[int]]]:
    return golden_runs()


@pytest.mark.parametrize(("layout", "fault"), [((1, 1, 1), "garbage"), ((1, 1, 1), "fewer"), ((1, 1, 2), "hash")])
def test_a_worker_whose_outputs_are_wrong_is_replaced(checkpoint, golden, tmp_path, layout, fault):
    """With the tokens that the right outputs give, and the engine goes on. With two KV ranks that do not agree, both are."""
    words = ",".join(map(str, layout))
    command = worker_command("{address}", words, "{rank}")
    faulty = [sys.executable, "-m", "engine_support.faulty_worker", str(tmp_path / "done"), fault, *command[3:]]
    engine = Engine(layout, checkpoint, command=faulty)
    try:
        run_golden(engine, golden, fault)
        engine.until(lambda: engine.status["roster"] > 1)
        assert {death["rank"] for death in engine.status["deaths"]} == set(range(layout[2]))
        says = {"garbage": "no tendon.v1.StepOutputs", "fewer": "there is none for sequence", "hash": "rank 1 says"}
        assert says[fault] in engine.status["deaths"][0]["what"]
    finally:
        engine.close()
