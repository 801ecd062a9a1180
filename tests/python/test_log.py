# SPDX-License-Identifier: Apache-2.0
"""Lines of the log: a callback of Python, the thread that calls it, and descriptor 2."""

import logging
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import PATIENCE_S, forks

import tendon

MOST_WAITING = 1024


def run(source: str) -> subprocess.CompletedProcess:
    prelude = "import os, socket, threading\nimport tendon\n"
    return subprocess.run([sys.executable, "-c", prelude + textwrap.dedent(source)], capture_output=True,
                          text=True, timeout=PATIENCE_S)


class Lines:
    """A callback that keeps the lines and the threads that call it."""

    def __init__(self) -> None:
        self.all: list[tendon.LogLine] = []
        self.threads: set[threading.Thread] = set()
        self._came = threading.Condition()

    def __call__(self, line: tendon.LogLine) -> None:
        with self._came:
            self.all.append(line)
            self.threads.add(threading.current_thread())
            self._came.notify_all()

    def wait_for(self, right: Callable[[tendon.LogLine], bool]) -> tendon.LogLine:
        def found() -> tendon.LogLine | None:
            return next((line for line in self.all if right(line)), None)

        with self._came:
            line = self._came.wait_for(found, PATIENCE_S)
        assert line is not None, [str(line) for line in self.all]
        return line


@pytest.fixture
def address() -> Iterator[str]:
    """A listener; its log has a line about each stranger from a new address."""
    with tendon.Context("server") as context, context.listen("127.0.0.1:0") as listener:
        yield listener.address
    tendon.set_log_callback(None)


def be_a_stranger(address: str, last_byte: int) -> str:
    """Speaks another protocol to the listener; returns its own address."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), source_address=(f"127.0.0.{last_byte}", 0)) as peer:
        name = "{}:{}".format(*peer.getsockname())
        peer.sendall(b"GET / HTTP/1.1\r\n")  # the listener reads this much: more bytes would reset the connection
        while peer.recv(4096):
            pass
    return name


def test_a_line_comes_in_a_thread_of_its_own(address):
    lines = Lines()
    before = time.time()
    tendon.set_log_callback(lines)
    name = be_a_stranger(address, 101)
    line = lines.wait_for(lambda line: name in line.text)
    assert line.text.startswith(f"refused {name}: ")
    assert (line.level, line.where, line.pid) == ("warn", "context.admission", os.getpid())
    assert line.context.startswith("server/")
    assert before - 1 < line.time < time.time() + 1
    assert str(line).endswith(f" tendon[{os.getpid()}] warn {line.context} [{line.where}] {line.text}")
    assert [thread.name for thread in lines.threads] == ["tendon log"]


def test_a_callback_that_raises_gets_the_next_line(address, caplog):
    lines = Lines()

    def raises(line: tendon.LogLine) -> None:
        lines(line)
        raise SystemExit("full disk")

    tendon.set_log_callback(raises)
    with caplog.at_level(logging.ERROR, "tendon"):
        for last_byte in (102, 103):
            name = be_a_stranger(address, last_byte)
            lines.wait_for(lambda line, name=name: name in line.text)
        tendon.set_log_callback(None)  # no callback runs after this
    assert "full disk" in caplog.text


def test_a_callback_may_call_tendon_and_replace_itself(address):
    second, done = Lines(), threading.Event()

    def first(line: tendon.LogLine) -> None:
        with tendon.connect(address):
            tendon.set_log_callback(second)
        done.set()

    tendon.set_log_callback(first)
    be_a_stranger(address, 104)
    assert done.wait(PATIENCE_S)
    name = be_a_stranger(address, 105)
    second.wait_for(lambda line: name in line.text)


@pytest.mark.parametrize("beyond", [0, 1, 76])
def test_so_many_lines_wait_and_the_rest_is_counted(beyond):
    at_first, go_on, got = threading.Event(), threading.Event(), []

    def callback(line: tendon.LogLine) -> None:
        got.append(line)
        if len(got) == 1:
            at_first.set()
            assert go_on.wait(PATIENCE_S)

    tendon.set_log_callback(callback)
    tendon._tendon._log("first")
    assert at_first.wait(PATIENCE_S)
    for number in range(MOST_WAITING + beyond):
        tendon._tendon._log(f"line {number}")
    go_on.set()
    tendon.set_log_callback(None)  # waits for waiting lines
    expected = ["first"] + [f"line {number}" for number in range(MOST_WAITING)]
    if beyond:
        expected.append(f"{beyond} lines were left out: 1024 waited for the callback")
    assert [line.text for line in got] == expected


def test_the_count_comes_before_the_next_line():
    at_first, go_on, got = threading.Event(), threading.Event(), Lines()

    def callback(line: tendon.LogLine) -> None:
        got(line)
        at_first.set()
        assert go_on.wait(PATIENCE_S)

    tendon.set_log_callback(callback)
    for number in range(MOST_WAITING + 5):
        tendon._tendon._log(f"line {number}")
        if number == 0:
            assert at_first.wait(PATIENCE_S)
    go_on.set()
    got.wait_for(lambda line: "left out" in line.text)
    tendon._tendon._log("next")
    tendon.set_log_callback(None)
    assert [line.text for line in got.all[-3:]] == [
        f"line {MOST_WAITING}", "4 lines were left out: 1024 waited for the callback", "next"]


def test_a_level_and_a_callback_are_checked_before_anything_changes():
    lines = Lines()
    tendon.set_log_callback(lines)
    with pytest.raises(ValueError, match="level is 'loud'; legal are 'error', 'warn', 'info', 'debug'"):
        tendon.set_log_callback(Lines(), "loud")
    with pytest.raises(ValueError, match="loud"):
        tendon.set_log_callback(None, "loud")
    with pytest.raises(TypeError, match="the callback is a int"):
        tendon.set_log_callback(7)
    tendon._tendon._log("still here")
    lines.wait_for(lambda line: line.text == "still here")
    tendon.set_log_callback(None)
    assert not [thread for thread in threading.enumerate() if thread.name == "tendon log"]


@forks
def test_a_forked_child_calls_it_for_its_own_lines():
    done = run("""
        import gc
        came = threading.Event()
        def callback(line):
            print(line.pid == os.getpid(), line.text, flush=True)
            came.set()
        tendon.set_log_callback(callback)
        over = threading.Event()
        def work():
            while not over.is_set():
                tendon._tendon._log("busy", "debug")
        busy = threading.Thread(target=work)
        busy.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                tendon._tendon._log("of the child")
                assert came.wait(60)
                gc.collect()  # what the child has of its parent's may go
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        over.set()
        busy.join()
        tendon._tendon._log("of the parent")
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["True of the child"] * 20 + ["True of the parent"]


