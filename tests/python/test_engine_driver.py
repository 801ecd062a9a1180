# SPDX-License-Identifier: Apache-2.0
"""`make engine` without its set-up: what engine.run starts, and that nothing of it is left."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")
pytest.importorskip("aiohttp", reason="examples/engine/requirements.txt is not installed")

from conftest import PATIENCE_S, SANITIZED, eventually
from engine_support import ENGINE
from engine_support.byte_tokenizer import METADATA
from engine import convert
from engine.config import LlamaConfig

pytestmark = pytest.mark.skipif(SANITIZED, reason="HTTP libraries of others, which are no part of the package")

CONFIG = LlamaConfig(layers=2, width=48, heads=3, kv_heads=3, ffn_width=96, vocabulary=258, context=512,
                     rope_base=1e4, rms_eps=1e-5)
# A controller whose worker is a process group of its own and does not end by itself.
CONTROLLER = f"""#!{sys.executable}
import json, subprocess, sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
from engine_support.fake_controller import FakeController, accepted, done, tokens
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
worker = subprocess.Popen(["sleep", "600"], process_group=0)
controller = FakeController(lambda submit: [accepted(submit["id"]), tokens(submit["id"], [35, 36]),
                                            done(submit["id"], "length")])
print("workers", "127.0.0.1:1")
print("front", controller.address, flush=True)
print(json.dumps({{"flags": flags, "worker": worker.pid}}), file=sys.stderr, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "controller").write_text(CONTROLLER)
    (tmp_path / "controller").chmod(0o755)
    checkpoint = tmp_path / "tiny.safetensors"
    convert.save(checkpoint, CONFIG, {"x": np.zeros(1, np.float32)}, METADATA)
    started = []

    def begin(*arguments: str) -> subprocess.Popen:
        started.append(subprocess.Popen(
            [sys.executable, "-m", "engine.run", "--controller-program", tmp_path / "controller", "--checkpoint",
             checkpoint, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ENGINE)}))
        return started[-1]

    yield begin
    for one in started:
        one.terminate()
        one.communicate(timeout=PATIENCE_S)


def ready(process: subprocess.Popen) -> tuple[str, dict]:
    """Its address, and what the controller said."""
    said = json.loads(process.stderr.readline())
    for line in process.stdout:
        if "OpenAI's API" in line:
            return re.search(r"http://[\d.:]+", line)[0], said
    raise AssertionError(process.stderr.read())


def is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_all_of_it_starts_and_ends(run, number):
    process = run("--layout", "3,2,1", "--port", "0")
    url, said = ready(process)
    asked = urllib.request.Request(f"{url}/v1/completions", json.dumps(
        {"model": "SmolLM2-135M-Instruct", "prompt": "x"}).encode())
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as reply:
        assert json.loads(reply.read())["choices"][0]["text"] == "!\""
    flags = said["flags"]
    assert flags["--layout"] == "3,2,1" and flags["--blocks"] == "32" and flags["--eos"] == "1"
    assert flags["--vocabulary"] == "258" and flags["--context"] == "512"
    command = flags["--start-workers"]
    for part in ("-m engine.worker", "{rank}", "{address}", "--layout 3,2,1", "--blocks 32"):
        assert part in command
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "ending" in out
    assert not is_there(said["worker"])
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{url}/health", timeout=PATIENCE_S)


def test_the_last_stage_may_be_the_worker_in_cpp(run, tmp_path):
    process = run("--layout", "1,2,1", "--port", "0", "--cpp-stage", "--worker-program", sys.executable)
    _, said = ready(process)
    assert "-m engine.worker" in said["flags"]["--start-workers"]
    command = said["flags"]["--start-last-stage"]
    assert command.split()[:2] == [os.path.relpath(sys.executable, tmp_path), "--controller"]
    for part in ("--rank {rank}", "--controller {address}", "--layout 1,2,1", "--blocks 32", "tiny.safetensors"):
        assert part in command


def test_nothing_is_left_where_the_controller_is_killed(run):
    process = run("--port", "0")
    _, said = ready(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "the controller ended by itself: SIGKILL" in err
    assert not is_there(said["worker"]) and not any(is_there(int(child)) for child in children)


def test_it_is_killed_itself(run):
    process = run("--port", "0")
    _, said = ready(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    assert eventually(lambda: not any(is_there(int(child)) for child in children))
    os.kill(said["worker"], signal.SIGKILL)  # a real one sees that the controller is gone


@pytest.mark.parametrize("arguments, says", [
    (("--cpp-stage",), "this one is 1,1,1; give --layout 1,2,1"),
    (("--cpp-stage", "--layout", "1,2,1", "--worker-program", "/nowhere"), r"no worker in C\+\+ at /nowhere"),
    (("--layout", "2,1,1"), r"TP is 2.*give TP as one of \[1, 3\]"), (("--layout", "3"), "is not TP,PP,KVP"),
    (("--port", "{taken}"), "address already in use|the HTTP front ended by itself")])
def test_what_cannot_be_started(run, arguments, says):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = run(*(one.format(taken=taken.getsockname()[1]) for one in arguments))
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and re.search(says, err), err
    assert "Traceback" not in err
