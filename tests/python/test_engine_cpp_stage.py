# SPDX-License-Identifier: Apache-2.0
"""The engine with its last stage in C++: the layout 1,2,1 computes the same tokens as the stage in Python."""

import os
import subprocess
import threading
from collections import deque
from pathlib import Path

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, SANITIZED

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")
control = pytest.importorskip("tendon.control", reason="this build has no control plane", exc_type=tendon.NotSupported)
pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from engine_support import reference, scheduler
from engine_support.reference import TINY
from engine_support.running import CPP_WORKER, OUTPUTS, Engine, cpp_worker_command, run_golden
from engine_support.step_messages import inputs_message, outputs_of
from engine import convert
from engine import worker as python_worker
from engine.runner import StepRunner
from engine.step import SamplingParams, SequenceParams, StepInputs, StepOutputs, tokens_hash
from engine.weights import Checkpoint

pytestmark = [
    pytest.mark.skipif(not os.access(CPP_WORKER, os.X_OK),
                       reason="there is no worker in C++: run tools/setup.sh engine, then tools/python_tests.sh"),
    pytest.mark.skipif(SANITIZED, reason="torch's arithmetic takes minutes here")]

LAYOUT = tendon.ParallelLayout(tensor=1, pipeline=2, kv=1)
TINY_BLOCKS = 24
TINY_OUTPUTS = 24
SEED = 11
ASKED = [{}, {"logprobs": 0}, {}, {"temperature": 0.8, "seed": 7}, {"logprobs": 3}]


class Stages:
    """The workers for scheduler.play(): the first stage in a thread here, the last one in C++."""

    def __init__(self, checkpoint: Path) -> None:
        self._contexts = [tendon.Context(name, linger=0.1) for name in ("controller", "worker 0")]
        self.controller = control.Controller(LAYOUT, context=self._contexts[0])
        self._process = subprocess.Popen(cpp_worker_command(self.controller.address, checkpoint, blocks=TINY_BLOCKS))
        self._thread = threading.Thread(target=self._first_stage, args=(Checkpoint.open(checkpoint),), daemon=True)
        self._thread.start()
        self._under_way: deque[int] = deque()
        self.controller.wait_for_workers(timeout=PATIENCE_S)

    def start(self, step: StepInputs) -> None:
        self._under_way.append(step.scheduler_output.schedule_id)
        self.controller.broadcast(self._under_way[-1], inputs_message(step))

    def finish(self) -> list[StepOutputs]:
        outputs = self.controller.collect(self._under_way.popleft(), timeout=PATIENCE_S)
        made = [outputs_of(bytes(one.payload)) for one in outputs]
        assert [one.tokens_hash for one in made] == [tokens_hash(one.sampler_outputs) for one in made]
        return made

    def close(self) -> int:
        """Stops the workers; returns the exit code of the worker in C++."""
        self.controller.stop(timeout=PATIENCE_S)
        self._thread.join(PATIENCE_S)
        code = self._process.wait(PATIENCE_S)
        for context in self._contexts:
            context.close(PATIENCE_S)
        return code

    def abandon(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def _first_stage(self, checkpoint: Checkpoint) -> None:
        with control.Worker(self.controller.address, LAYOUT, 0, free_blocks=TINY_BLOCKS, context=self._contexts[1],
                            timeout=PATIENCE_S) as worker:
            runner = StepRunner(checkpoint, LAYOUT, 0, python_worker._groups(worker), blocks=TINY_BLOCKS)
            with pytest.raises(tendon.EndOfStream):
                python_worker._serve(worker, runner)


@pytest.fixture
def stages():
    made = []

    def start(checkpoint: Path) -> Stages:
        made.append(Stages(checkpoint))
        return made[-1]

    yield start
    for one in made:
        one.abandon()


def test_tokens_are_those_of_the_plain_model(stages, tmp_path):
    tensors = reference.random_tensors(TINY, SEED)
    path = tmp_path / "tiny.safetensors"
    convert.save(path, TINY, convert.from_gguf(TINY, tensors.items()), {})
    random = np.random.default_rng(SEED)
    params = [SequenceParams(100 + number, tuple(random.integers(0, TINY.vocabulary, length).tolist()),
                             sampling_params=SamplingParams(max_tokens=TINY_OUTPUTS, **ASKED[number]))
              for number, length in enumerate((5, 33, 70, 18, 1))]
    requests = [scheduler.Request(one, arrival=2 * number, preempted_after=9 if number == 1 else None)
                for number, one in enumerate(params)]
    workers = stages(path)
    scheduler.play(workers, requests, kv_size=1, in_flight=2)
    assert workers.close() == 0
    for one in requests:
        tokens, logprobs, margin = reference.continuation(TINY, tensors, one.params)
        assert margin > 1e-6, "another seed: rounding may choose"
        assert one.outputs == tokens
        if one.params.sampling_params.logprobs is not None:
            np.testing.assert_allclose(one.logprobs, logprobs, rtol=1e-6)  # they are sent as floats


@pytest.fixture(scope="module")
def engine(checkpoint):
    made = Engine((1, 2, 1), checkpoint, "--start-last-stage", " ".join(cpp_worker_command("{address}", checkpoint)))
    try:
        yield made
        made.close()
    finally:
        made.abandon()


def test_tokens_are_those_of_transformers(engine, golden):
    run_golden(engine, golden, "golden")
    engine.until(lambda: engine.status.get("kv", {}).get("used") == 0)
    assert engine.status["layout"] == {"tensor": 1, "pipeline": 2, "kv": 1}
    assert engine.status["step"]["count"] >= OUTPUTS
    assert engine.program_of(1) == os.path.realpath(CPP_WORKER)


@pytest.mark.parametrize("rank", [1, 0], ids=["the one in C++", "the one in Python"])
def test_a_lost_worker_changes_no_token(engine, golden, rank):
    engine.status = {}
    engine.until(lambda: engine.status)
    roster = engine.status["roster"]

    def kill():
        engine.until(lambda: len(engine.tokens.get(f"lost {rank} 0", [])) >= 4)
        engine.kill(rank)

    run_golden(engine, golden, f"lost {rank}", kill)
    engine.until(lambda: engine.status["roster"] > roster)
    assert engine.status["deaths"][-1]["rank"] == rank


@pytest.mark.parametrize("changed, says", [
    ({"layout": "3,2,1"}, "runs the last stage of 1,2,1 alone"), ({"rank": "0"}, "runs rank 1"),
    ({"blocks": 0}, "--blocks is '0'"), ({"checkpoint": Path("/nowhere")}, "/nowhere")])
def test_what_it_cannot_run_is_refused(changed, says):
    words = {"checkpoint": Path("unused"), **changed}
    ended = subprocess.run(cpp_worker_command("127.0.0.1:1", **words), capture_output=True, text=True,
                           timeout=PATIENCE_S)
    assert ended.returncode != 0
    assert says in ended.stderr


def test_a_checkpoint_of_another_type_is_refused(tmp_path):
    path = tmp_path / "half.safetensors"
    tendon.save(path, {"model.norm.weight": np.zeros(TINY.width, np.float16)}, metadata={"config": TINY.to_json()})
    ended = subprocess.run(cpp_worker_command("127.0.0.1:1", path), capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode != 0
    assert "are f16; this worker computes in f32 and f64" in ended.stderr
