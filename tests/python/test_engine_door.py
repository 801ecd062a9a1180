# SPDX-License-Identifier: Apache-2.0
"""The engine's HTTP endpoint with clients that take places and do nothing with them."""

import http.client
import json
import os
import resource
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("tokenizers", reason="examples/engine/requirements.txt is not installed")
pytest.importorskip("aiohttp", reason="examples/engine/requirements.txt is not installed")

import numpy as np

from conftest import PATIENCE_S, SANITIZED, eventually
from engine_support import ENGINE
from engine_support.byte_tokenizer import METADATA, byte_tokenizer
from engine_support.fake_controller import FakeController, accepted, done, status, tokens
from engine_support.served_front import ServedFront, starting_fronts
from engine import convert
from engine.config import LlamaConfig
from engine.front import door, source
from engine.front.door import Door, Phase
from engine.front.limits import Limits
from engine.front.source import Shares, Source

pytestmark = pytest.mark.skipif(SANITIZED, reason="HTTP libraries of others, which are no part of the package")

TOKENIZER = byte_tokenizer()
CONFIG = LlamaConfig(layers=2, width=48, heads=3, kv_heads=3, ffn_width=96, vocabulary=258, context=512,
                     rope_base=1e4, rms_eps=1e-5)
HALF_HEADER = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-"
ASKED = json.dumps({"model": "tiny", "prompt": "hi"}).encode()


def reply_at_once(submit: dict):
    return [accepted(submit["id"]), tokens(submit["id"], [2 + ord("a")]), done(submit["id"], "length")]


@pytest.fixture
def start():
    with starting_fronts(TOKENIZER) as begin:
        yield lambda limits, reply=reply_at_once: begin(reply, limits)


def port_of(front: ServedFront) -> int:
    return int(front.url.rsplit(":", 1)[1])


def connect(port: int, said: bytes = b"", address: str = "127.0.0.1", receive_buffer: int | None = None) -> socket.socket:
    wire = socket.socket()
    if receive_buffer is not None:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    wire.settimeout(PATIENCE_S)
    wire.bind((address, 0))
    wire.connect(("127.0.0.1", port))
    wire.sendall(said)
    return wire


def header(length: int, path: str = "/v1/completions") -> bytes:
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n").encode()


def ask(port: int, body: bytes = ASKED, address: str = "127.0.0.1") -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S, source_address=(address, 0))
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def all_of(wire: socket.socket) -> bytes:
    """All bytes until the end of the connection."""
    said = b""
    try:
        while part := wire.recv(1 << 16):
            said += part
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("said", [b"", HALF_HEADER, header(1000) + b'{"model"'], ids=["nothing", "header", "body"])
def test_connections_that_say_half_keep_no_place_from_others(start, said, caplog):
    front, controller = start(Limits(connections=16, open_requests=4))
    wires = [connect(port_of(front), said) for _ in range(100)]
    for _ in range(5):
        code, answer = ask(port_of(front))
        assert code == 200 and answer["choices"][0]["text"] == "a"
    its = front.front.door
    assert its.taken <= 16 and its.turned_away >= 100 - 16
    for wire in wires:
        wire.close()
    assert eventually(lambda: its.taken == 0)
    assert not its._guests and not caplog.records


def test_the_oldest_half_header_makes_room_before_a_connection_between_two_requests(start):
    front, _ = start(Limits(connections=8))
    kept = http.client.HTTPConnection("127.0.0.1", port_of(front), timeout=PATIENCE_S)
    kept.request("GET", "/health")
    kept.getresponse().read()
    wires = [connect(port_of(front), HALF_HEADER) for _ in range(20)]
    assert eventually(lambda: front.front.door.turned_away == 1 + 20 - 8)
    assert all_of(wires[0]) == b""
    kept.request("GET", "/health")  # http.client would not reconnect by itself: the socket is the old one
    assert kept.sock is not None and kept.getresponse().status == 200
    kept.close()
    for wire in wires:
        wire.close()