@forks
def test_a_forked_child_ends_in_order():
    done = run("""
        tendon.set_log_callback(lambda line: print(line.text, flush=True))
        child = os.fork()
        tendon._tendon._log("child" if child == 0 else "parent")
        if child:
            print(os.waitpid(child, 0)[1], flush=True)
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == ["0", "child", "parent"]


def test_the_end_of_the_interpreter_brings_what_waits():
    done = run("""
        import atexit
        atexit.register(lambda: tendon._tendon._log("at the end"))
        tendon.set_log_callback(lambda line: print(line.text))
        for number in range(100):
            tendon._tendon._log(f"line {number}")
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"line {number}" for number in range(100)] + ["at the end"]


def test_a_callback_that_never_returns_keeps_no_interpreter():
    done = run("""
        tendon.set_log_callback(lambda line: threading.Event().wait())
        tendon._tendon._log("a line")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("reuse", [
    "os.open(folder + '/data', os.O_RDWR | os.O_CREAT)",
    "open(folder + '/data', 'ab', buffering=0).fileno()",
    "socket.socketpair()[0].detach()",
    "os.pipe()[0]",
])
def test_no_line_goes_to_a_descriptor_that_was_closed_and_reused(tmp_path, reuse):
    done = run(f"""
        folder = {str(tmp_path)!r}
        os.dup2(2, 9)
        os.close(2)
        number = {reuse}
        assert number == 2, number
        tendon._tendon._log("a line")
        tendon._tendon._log("a line")
        assert not os.path.exists(folder + "/data") or os.path.getsize(folder + "/data") == 0
        os.dup2(9, 2)
        tendon._tendon._log("again")
    """)
    assert done.returncode == 0
    told, line = done.stderr.splitlines()
    assert told.startswith("tendon: 2 lines were left out: descriptor 2 was another file")
    assert line.endswith(" again")


def test_a_program_that_redirects_says_so(tmp_path):
    done = run(f"""
        with open({str(tmp_path / "log")!r}, "ab") as log:
            os.dup2(log.fileno(), 2)
        tendon._tendon._log("a line")
        tendon.set_log_callback(None)
        tendon._tendon._log("again")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told, line = (tmp_path / "log").read_text().splitlines()
    assert told.startswith("tendon: 1 lines were left out")
    assert line.endswith(" again")
