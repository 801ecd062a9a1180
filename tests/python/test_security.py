# SPDX-License-Identifier: Apache-2.0
"""Secure links: tendon.Security, and the files that `tendon key` makes."""

import base64
import threading

import numpy as np
import pytest
import tendon


@pytest.fixture
def fleet(tmp_path):
    return key_file(tmp_path / "fleet.key", 1)


def key_file(path, first: int):
    key = bytes(range(first, first + 32))
    path.write_text(f"tendon-key-v1 fleet {base64.b64encode(key).decode()}\n")
    path.chmod(0o600)
    return path


def test_both_ends_have_the_key(fleet):
    security = tendon.Security(key=fleet)
    with tendon.Context("server") as server, tendon.Context("client", transport="tcp") as client:
        with server.listen("127.0.0.1:0", security=security) as listener, \
                client.connect(listener.address, security=security) as out, listener.accept() as into:
            sent = {"x": np.arange(300_000), "text": "hello"}
            sender = threading.Thread(target=out.send, args=(sent,))
            sender.start()
            received = into.recv()
            sender.join()
            np.testing.assert_array_equal(received["x"], sent["x"])
            assert received["text"] == "hello"
            assert str(out.path).startswith("tcp")


def test_a_wrong_key(fleet, tmp_path):
    other = tendon.Security(key=key_file(tmp_path / "other.key", 2))
    with tendon.listen("127.0.0.1:0", security=tendon.Security(key=fleet)) as listener:
        with pytest.raises(tendon.AuthenticationFailed, match="tendon key id"):
            tendon.connect(listener.address, security=other)
        with pytest.raises(ConnectionError):
            tendon.connect(listener.address, security=other)


def test_serve(fleet):
    security = tendon.Security(key=fleet)

    def echo(pipe):
        for batch in pipe.each():
            pipe.send(batch)

    with tendon.serve("127.0.0.1:0", echo, security=security) as server, \
            tendon.connect(server.address, security=security) as pipe:
        pipe.send({"x": np.ones(3)})
        assert pipe.recv()["x"].sum() == 3


def test_what_is_refused(fleet, tmp_path):
    with pytest.raises(FileNotFoundError):
        tendon.Security(key=tmp_path / "none.key")
    with pytest.raises(tendon.InvalidArgument, match="need a key"):
        tendon.Security()
    fleet.chmod(0o644)
    with pytest.raises(PermissionError, match="fleet.key"):
        tendon.Security(key=fleet)
    fleet.chmod(0o600)
    security = tendon.Security(key=fleet)
    with pytest.raises(ValueError, match="plaintext"):
        tendon.listen("127.0.0.1:0", profile="plaintext", security=security)
    with pytest.raises(TypeError, match="tendon.Security"):
        tendon.listen("127.0.0.1:0", security="fleet.key")
    with pytest.raises(tendon.InvalidArgument, match="credentials"):
        tendon.listen("127.0.0.1:0", profile="secure")
    with pytest.raises(tendon.NotSupported, match="secure"):
        tendon.Node("vision", profile="secure")
