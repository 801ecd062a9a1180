# SPDX-License-Identifier: Apache-2.0
"""The engine as processes: its controller, Python workers, and a client on the pipe of the HTTP front."""

import os
import re
from pathlib import Path

import pytest

import tendon
from conftest import PATIENCE_S, SANITIZED

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")
pytest.importorskip("tendon.control", reason="this build has no control plane", exc_type=tendon.NotSupported)
pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from engine_support.running import BLOCKS, CONTROLLER, OUTPUTS, Engine, run_golden

pytestmark = [
    pytest.mark.skipif(not os.access(CONTROLLER, os.X_OK),
                       reason="TENDON_ENGINE_CONTROLLER is not set: run tools/python_tests.sh"),
    pytest.mark.skipif(SANITIZED, reason="torch's arithmetic takes minutes here")]


@pytest.fixture(scope="module", params=[(1, 1, 1), (3, 2, 1)], ids=lambda its: "-".join(map(str, its)))
def engine(request, checkpoint):
    made = Engine(request.param, checkpoint)
    try:
        yield made
        made.close()
    finally:
        made.abandon()


def test_tokens_are_those_of_transformers(engine, golden):
    run_golden(engine, golden, "golden")
    engine.until(lambda: engine.status.get("kv", {}).get("used") == 0)
    assert engine.status["state"] == "running"
    layout = engine.status["layout"]
    ranks = layout["tensor"] * layout["pipeline"] * layout["kv"]
    assert [worker["rank"] for worker in engine.status["workers"]] == list(range(ranks))
    assert all(worker["alive"] for worker in engine.status["workers"])
    assert engine.status["step"]["count"] >= OUTPUTS


def test_a_lost_worker_changes_no_token(engine, golden):
    roster = engine.status["roster"] if engine.status else 1

    def kill():
        engine.until(lambda: len(engine.tokens.get("lost 0", [])) >= 4)
        engine.kill(engine.status["layout"]["tensor"] - 1)

    run_golden(engine, golden, "lost", kill)
    engine.until(lambda: engine.status["roster"] > roster)
    assert engine.status["deaths"][-1]["rank"] == engine.status["layout"]["tensor"] - 1


def test_workers_are_forked(engine):
    """The workers are forks of a process that has imported torch, and children of the controller."""
    engine.until(lambda: engine.status and all(worker["identity"] for worker in engine.status["workers"]))
    for worker in engine.status["workers"]:
        process = Path("/proc") / re.search(r"pid (\d+)", worker["identity"])[1]
        assert f"PPid:\t{engine.process.pid}\n" in (process / "status").read_text()
        assert b"engine.nursery" in (process / "cmdline").read_bytes()


def test_what_is_cancelled_gives_its_blocks_back(engine, golden):
    engine.submit("cancelled", golden[0][0], max_tokens=500, ignore_eos=True)
    engine.until(lambda: len(engine.tokens.get("cancelled", [])) >= 2)
    engine.until(lambda: engine.status.get("kv", {}).get("used", 0) > 0)
    engine.send(kind="cancel", id="cancelled")
    engine.until(lambda: engine.is_done("cancelled"))
    assert engine.said["cancelled"]["reason"] == "cancelled"
    engine.until(lambda: engine.status["kv"]["used"] == 0)

    # Workers that lost blocks would run out of them: these requests need more than there are.
    deaths = len(engine.status["deaths"])
    for turn in range(1 + BLOCKS * 16 // 300):
        engine.submit(f"long {turn}", [5] * 300, max_tokens=500, ignore_eos=True)
        engine.until(lambda: engine.tokens.get(f"long {turn}"))
        engine.send(kind="cancel", id=f"long {turn}")
    engine.until(lambda: engine.is_done(f"long {turn}"))
    engine.status = {}

    engine.submit("finished", golden[0][0], max_tokens=500, ignore_eos=True)
    engine.until(lambda: len(engine.tokens.get("finished", [])) >= 2)
    engine.send(kind="finish", id="finished", reason="stop")
    engine.until(lambda: engine.is_done("finished"))
    assert engine.said["finished"]["reason"] == "stop"
    engine.until(lambda: engine.status)
    assert len(engine.status["deaths"]) == deaths


def test_a_front_that_goes_away_leaves_nothing(engine, golden):
    engine.submit("left behind", golden[0][0], max_tokens=500, ignore_eos=True)
    engine.until(lambda: len(engine.tokens.get("left behind", [])) >= 2)
    engine.pipe.close(PATIENCE_S)
    engine.connect()
    engine.until(lambda: engine.status.get("kv", {}).get("used") == 0)
    assert engine.status["queue"]["running"] == 0
    run_golden(engine, golden, "next")


@pytest.mark.parametrize("prompt, sampling, code", [
    ("context", {}, "context_too_long"), ([1] * 2000, {}, "memory_too_small"), ([], {}, "malformed"),
    ([1, 2**31], {}, "malformed"), ([1, -2], {}, "malformed"), ([1], {"temperature": -1}, "malformed"),
    ([1], {"top_p": "x"}, "malformed"), ([1], {"max_tokens": None}, "malformed")])
def test_what_cannot_run_is_refused(engine, prompt, sampling, code):
    if prompt == "context":
        prompt = [1] * engine.context_tokens
    engine.said.pop("refused", None)
    engine.submit("refused", prompt, **sampling)
    engine.until(lambda: "refused" in engine.said)
    assert (engine.said["refused"]["kind"], engine.said["refused"]["code"]) == ("refused", code)


def test_messages_that_are_none_are_refused(engine):
    for message in (b"", b"{", b"[1]", b'{"kind":"submit"}', b'{"kind":7,"id":"x"}', b"\xff" * 100):
        engine.said.pop(None, None)
        engine.said.pop("x", None)
        engine.pipe.send(message)
        engine.until(lambda: None in engine.said or "x" in engine.said)
    engine.pipe.send({"tensors": "and values"})
    engine.send(kind="dance", id="d")
    engine.until(lambda: "d" in engine.said)
    assert engine.said["d"]["code"] == "malformed"


@pytest.mark.parametrize("engine", [(1, 1, 1)], indirect=True, ids=["1-1-1"])
def test_a_second_loss_under_a_request_is_its_end(engine, golden):
    engine.submit("unlucky", golden[0][0], max_tokens=500, ignore_eos=True)
    for turn in range(2):
        count = len(engine.tokens.get("unlucky", []))
        engine.until(lambda: len(engine.tokens.get("unlucky", [])) > count + 1)
        roster = engine.status["roster"]
        engine.until(lambda: engine.status["roster"] >= roster and engine.status["state"] == "running")
        engine.status = {}
        engine.kill(0)
    engine.until(lambda: engine.is_done("unlucky"))
    assert engine.said["unlucky"]["reason"] == "failed"
    assert engine.said["unlucky"]["error"]["code"] == "worker_lost"
    assert "rank 0" in engine.said["unlucky"]["error"]["message"]
    run_golden(engine, golden, "after both")
