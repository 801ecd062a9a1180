# SPDX-License-Identifier: Apache-2.0
"""`make engine` without its set-up: the processes that engine.run starts, and that none of them is left."""

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
# A controller whose worker has its own process group and does not end by itself.
CONTROLLER = f"""#!{sys.executable}
import json, subprocess, sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
from engine_support.fake_controller import FakeController, accepted, done, tokens
from engine_support.byte_tokenizer import byte_tokenizer
SILENT = byte_tokenizer().encode("silent")
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
worker = subprocess.Popen(["sleep", "600"], process_group=0)
def reply(submit):
    if submit["prompt"] == SILENT:
        print("silent", file=sys.stderr, flush=True)
        return [accepted(submit["id"])]
    return [accepted(submit["id"]), tokens(submit["id"], [35, 36]), done(submit["id"], "length")]
controller = FakeController(reply)
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

    def begin(*arguments: str, path: str = "") -> subprocess.Popen:
        started.append(subprocess.Popen(
            [sys.executable, "-m", "engine.run", "--controller-program", tmp_path / "controller", "--checkpoint",
             checkpoint, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (
                path, str(ENGINE), os.environ.get("PYTHONPATH"))))}))
        return started[-1]

    yield begin
    for one in started:
        if one.poll() is None:
            one.kill()
        for stream in (one.stdout, one.stderr):
            stream.close()
        one.wait(PATIENCE_S)


def ready(process: subprocess.Popen) -> tuple[str, dict]:
    """Returns its address, and the report of the controller."""
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
    os.kill(said["worker"], signal.SIGKILL)  # a real worker notices the end of its controller


WRONG = [
    (("--cpp-stage",), 1, "this one is 1,1,1; give --layout 1,2,1"),
    (("--cpp-stage", "--layout", "1,2,1", "--worker-program", "/nowhere"), 1, r"no worker in C\+\+ at /nowhere"),
    (("--layout", "2,1,1"), 1, r"TP is 2.*give TP as one of \[1, 3\]"), (("--layout", "3"), 1, "is not TP,PP,KVP"),
    (("--layout", "1,1,100000"), 1, "a layout of 100000 workers; legal is up to 128"),
    (("--layout", "9" * 5000 + ",1,1"), 1, "workers; legal is up to 128"), (("--layout", "1,0,1"), 1, "pipeline is 0"),
    (("--layout", "nonsense"), 1, "is not TP,PP,KVP"), (("--layout", ""), 1, "is not TP,PP,KVP"),
    (("--layout", "1,-1,1"), 1, "is not TP,PP,KVP"), (("--layout", "1,9,1"), 1, "PP is 9.*give PP as 1 to 2"),
    (("--port", "99999"), 2, "'99999' is no port; legal is 0 to 65535"), (("--port", "x"), 2, "'x' is no port"),
    (("--port", "-1"), 2, "'-1' is no port"), (("--port", "9" * 5000), 2, "is no port"),
    (("--blocks", "0"), 2, "'0' is no number of blocks"), (("--hang-timeout", "0.5"), 2, "'0.5' is no number of seconds"),
    (("--colour", "red"), 2, "unrecognized arguments: --colour red"), (("--port",), 2, "expected one argument"),
    (("--checkpoint", "/nowhere"), 1, "/nowhere"), (("--checkpoint", "{folder}/controller"), 1, "no converted file"),
    (("--controller-program", "/nowhere"), 1, "no controller at /nowhere"),
    (("--port", "{taken}"), 1, "--port [0-9]+ of 127.0.0.1: Address already in use; give another one")]


@pytest.fixture
def in_one_process(run, tmp_path, monkeypatch, capsys):
    """Calls the program's main(); returns the output and the exit code of a separate process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    from engine import run as program
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["run", "--controller-program", str(tmp_path / "controller"), "--checkpoint",
                                          str(tmp_path / "tiny.safetensors"), *arguments])
        try:
            code = program.main()
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("arguments, code, says", WRONG)
def test_what_cannot_be_started_is_said_in_one_line(in_one_process, tmp_path, arguments, code, says):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        returned, out, err = in_one_process(
            *(one.format(taken=taken.getsockname()[1], folder=tmp_path) for one in arguments))
    assert returned == code and re.search(says, err), err
    assert err.count("\n") == 1 and err.startswith("engine: ") and out == ""