def test_a_header_has_to_arrive(start):
    front, _ = start(Limits(header_s=0.3))
    assert all_of(connect(port_of(front))) == b""
    said = all_of(connect(port_of(front), HALF_HEADER))
    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "timeout"
    # The header of a second request has the limit, too.
    again = connect(port_of(front), b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert again.recv(1 << 16).startswith(b"HTTP/1.1 200")
    again.sendall(HALF_HEADER)
    assert b" 408 " in all_of(again)
    assert front.front.door.late == 3


def test_a_header_that_arrives_by_bytes_has_no_longer(start):
    front, _ = start(Limits(header_s=0.5))
    wire = connect(port_of(front), b"GET / HTTP/1.1\r\nX: ")
    wire.settimeout(0.02)
    said = b""
    for _ in range(10_000):
        try:
            wire.sendall(b"x")
            said = wire.recv(1 << 16)
            break
        except TimeoutError:
            continue
        except OSError:
            break
    assert said == b"" or b" 408 " in said
    assert eventually(lambda: front.front.door.taken == 0)


def test_a_body_has_to_arrive(start):
    front, _ = start(Limits(body_s=0.3))
    wire = connect(port_of(front), header(1000) + b"{")
    assert wire.recv(1 << 16).startswith(b"HTTP/1.1 408")


def test_a_connection_between_two_requests_ends_and_one_at_work_does_not(start):
    front, controller = start(Limits(idle_s=0.3, header_s=0.3), reply=None)
    working = connect(port_of(front), header(len(ASKED)) + ASKED)
    request = controller.submits.get(timeout=PATIENCE_S)["id"]
    idle = connect(port_of(front), b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert all_of(idle).startswith(b"HTTP/1.1 200")
    controller.send(accepted(request), tokens(request, [2 + ord("a")]), done(request, "length"))
    assert b'"text": "a"' in all_of(working)


def test_an_answer_that_nobody_reads_ends(start):
    front, _ = start(Limits(idle_s=0.3))
    body = json.dumps({"model": "tiny", "prompt": "\u00e9" * 100_000, "echo": True, "n": 32}).encode()
    wire = connect(port_of(front), header(len(body)) + body, receive_buffer=4096)
    assert eventually(lambda: front.front.door.late == 1)
    assert eventually(lambda: front.front.door.taken == 0)
    wire.close()


def test_where_all_are_at_work_a_connection_is_refused(start):
    front, controller = start(Limits(connections=2), reply=None)
    stream = connect(port_of(front), header(len(ASKED)) + ASKED)
    controller.submits.get(timeout=PATIENCE_S)
    page = connect(port_of(front), b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert page.recv(1 << 16).startswith(b"HTTP/1.1 200")
    refused = connect(port_of(front))
    assert b" 503 " in all_of(refused)
    page.close()
    stream.close()
    assert eventually(lambda: front.front.door.taken == 0)
    assert front.front.door.turned_away == 1


def test_one_address_has_half_of_the_open_requests(start):
    front, controller = start(Limits(open_requests=4), reply=None)
    wires = [connect(port_of(front), header(len(ASKED)) + ASKED) for _ in range(2)]
    assert eventually(lambda: front.front.counts.open == 2)
    code, said = ask(port_of(front))
    assert code == 429 and "127.0.0.1 has 2 of 4" in said["error"]["message"]
    controller.reply = reply_at_once
    assert ask(port_of(front), address="127.0.0.9")[0] == 200
    for wire in wires:
        wire.close()
    assert eventually(lambda: front.front.counts.open == 0)


def test_one_address_has_half_of_the_live_pages(start):
    front, _ = start(Limits(pages=4))
    asked = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    wires, codes = [], []
    for address in ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.9"):
        wires.append(connect(port_of(front), asked, address))
        codes.append(wires[-1].recv(1 << 16).split()[1])
    assert codes == [b"200", b"200", b"503", b"200"]
    for wire in wires:
        wire.close()


def test_bodies_that_arrive_slowly_make_room(start):
    front, _ = start(Limits(body_bytes=400_000, bodies_bytes=500_000))
    part = b'{"model": "tiny", "x": "' + b"y" * 200_000
    slow = [connect(port_of(front), header(400_000) + part) for _ in range(2)]
    assert eventually(lambda: front.front.bodies.held >= 400_000)
    large = json.dumps({"model": "tiny", "prompt": "hi", "user": "y" * 200_000}).encode()
    assert ask(port_of(front), large)[0] == 200
    assert slow[0].recv(1 << 16).startswith(b"HTTP/1.1 408")
    for wire in slow:
        wire.close()
    assert eventually(lambda: front.front.bodies.held == 0)


@pytest.mark.parametrize("said", [header(3 << 20), header(3 << 20) + b"x" * (3 << 20)], ids=["said", "sent"])
def test_a_body_that_is_too_large(start, said):
    front, _ = start(Limits())
    assert connect(port_of(front), said).recv(1 << 16).startswith(b"HTTP/1.1 413")


# -- sources


def test_shares():
    shares = Shares(8)
    with shares.one_for(Source("a", 1)) as first, shares.one_for(Source("a", 1)), shares.one_for(Source("a", 1)), \
            shares.one_for(Source("a", 1)) as fourth:
        assert first == fourth == "" and shares.taken == 4
        with shares.one_for(Source("a", 2)) as refusal:
            assert refusal.startswith("a has 4 of 8")
        with shares.one_for(Source("b", 1)) as b, shares.one_for(Source("c", 1)) as c:
            assert b == c == ""
            with shares.one_for(Source("d", 1)) as refusal:
                assert refusal.startswith("one user has 6 of 8")
            with shares.one_for(Source("d", 2)) as d, shares.one_for(Source("e", None)) as e:
                assert d == e == ""
                with shares.one_for(Source("f", 3)) as refusal:
                    assert refusal == "all 8 are taken"
    assert shares.taken == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_the_kernel_says_whose_a_connection_is():
    program = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for user in (0, 65534):
            with subprocess.Popen(["/usr/bin/python3", "-c", program, str(listener.getsockname()[1])], user=user):
                wire, peer = listener.accept()
                said = source._user_of(peer, wire.getsockname())
                wire.close()
            if said is None:
                pytest.skip("this kernel does not say whose a socket is")
            assert said == user


class FakeGuest:
    def __init__(self, its: Door, user: int, phase: Phase) -> None:
        self.its, self.inner, self.phase, self.source, self.aborted = its, object(), phase, Source("a", user), False

    def abort(self) -> None:
        self.aborted = True
        self.its.leave(self)


@pytest.mark.parametrize("here, user, gone", [
    # (user, phase) of the present ones, the user of the new one, and which one is closed; None: the new one is refused
    ([(1, Phase.BODY), (1, Phase.HEADER), (2, Phase.HEADER)], 2, 1),
    ([(1, Phase.IDLE), (1, Phase.BODY), (2, Phase.HEADER)], 1, 1),
    ([(1, Phase.IDLE), (1, Phase.BUSY), (2, Phase.HEADER)], 3, 0),
    ([(1, Phase.BUSY), (1, Phase.BUSY), (2, Phase.HEADER)], 3, 2),
    ([(1, Phase.BUSY), (1, Phase.BUSY), (2, Phase.HEADER)], 1, None),
    ([(1, Phase.BUSY), (1, Phase.BUSY), (2, Phase.BUSY)], 3, None)])
def test_who_makes_room(monkeypatch, here, user, gone):
    its = Door(Limits(connections=3))
    guests = [FakeGuest(its, *one) for one in here]
    assert all(its.admit(guest) for guest in guests)
    assert its.admit(FakeGuest(its, user, Phase.HEADER)) == (gone is not None)
    assert [guest.aborted for guest in guests] == [number == gone for number in range(3)]
    assert its.taken == 3 and its.turned_away == 1


def test_a_request_that_begins_as_its_connection_makes_room_has_a_guest_still():
    its = Door(Limits(connections=1))
    guest = FakeGuest(its, 1, Phase.HEADER)
    assert its.admit(guest) and its.admit(FakeGuest(its, 1, Phase.HEADER))
    assert guest.aborted and its.guest_of(SimpleNamespace(protocol=guest.inner)) is guest
    its.moved(guest, Phase.BUSY)
    its.forget(guest)
    its.forget(guest)
    assert its.taken == 1 and len(its._guests) == 1


# -- the process


def run_front(tmp_path, controller: str, files: int) -> subprocess.Popen:
    checkpoint = tmp_path / "tiny.safetensors"
    convert.save(checkpoint, CONFIG, {"x": np.zeros(1, np.float32)}, METADATA)
    return subprocess.Popen(
        [sys.executable, "-m", "engine.front", "--controller", controller, "--port", "0", "--checkpoint", checkpoint,
         "--model", "tiny"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ENGINE), os.environ.get("PYTHONPATH"))))},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))


