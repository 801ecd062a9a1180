# SPDX-License-Identifier: Apache-2.0
"""The nursery of the engine's workers: a process that has imported everything, and forks; and the memory that it
frees."""

import ctypes
import mmap
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, SANITIZED, eventually

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")
pytest.importorskip("tendon.control", reason="this build has no control plane", exc_type=tendon.NotSupported)

from engine_support import ENGINE
from engine_support.reference import TINY
from engine import convert, lean

pytestmark = pytest.mark.skipif(SANITIZED, reason="a fork of what imported torch")

PR_SET_CHILD_SUBREAPER = 36
WORKER = "python -m engine.worker --layout 1,1,1 --rank 0 --blocks 4 --controller"


class Nursery:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(PATIENCE_S)
        self._lines = self._socket.makefile("r")
        self.process = subprocess.Popen([sys.executable, "-m", "engine.nursery"], stdin=theirs, stderr=subprocess.PIPE,
                                        text=True, env={**os.environ, "PYTHONPATH": str(ENGINE)})
        theirs.close()

    def ask(self, line: str) -> str:
        self._socket.sendall(f"{line}\n".encode())
        return self._lines.readline().strip()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()
        self.said = self.process.communicate(timeout=PATIENCE_S)[1]


@pytest.fixture
def nursery():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    made = Nursery()
    yield made
    made.close()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def parent(pid: int) -> int:
    return int(re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


def test_workers_are_children_of_the_process_above(nursery, tmp_path):
    path = tmp_path / "none.safetensors"
    checkpoint = tmp_path / "tiny.safetensors"
    convert.save(checkpoint, TINY, {"x": np.zeros(1, np.float32)}, {})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        # The first worker lives, because nobody answers it; the second has no checkpoint file.
        lives = int(nursery.ask(f"{WORKER} {address} --checkpoint {checkpoint}"))
        ends = int(nursery.ask(f"{WORKER} {address} --checkpoint {path}"))
        assert parent(lives) == os.getpid() and os.getpgid(lives) == lives
        assert os.waitstatus_to_exitcode(os.waitpid(ends, 0)[1]) == 1
        # A worker must not have the socket through which the nursery gets its requests.
        assert not any("socket:" in os.readlink(f"/proc/{lives}/fd/{number}") for number in (0, 1, 2))
        os.kill(lives, 9)
        assert os.waitstatus_to_exitcode(os.waitpid(lives, 0)[1]) == -9
    nursery.close()
    assert nursery.process.returncode == 0 and str(path) in nursery.said


def test_it_forks_nothing_else(nursery):
    assert "starts no worker" in nursery.ask("python -m engine.front --port 0")
    wrong = int(nursery.ask("python -m engine.worker --rank 0"))
    assert os.waitstatus_to_exitcode(os.waitpid(wrong, 0)[1]) == 2  # argparse's exit code
    assert nursery.process.poll() is None


def test_it_ends_with_who_started_it(nursery):
    nursery.ask("nothing")
    nursery._socket.shutdown(socket.SHUT_RDWR)
    assert eventually(lambda: nursery.process.poll() == 0)


def resident_kib(file: Path) -> int:
    text = Path("/proc/self/smaps").read_text()
    return int(re.search(r"Rss:\s+(\d+)", text[text.index(str(file)):])[1])


def test_pages_of_a_file_are_given_back_and_what_was_written_is_kept(tmp_path):
    file = tmp_path / "file"
    size = 1 << 20
    file.write_bytes(b"a" * size)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        assert bytes(mapped) == b"a" * size
        assert resident_kib(file) == size // 1024
        lean.forget_file(str(file))
        assert resident_kib(file) == 0
        assert bytes(mapped) == b"a" * size
        mapped[0:1] = b"b"
        lean.forget_file(str(file))
        assert mapped[0:2] == b"ba"
