# SPDX-License-Identifier: Apache-2.0
"""The engine as processes that hang, send wrong outputs, do not start or are left alone: each test has its own."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tendon
from conftest import PATIENCE_S, SANITIZED, eventually

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")
pytest.importorskip("tendon.control", reason="this build has no control plane", exc_type=tendon.NotSupported)
pytest.importorskip("google.protobuf", reason="protobuf is not installed")

from engine_support.hanging_nursery import LEAVE_OUT, SLEEP, SPIN
from engine_support.running import (CONTROLLER, ENVIRONMENT, Engine, run_golden, start_controller,
                                     worker_command)

pytestmark = [
    pytest.mark.skipif(not os.access(CONTROLLER, os.X_OK),
                       reason="TENDON_ENGINE_CONTROLLER is not set: run tools/python_tests.sh"),
    pytest.mark.skipif(SANITIZED, reason="torch's arithmetic takes minutes here")]


@pytest.mark.parametrize(("layout", "fault"), [((1, 1, 1), "garbage"), ((1, 1, 1), "fewer"), ((1, 1, 2), "hash")])
def test_a_worker_whose_outputs_are_wrong_is_replaced(checkpoint, golden, tmp_path, layout, fault):
    """The tokens are those of right outputs, and the engine continues. If two KV ranks disagree, both are replaced."""
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


@pytest.mark.parametrize("layout", [(1, 1, 1), (3, 1, 1)])
def test_a_worker_that_lives_after_an_error_is_not_named_dead(checkpoint, golden, tmp_path, layout):
    command = worker_command("{address}", ",".join(map(str, layout)), "{rank}")
    engine = Engine(layout, checkpoint, command=[sys.executable, "-m", "engine_support.faulty_worker",
                                                 str(tmp_path / "done"), "error", *command[3:]])
    try:
        engine.until(lambda: engine.status and all(worker["identity"] for worker in engine.status["workers"]))
        before = [worker["identity"] for worker in engine.status["workers"]]
        run_golden(engine, golden, "error")
        engine.until(lambda: engine.status["roster"] > 1)
        assert engine.status["deaths"] == []
        assert [worker["identity"] for worker in engine.status["workers"]] == before
    finally:
        engine.close()


@pytest.mark.parametrize(("layout", "rank"), [((1, 1, 1), 0), ((1, 2, 1), 0), ((1, 2, 1), 1), ((3, 1, 1), 1)])
def test_a_worker_that_hangs_is_killed_and_replaced(checkpoint, golden, layout, rank):
    """Only this worker is replaced: others that wait for it, in a collective or for its message, live."""
    engine = Engine(layout, checkpoint, "--hang-timeout", "10")
    try:
        def stop():
            engine.until(lambda: len(engine.tokens.get("hung 0", [])) >= 4)
            engine.kill(rank, signal.SIGSTOP)

        run_golden(engine, golden, "hung", stop)
        engine.until(lambda: engine.status["roster"] > 1)
        assert [death["rank"] for death in engine.status["deaths"]] == [rank]
    finally:
        engine.close()


@pytest.mark.parametrize(("layout", "rank", "fault", "tokens"), [
    ((3, 1, 1), 2, SPIN, 0), ((3, 2, 1), 4, SLEEP, 4), ((1, 2, 1), 0, LEAVE_OUT, 0), ((3, 1, 1), 1, LEAVE_OUT, 4)],
    ids=["spin", "sleep", "leave-out-first", "leave-out-later"])
def test_a_worker_whose_program_hangs_is_replaced_too(checkpoint, golden, layout, rank, fault, tokens):
    """It hangs under Python's lock, without it, or outside a collective of the others; in a prompt, or after
    `tokens`."""
    engine = Engine(layout, checkpoint, "--hang-timeout", "10", "--nursery",
                    f"{sys.executable} -m engine_support.hanging_nursery")
    try:
        def hang():
            engine.until(lambda: tokens == 0 or len(engine.tokens.get("hung 0", [])) >= tokens)
            engine.kill(rank, fault)

        if tokens == 0:
            engine.until(lambda: engine.status and engine.status["state"] == "running")
            hang()
            run_golden(engine, golden, "hung")
        else:
            run_golden(engine, golden, "hung", hang)
        engine.until(lambda: engine.status["roster"] > 1)
        named = [death["rank"] for death in engine.status["deaths"]]
        # A worker that left out a step may report it at the next one, and lives.
        assert named == [rank] or (fault == LEAVE_OUT and named == [])
    finally:
        engine.close()


def test_a_worker_that_hangs_while_a_roster_is_formed_is_replaced_too(checkpoint, golden):
    engine = Engine((1, 2, 1), checkpoint, "--hang-timeout", "10")
    try:
        def stop():
            engine.until(lambda: len(engine.tokens.get("hung 0", [])) >= 4)
            engine.kill(0, signal.SIGSTOP)
            engine.kill(1)

        run_golden(engine, golden, "hung", stop)
        engine.until(lambda: {death["rank"] for death in engine.status["deaths"]} == {0, 1})
    finally:
        engine.close()


@pytest.mark.parametrize("ranks", [[0, 1, 2], [0, 2]], ids=["all", "all-but-one"])
def test_workers_may_be_killed_at_one_moment(checkpoint, golden, capfd, ranks):
    engine = Engine((1, 3, 1), checkpoint)
    try:
        def kill():
            engine.until(lambda: len(engine.tokens.get("killed 0", [])) >= 4)
            pids = [engine.pid_of(rank) for rank in ranks]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

        run_golden(engine, golden, "killed", kill)
        engine.until(lambda: sorted(death["rank"] for death in engine.status["deaths"]) == ranks)
        assert "before it joined" not in capfd.readouterr().err
    finally:
        engine.close()


def test_without_what_forks_them_workers_are_programs(checkpoint, golden):
    engine = Engine((1, 1, 1), checkpoint, "--nursery", "false")
    try:
        run_golden(engine, golden, "alone")
        pid = re.search(r"pid (\d+)", engine.status["workers"][0]["identity"])[1]
        assert b"engine.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    finally:
        engine.close()


def test_workers_that_never_join_are_the_end(checkpoint):
    with start_controller("2,1,1", checkpoint, "--start-workers", "false", stderr=subprocess.PIPE) as controller:
        _, says = controller.communicate(timeout=PATIENCE_S)
    assert controller.returncode == 1
    assert "ended before it joined: exit code 1" in says


def test_an_end_before_the_first_roster_is_silent(checkpoint, tmp_path):
    """The process that forks workers is not awaited, and no worker finds that nobody listens any more."""
    (tmp_path / "worker.py").write_text(
        "import pathlib, socket, sys, time\n"
        "host, port = sys.argv[1].rsplit(':', 1)\n"
        f"pathlib.Path({str(tmp_path)!r}, 'there').touch()\n"
        "while True:\n"
        "    try:\n"
        "        socket.create_connection((host, int(port))).close()\n"
        "    except OSError:\n"
        "        sys.exit('nobody listens')\n"
        "    time.sleep(0.05)\n")
    for more in (["--start-workers", f"{sys.executable} {tmp_path / 'worker.py'} {{address}}"],
                 ["--start-workers", "no -m engine.worker here", "--nursery", "sleep 600"]):
        with start_controller("1,1,1", checkpoint, *more, stderr=subprocess.PIPE) as controller:
            for _ in range(2):
                controller.stdout.readline()
            if "--nursery" not in more:
                assert eventually((tmp_path / "there").exists)
            controller.terminate()
            _, says = controller.communicate(timeout=PATIENCE_S)
        assert controller.returncode == 0
        for wrong in ("nobody listens", "said nothing", "without it", "ended before it joined"):
            assert wrong not in says


@pytest.mark.parametrize("words, says", [
    (["--layout", "3,2"], "--layout is '3,2'; legal is TP,PP,KVP"),
    (["--layout", "1,1,100000"], "a layout of 100000 workers; legal is up to 128"), (["--blocks", "0"], "--blocks is '0'"),
    (["--eos", "x"], "--eos is 'x'"), (["--drain-timeout", "0"], "--drain-timeout is '0'"),
    (["--colour", "red"], "'--colour' is no flag"), (["--model"], "needs a value")])
def test_flags_that_are_wrong(checkpoint, words, says):
    with start_controller("1,1,1", checkpoint, *words, stderr=subprocess.PIPE) as controller:
        _, said = controller.communicate(timeout=PATIENCE_S)
    assert controller.returncode != 0
    assert says in said


def test_a_worker_ends_with_its_controller(checkpoint):
    with start_controller("1,1,1", checkpoint) as controller:
        address = controller.stdout.readline().split()[1]
        front = controller.stdout.readline().split()[1]
        with subprocess.Popen(worker_command(address, "1,1,1", "0"), stderr=subprocess.PIPE, text=True,
                              env=ENVIRONMENT) as worker:
            with tendon.Context("front", linger=0.1) as context:
                pipe = context.connect(front, PATIENCE_S)
                while json.loads(bytes(pipe.recv_message(PATIENCE_S).bytes))["state"] != "running":
                    pass
                controller.kill()
                _, says = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 1
    assert "the controller is gone" in says