def test_connections_stay_below_the_limit_of_descriptors(tmp_path):
    controller = FakeController(reply_at_once)
    controller.status = status()
    with run_front(tmp_path, controller.address, 160) as front:
        port = int(front.stdout.readline().rsplit(":", 1)[1])
        wires = [connect(port, HALF_HEADER) for _ in range(400)]
        assert ask(port)[0] == 200
        assert len(os.listdir(f"/proc/{front.pid}/fd")) < 160
        for wire in wires:
            wire.close()
        front.terminate()
        _, err = front.communicate(timeout=PATIENCE_S)
    assert front.returncode == 0 and err == ""
    controller.close()


def test_too_few_descriptors_are_said_in_one_line(tmp_path):
    with run_front(tmp_path, "127.0.0.1:1", 64) as front:
        _, err = front.communicate(timeout=PATIENCE_S)
    assert front.returncode == 1 and err.count("\n") == 1 and "RLIMIT_NOFILE is 64" in err


def test_the_limit_of_descriptors_is_raised_where_it_may_be(monkeypatch):
    said = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 5000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: said.append(limits))
    door.allow_files(Limits(connections=1000))
    assert 1000 < said[0][0] < 5000 and said[0][1] == 5000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 300))
    door.allow_files(Limits(connections=1000))
    assert said[1] == (300, 300)
