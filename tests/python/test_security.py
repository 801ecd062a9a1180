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
            for peer, name in (out.peer, "server"), (into.peer, "client"):
                assert (peer.identity, peer.proof, peer.name) == ("key:fleet", "key", name)
                assert str(peer).startswith(f"{name} (key:fleet, host ")
                assert repr(peer) == f"tendon.Peer({peer})"
            assert client.members() == [out.peer] and hash(out.peer) == hash(client.members()[0])


def test_on_one_host_the_identity_stays_with_the_link(fleet):
    security = tendon.Security(key=fleet)
    with tendon.Context("server") as server, tendon.Context("client") as client:
        with server.listen("127.0.0.1:0", security=security) as listener, \
                client.connect(listener.address, security=security) as out, listener.accept() as into:
            assert out.path.startswith("shm")
            assert [pipe.peer.identity for pipe in (out, into)] == ["key:fleet"] * 2


def test_without_keys_the_proof_is_that_of_the_host():
    with tendon.listen("127.0.0.1:0") as listener, tendon.connect(listener.address) as out, \
            listener.accept() as into:
        assert [(pipe.peer.identity, pipe.peer.proof) for pipe in (out, into)] == [("", "local")] * 2


def test_a_key_log_is_for_its_owner(fleet, tmp_path):
    log = tmp_path / "keys.log"
    security = tendon.Security(key=fleet, keylog=log)
    with tendon.listen("127.0.0.1:0", security=security) as listener, \
            tendon.connect(listener.address, security=security), listener.accept():
        assert "CLIENT_TRAFFIC_SECRET_0 " in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    log.chmod(0o644)
    with pytest.raises(PermissionError, match="keys.log"):
        tendon.Security(key=fleet, keylog=log)


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


def test_arguments_are_named(fleet, tmp_path):
    for argument in "key", "cert", "cert_key", "ca", "keylog":
        for value, raised, said in (
            (5, TypeError, "is 5, a 'int'; legal are a str, bytes or os.PathLike$"),
            ("a\0b", ValueError, "legal are names without null characters$"),
            ("a\ud800", ValueError, "no name of a file has"),
            ("", ValueError, "is empty; legal are a file's name and None$"),
        ):
            with pytest.raises(raised, match=f"^{argument} .*{said}"):
                tendon.Security(**{argument: value})
    tendon.Security(key=str(fleet).encode())
    with pytest.raises(tendon.InvalidArgument, match="need a key"):
        tendon.Security(keylog=tmp_path / "log")
    assert not (tmp_path / "log").exists()
    with pytest.raises(TypeError, match="^security is .* without files"):
        tendon.listen("127.0.0.1:0", security=tendon.Security.__new__(tendon.Security))


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
    with pytest.raises(tendon.InvalidArgument, match=r"credentials: tendon\.Security\(\) reads them"):
        tendon.listen("127.0.0.1:0", profile="secure")
    with pytest.raises(tendon.InvalidArgument, match="peer is a name in a certificate, and this end has none"):
        tendon.Security(key=fleet, peer="robot-7")
    with pytest.raises(tendon.NotSupported, match="secure"):
        tendon.Node("vision", profile="secure")
    with pytest.raises(PermissionError, match=r"other machines.* give it a key \(tendon\.Security\(\), --key FILE of"):
        tendon.listen("0.0.0.0:0")
    tendon.listen("0.0.0.0:0", security=security).close()
    tendon.listen("0.0.0.0:0", profile="plaintext").close()