@pytest.mark.parametrize("arguments, code", [(("--layout", "1,1,100000"), 1), (("--port", "99999"), 2)])
def test_what_cannot_be_started_is_a_process_that_fails(run, arguments, code):
    process = run(*arguments)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code and err.count("\n") == 1 and out == ""


# -- Ctrl-C


def children_of(process: subprocess.Popen) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def ended_by(process: subprocess.Popen, code: int, said: str) -> None:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert err + out.split("Ctrl-C ends all of it\n")[-1].lstrip("\n") == said


ENDING = "engine: ending; once more ends it at once\n"


def test_ctrl_c_while_it_is_imported(run, tmp_path):
    """Replaces the first module that the program imports with one that reports its import and waits."""
    (tmp_path / "tendon.py").write_text("import sys, time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    process = run("--port", "0", path=str(tmp_path))
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    ended_by(process, 130, "engine: ended before it began\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("says", ["", "print('workers 127.0.0.1:1')", "print('front 127.0.0.1:1')"],
                         ids=["controller", "half", "front"])
def test_ctrl_c_while_it_starts(run, tmp_path, number, says):
    """A controller that says nothing, says half, or names an address without a listener."""
    (tmp_path / "controller").write_text(f"#!{sys.executable}\nimport os, time\n{says}\n"
                                         f"open({str(tmp_path / 'there')!r}, 'w').close()\n"
                                         "os.sys.stdout.flush()\ntime.sleep(600)\n")
    process = run("--port", "0")
    assert eventually((tmp_path / "there").exists)
    if "front" in says:
        assert process.stdout.readline().startswith("engine: 1 workers start")
    children = children_of(process)
    process.send_signal(number)
    ended_by(process, 128 + number, ENDING)
    assert children and not any(map(is_there, children))


def test_ctrl_c_during_a_request(run, tmp_path):
    process = run("--port", "0")
    url, said = ready(process)
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as client:
        body = json.dumps({"model": "SmolLM2-135M-Instruct", "prompt": "silent"}).encode()
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                       % (len(body), body))
        assert "silent" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        ended_by(process, 0, ENDING)
        assert b"is being stopped" in client.recv(1 << 16)
    assert not is_there(said["worker"])


@pytest.mark.parametrize("again", [1, 5])
def test_ctrl_c_during_the_clean_up_ends_it_at_once(run, tmp_path, again):
    """A controller that ignores SIGTERM."""
    text = (tmp_path / "controller").read_text()
    (tmp_path / "controller").write_text(text.replace(
        "import json,", "import signal; signal.signal(signal.SIGTERM, lambda *_: print('draining', file=sys.stderr, "
        "flush=True))\nimport json,"))
    process = run("--port", "0")
    _, said = ready(process)
    children = children_of(process)
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "draining\n"
    for _ in range(again):
        process.send_signal(signal.SIGINT)
    ended_by(process, 130, ENDING)
    assert not any(map(is_there, [said["worker"], *children]))


def test_ctrl_c_while_an_error_is_cleaned_up(run, tmp_path):
    text = (tmp_path / "controller").read_text()
    (tmp_path / "controller").write_text(text.replace(
        "import json,", "import signal; signal.signal(signal.SIGTERM, lambda *_: print('draining', file=sys.stderr, "
        "flush=True))\nimport json,"))
    process = run("--port", "0")
    ready(process)
    os.kill(children_of(process)[1], signal.SIGKILL)
    assert process.stderr.readline() == "engine: the HTTP front ended by itself: SIGKILL\n"
    assert process.stderr.readline() == "draining\n"
    process.send_signal(signal.SIGINT)
    ended_by(process, 1, "")


def test_a_terminal_that_is_gone_keeps_nothing_alive(run):
    process = run("--port", "0")
    _, said = ready(process)
    children = children_of(process)
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGHUP)
    # Python exits with 120 if it could not write its buffered output.
    assert process.wait(PATIENCE_S) in (0, 120)
    assert not any(map(is_there, [said["worker"], *children]))
