# SPDX-License-Identifier: Apache-2.0
"""A system without a further thread causes an error of its own, and leaves nothing half made."""

import threading

import pytest

import tendon
from conftest import PATIENCE_S, free_address


@pytest.fixture
def no_thread(monkeypatch):
    """No thread of Python starts: raises the interpreter's error."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield patched


def test_a_server(no_thread):
    address = free_address()
    with pytest.raises(tendon.ResourceExhausted, match="no further thread to a server: can't start") as failed:
        tendon.serve(address, lambda pipe: None)
    assert isinstance(failed.value, MemoryError) and "TD-E0201" in str(failed.value)
    no_thread.undo()
    with tendon.serve(address, lambda pipe: None):
        pass


def test_a_client_of_a_server(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    with tendon.serve("127.0.0.1:0", lambda pipe: pipe.send({"x": 1})) as server:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            pipe = tendon.connect(server.address)
            with pytest.raises(tendon.ServerBusy, match="can start no further thread"):
                pipe.recv(PATIENCE_S)
        with tendon.connect(server.address) as pipe:
            assert pipe.recv(PATIENCE_S)["x"] == 1


def test_a_responder(start, no_thread):
    arm = start("arm")
    with pytest.raises(tendon.ResourceExhausted, match="responder of double: can't start"):
        arm.responder("double", lambda request: {})
    no_thread.undo()
    with arm.responder("double", lambda request: {"x": 2}):
        assert arm.call("double", timeout=PATIENCE_S).tensors["x"] == 2
