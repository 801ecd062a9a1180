# SPDX-License-Identifier: Apache-2.0
"""The names in error messages: the missing socket, the other protocol, the level of a key. Nothing is dropped
silently."""

import contextlib
import enum
import errno
import http.server
import signal
import socket
import threading

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, free_address


class Colour(enum.IntEnum):
    RED = 1


class Flag(enum.IntFlag):
    A = 1


class Word(str, enum.Enum):
    YES = "yes"


class Ratio(float, enum.Enum):
    HALF = 0.5


def test_a_unix_socket_that_is_not_there(tmp_path):
    for options in ({"wait": False}, {"timeout": 0.05}):
        with pytest.raises(tendon.Unreachable, match=f"unix:{tmp_path}/s: No such file or directory") as raised:
            tendon.connect(f"unix:{tmp_path}/s", **options)
        assert raised.value.errno == errno.ENOENT


def test_a_unix_socket_that_nobody_listens_at_and_a_port(tmp_path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    for address in (f"unix:{tmp_path}/s", free_address()):
        with pytest.raises(tendon.Unreachable, match="Connection refused") as raised:
            tendon.connect(address, wait=False)
        assert raised.value.errno == errno.ECONNREFUSED


def test_one_that_is_made_while_it_is_dialled(tmp_path):
    address = f"unix:{tmp_path}/s"
    with tendon.Context("a") as context:
        pipes = []
        dialling = threading.Thread(target=lambda: pipes.append(context.connect(address, PATIENCE_S)))
        dialling.start()
        with tendon.listen(address) as listener:
            listener.accept(PATIENCE_S)
            dialling.join()
    assert len(pipes) == 1


def answering(answer: bytes) -> str:
    """The address of a listener that sends this answer once."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as one:
            one.recv(4096)
            one.sendall(answer)
            with contextlib.suppress(ConnectionResetError):
                while one.recv(4096):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", b"<!DOCTYPE HTML>\n<html><head>", b"<!doctype html><html>",
    b"<html><body>400</body>", b"<HTML>                "])
def test_a_port_that_speaks_http(answer):
    with pytest.raises(tendon.ProtocolViolation, match="does not speak Tendon's protocol but HTTP, as it seems"):
        tendon.connect(answering(answer), PATIENCE_S)


def test_a_web_server(capfd):
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(tendon.ProtocolViolation, match="HTTP, as it seems"):
            tendon.connect(f"127.0.0.1:{server.server_port}", PATIENCE_S)
        server.shutdown()


def test_a_loan_that_was_sent_says_so(pair):
    loan = pair.here.loan({"x": ("f32", 3), "in": {"y": ("f32", 1)}})
    pair.here.send(loan)
    said = "the loan was sent or frozen, or is just being sent: nobody fills it now; take a new one"
    for touch in (lambda: loan["x"], lambda: loan["in", "y"], lambda: loan.dict, lambda: loan.__setitem__("z", 1),
                  lambda: loan.__setitem__("z", {})):
        with pytest.raises(tendon.InvalidArgument, match=said):
            touch()
    for send in (lambda: pair.here.send(loan), lambda: pair.here.isend(loan).result()):
        with pytest.raises(tendon.InvalidArgument, match="it was sent before; take a new one"):
            send()
    assert loan.empty and repr(loan) == "tendon.Loan(sent)"


@pytest.mark.parametrize("key, says", [
    (("a", "c"), "no tensor 'a/c'; 'a' has 'b', 'n'$"),
    (("a", "b", "c"), "no tensor 'a/b/c'; 'a/b' has 'x'$"),
    (("a", "b", "x", "y"), "no tensor 'a/b/x/y'; 'a/b/x' is a tensor$"),
    (("a", "n", "y"), "no tensor 'a/n/y'; 'a/n' is a non-tensor value$"),
    (("q", "r"), "no tensor 'q/r'; the first level has 'a', 'e', 's/t'$".replace("s/t", "s%2Ft")),
    ("q", "no tensor 'q'; the first level has"),
    (("e", "f"), "no tensor 'e/f'; 'e' has no entries$"),
    (("s/t", "f"), "no tensor 's%2Ft/f'; 's%2Ft' has 'u'$"),
])
def test_a_missing_key_lists_its_level(pair, key, says):
    batch = {"a": {"b": {"x": np.ones(1)}, "n": 7}, "e": {}, "s/t": {"u": 1}}
    pair.here.send(batch)
    for read in (pair.there.recv(), tendon.TensorDict(batch)):
        with pytest.raises(tendon.NotFound) as raised:
            read[key]
        assert says.rstrip("$") in raised.value.detail and (not says.endswith("$") or raised.value.detail.endswith(says[:-1]))


def test_a_tag_or_header_of_a_batch_is_refused(pair):
    loan = pair.here.loan({"x": ("f32", 3)})
    for data in ({"x": 1}, {"x": np.ones(2)}, tendon.TensorDict({"x": 1}), loan):
        for send in (pair.here.send, pair.here.isend, pair.here.asend):
            for given, value in (("tag", 3), ("header", b"h")):
                with pytest.raises(ValueError, match=f"^{given} is given, and a batch has none; legal is raw bytes"):
                    send(data, **{given: value})
    pair.here.send(loan, tag=0, header=b"")
    pair.here.send({"x": 1}, tag=0, header=b"")


@pytest.mark.parametrize("value", [Colour.RED, Flag.A, Word.YES, Ratio.HALF, signal.SIGINT, http.HTTPStatus.OK])
def test_an_enumeration_is_refused_not_made_a_number(pair, value):
    for batch in ({"in": {"x": value}}, {"in": {"x": [1, [value]]}}):
        for _ in range(2):  # the second send follows a dict that was sent before
            with pytest.raises(TypeError, match=r"^'in/x'.* is <.*>, a '.*', whose class would be lost; legal is what it stands for"):
                pair.here.send(batch)
            pair.here.send({"in": {"x": 1}})
    loan = pair.here.loan({"y": ("f32", 1)})
    with pytest.raises(TypeError, match="whose class would be lost"):
        loan["x"] = value
    pair.here.send({"x": value.value})


@pytest.mark.parametrize("masked", [
    np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1.0, 2.0]), np.ma.masked, np.ma.array([[1, 2]])[0],
    np.ma.array(3)])
def test_a_mask_is_refused(pair, lone, masked):
    for call in (lambda: pair.here.send({"x": masked}), lambda: pair.here.isend({"x": masked}),
                 lambda: pair.here.recv_into({"x": masked}, 0), lambda: tendon.TensorDict({"x": masked}),
                 lambda: tendon.Tensor(masked), lambda: lone.all_reduce(masked), lambda: lone.all_reduce([masked])):
        with pytest.raises(TypeError, match="whose mask would be lost; legal are its parts"):
            call()


@pytest.mark.parametrize("name", ["int1", "int2", "int3", "int4", "int5", "int6", "int7",
                                  "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7"])
def test_elements_of_fewer_bits_than_a_byte_are_refused(pair, name):
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, dtype=torch.uint8).view(getattr(torch, name))
    pair.here.send({"x": torch.zeros(4, dtype=torch.uint8)})
    for call in (lambda: pair.here.send({"x": tensor}), lambda: pair.here.recv_into({"x": tensor}, 0)):
        with pytest.raises((TypeError, ValueError), match="'x' is a 'torch.Tensor'.*fewer bits than a byte.*view"):
            call()
    pair.here.send({"x": tensor.view(torch.uint8)})


def test_element_types_of_ml_dtypes_of_few_bits_are_refused(pair):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn"):
        if hasattr(ml_dtypes, name):
            with pytest.raises(TypeError, match=f"'x' is a 'numpy.ndarray' of dtype {name}"):
                pair.here.send({"x": np.zeros(4, getattr(ml_dtypes, name))})


@pytest.fixture(scope="module")
def lone():
    with tendon.Context("lone") as context:
        with tendon.Group.join(rank=0, size=1, address=free_address(), context=context) as group:
            yield group
