# SPDX-License-Identifier: Apache-2.0
"""Plain Zenoh peers, in both directions: the other end uses only eclipse-zenoh and safetensors."""

import json
import os
import queue
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tendon
from conftest import PATIENCE_S, eventually, free_address

TENDON = Path(os.environ.get("TENDON_PYTHON_PEER", "/nowhere/tests/peer")).parents[1] / "bin" / "tendon"
zenoh = pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed")
files = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")


def open_session(mode: str, **endpoints: str):
    config = zenoh.Config()
    config.insert_json5("mode", json.dumps(mode))
    config.insert_json5("scouting/multicast/enabled", "false")
    for what, endpoint in endpoints.items():
        config.insert_json5(f"{what}/endpoints", json.dumps([endpoint]))
    return zenoh.open(config)


@pytest.fixture
def hub(monkeypatch):
    """The address of a router that is not Tendon's."""
    monkeypatch.delenv("ZENOH_CONFIG_OVERRIDE", raising=False)
    address = free_address()
    with open_session("router", listen=f"tcp/{address}"):
        yield address


@pytest.fixture
def peer(hub):
    with open_session("client", connect=f"tcp/{hub}") as session:
        yield session


@pytest.fixture
def join(hub):
    """Starts nodes that find each other by the router, with a Context each."""
    nodes = []

    def join(name: str, **options) -> tendon.Node:
        context = tendon.Context(name, linger=0.1)
        try:
            nodes.append(tendon.Node(name, routers=[hub], context=context, timeout=PATIENCE_S, **options))
        except tendon.NotSupported as error:
            pytest.skip(str(error))
        return nodes[-1]

    yield join
    for node in nodes:
        node.close()
        node.context.close(PATIENCE_S)


def matched(put) -> object:
    """Waits until a subscriber of the Zenoh publisher exists; returns the publisher."""
    assert eventually(lambda: put.matching_status.matching)
    return put


def put_one(publisher: tendon.Publisher, data) -> tendon.Published:
    """Publishes until a sample was put: from then on each one is put or counted."""
    before = publisher.stats().plain_put
    last = []

    def try_it() -> bool:
        if publisher.stats().plain_put == before:
            last.append(publisher.publish(data))
        return publisher.stats().plain_put > before

    assert eventually(try_it)
    return last[-1]


def test_a_plain_peer_gets_what_is_published(join, peer):
    vision = join("vision")
    publisher = vision.publisher("vision/objects")
    publisher.publish({"position": np.zeros(3, "f4")})
    assert not vision.has_plain_subscribers("vision/**", PATIENCE_S)
    assert publisher.stats().plain_put == 0
    came: queue.Queue = queue.Queue()
    with peer.declare_subscriber("vision/**", came.put):
        assert eventually(lambda: vision.has_plain_subscribers("vision/objects", PATIENCE_S))
        put_one(publisher, {"position": np.arange(3, dtype="f4"), "hand": {"closed": np.ones(2, "u1")}, "label": "cup"})
        sample = came.get(timeout=PATIENCE_S)
        assert (str(sample.key_expr), str(sample.encoding)) == ("vision/objects",
                                                               "application/octet-stream;safetensors")
        tensors = files.load(sample.payload.to_bytes())
        assert sorted(tensors) == ["hand.closed", "position"]
        np.testing.assert_array_equal(tensors["position"], np.arange(3, dtype="f4"))
        mark, version, sequence, stamp, incarnation, _, _, flags, _ = struct.unpack(
            "<7sBQQQ16sII16s", sample.attachment.to_bytes())
        assert (mark, version, flags) == (b"tendon\0", 1, 0)
        assert sequence > 1 and stamp > 0 and incarnation > 0
        # Raw bytes stay raw.
        published = put_one(publisher, b"hello")
        while str((sample := came.get(timeout=PATIENCE_S)).encoding) != "zenoh/bytes":
            pass
        assert sample.payload.to_bytes() == b"hello" and published.shown == 0
    stats = publisher.stats()
    assert stats.plain_put + stats.plain_dropped <= stats.published


def test_a_publisher_may_leave_them_out(join, peer):
    vision = join("vision")
    off = vision.publisher("vision/objects", plain_peers="off")
    small = vision.publisher("vision/objects", plain_bytes=1000)
    with peer.declare_subscriber("vision/**", lambda sample: None):
        put_one(small, {"x": np.zeros(10, "u1")})

        def is_counted() -> bool:
            small.publish({"x": np.zeros(1000, "u1")})
            return small.stats().plain_dropped > 0

        assert eventually(is_counted)
        off.publish({"x": np.zeros(10, "u1")})
        off.close(PATIENCE_S)
        assert off.stats().plain_put == off.stats().plain_dropped == 0
    with pytest.raises(ValueError, match="auto"):
        vision.publisher("vision/objects", plain_peers="on")
    with pytest.raises(tendon.InvalidArgument, match="plain_bytes"):
        vision.publisher("vision/objects", plain_bytes=0)


def test_a_subscriber_hears_a_plain_peer(join, peer):
    motor = join("motor")
    subscriber = motor.subscriber("sensors/*", hears_plain=True)
    put = matched(peer.declare_publisher("sensors/imu"))
    put.put(b"no safetensors")
    put.put(files.save({"b": np.arange(4, dtype="i2"), "a": np.eye(2)}))
    sample = subscriber.recv(PATIENCE_S)
    assert (sample.key, sample.plain, sample.publisher, sample.sequence) == ("sensors/imu", True, "", 0)
    assert sample.stamp > 0 and sample.age is None and sample.gaps == []
    assert repr(sample) == "tendon.Sample(of a plain Zenoh peer on 'sensors/imu')"
    np.testing.assert_array_equal(sample.tensors["b"], np.arange(4))
    np.testing.assert_array_equal(sample.tensors["a"], np.eye(2))
    sample.tensors["b"][0] = 7  # it belongs to this program
    stats = subscriber.stats()
    assert (stats.received, stats.plain_received, stats.plain_refused, stats.plain_dropped) == (1, 1, 1, 0)
    with pytest.raises(tendon.InvalidArgument, match="no age"):
        motor.subscriber("sensors/*", hears_plain=True, max_age=1)


def test_a_schema_is_met_in_whatever_order(join, peer):
    motor = join("motor", plain_keys=["sensors/**"])
    schema = {"small": ("uint8", (3,)), "large": ("f64", (2, 2))}
    subscriber = motor.subscriber("sensors/*", schema=schema)
    put = matched(peer.declare_publisher("sensors/imu"))
    put.put(files.save({"small": np.zeros(3, "u1")}))
    put.put(files.save({"large": np.eye(2), "small": np.arange(3, dtype="u1")}))  # the file begins with the large one
    sample = subscriber.recv(PATIENCE_S)
    assert list(sample.tensors) == ["small", "large"]
    np.testing.assert_array_equal(sample.tensors["large"], np.eye(2))
    assert subscriber.stats().schema_mismatches == 1


def test_samples_of_tendon_are_not_heard_twice(join, peer):
    vision, motor = join("vision"), join("motor")
    publisher = vision.publisher("vision/objects", history=1000)
    subscriber = motor.subscriber("vision/*", hears_plain=True, window=256)
    publisher.wait_for_subscribers(1, PATIENCE_S)
    last = put_one(publisher, {"n": 1}).sequence  # it is put because of a subscriber that also gets it by its channel
    put = matched(peer.declare_publisher("vision/objects"))
    put.put(files.save({"n": np.zeros(1)}))
    plain, sequences = 0, []
    while plain == 0 or len(sequences) < last:
        sample = subscriber.recv(PATIENCE_S)
        plain += sample.plain
        if not sample.plain:
            sequences.append(sample.sequence)
    assert plain == 1 and sequences == list(range(1, last + 1))
    with pytest.raises(tendon.Timeout):
        subscriber.recv(0)


def test_bytes_of_a_plain_peer_come_with_their_encoding(join, peer):
    motor = join("motor")
    events = motor.events()
    raw = motor.subscriber("sensors/*", hears_plain=True, plain_content="bytes")
    both = motor.subscriber("sensors/*", hears_plain=True, plain_content="both")
    put = matched(peer.declare_publisher("sensors/imu"))
    peer.put("sensors/ready", b"")
    while both.recv(PATIENCE_S).key != "sensors/ready" or raw.recv(PATIENCE_S).key != "sensors/ready":
        pass
    document = json.dumps({"n": [1, 2]})
    put.put(document, encoding=zenoh.Encoding.APPLICATION_JSON)
    file = files.save({"a": np.eye(2)})
    put.put(file, encoding="application/octet-stream;safetensors")
    put.put(b"\x08\x01", encoding=zenoh.Encoding.APPLICATION_PROTOBUF.with_schema("brain.Pose"))
    put.delete()
    for subscriber in (raw, both):
        sample = subscriber.recv(PATIENCE_S)
        assert (sample.encoding, sample.tensors, sample.plain) == ("application/json", None, True)
        assert json.loads(sample.bytes.tobytes()) == {"n": [1, 2]}
    assert raw.recv(PATIENCE_S).bytes.tobytes() == file
    sample = both.recv(PATIENCE_S)
    np.testing.assert_array_equal(sample.tensors["a"], np.eye(2))
    assert (sample.encoding, len(sample.bytes)) == ("application/octet-stream;safetensors", 0)
    for subscriber in (raw, both):
        sample = subscriber.recv(PATIENCE_S)
        assert (sample.encoding, sample.bytes.tobytes()) == ("application/protobuf;brain.Pose", b"\x08\x01")
    for _ in (raw, both):
        event = next(events)
        assert (event.kind, event.key, event.node) == ("plain_deleted", "sensors/imu", "a plain Zenoh peer")
    assert eventually(lambda: raw.stats().plain_deleted == both.stats().plain_deleted == 1)
    with pytest.raises(ValueError, match="'tensors', 'bytes', 'both'"):
        motor.subscriber("sensors/*", hears_plain=True, plain_content="json")
    with pytest.raises(tendon.InvalidArgument, match="schema"):
        motor.subscriber("sensors/*", hears_plain=True, plain_content="both", schema={"a": ("uint8", (1,))})


def test_a_bare_publisher_is_a_plain_peer(join, peer):
    vision, motor = join("vision"), join("motor")
    bare = vision.publisher("robot/pose", plain_peers="bare", encoding="application/json", plain_bytes=1000)
    came: queue.Queue = queue.Queue()
    subscriber = motor.subscriber("robot/*", hears_plain=True, plain_content="both")
    linked = motor.subscriber("robot/*")
    with peer.declare_subscriber("robot/**", came.put):
        bare.wait_for_subscribers(1, PATIENCE_S)
        assert eventually(lambda: bare.publish(b"ready").shown == 1 and not came.empty())
        published = bare.publish(b"{}")
        assert published.sequence == bare.stats().published == bare.stats().plain_put
        while (sample := came.get(timeout=PATIENCE_S)).payload.to_bytes() == b"ready":
            pass
        assert (str(sample.encoding), sample.payload.to_bytes(), sample.attachment) == ("application/json", b"{}", None)
        bare.publish({"position": np.arange(3, dtype="f4")})
        sample = came.get(timeout=PATIENCE_S)
        assert str(sample.encoding) == "application/octet-stream;safetensors"
        np.testing.assert_array_equal(files.load(sample.payload.to_bytes())["position"], np.arange(3, dtype="f4"))
        while (sample := subscriber.recv(PATIENCE_S)).tensors is None:
            assert sample.plain and sample.encoding == "application/json"
        np.testing.assert_array_equal(sample.tensors["position"], np.arange(3, dtype="f4"))
    vision.survey(PATIENCE_S)
    motor.survey(PATIENCE_S)
    assert linked.stats().publishers == 0  # nobody announces it
    with pytest.raises(tendon.MessageTooLarge, match="plain_bytes is 1000"):
        bare.publish(bytes(1001))
    with pytest.raises(tendon.NotSupported, match="bare"):
        bare.loan({"x": ("uint8", (3,))})
    bare.close(PATIENCE_S)
    with pytest.raises(tendon.InvalidArgument, match="encoding"):
        vision.publisher("robot/pose", plain_peers="bare", encoding="e" * 256)


def test_plain_peers_are_waited_for(join, peer):
    vision, motor = join("vision"), join("motor")
    publisher = vision.publisher("vision/objects")
    hears = motor.subscriber("vision/*", hears_plain=True)
    publisher.wait_for_subscribers(1, PATIENCE_S)
    assert publisher.stats().subscribers == 1  # its channel counts it
    hears.close()
    assert eventually(lambda: publisher.stats().subscribers == 0)
    came: queue.Queue = queue.Queue()
    with peer.declare_subscriber("vision/**", came.put):
        publisher.wait_for_subscribers(1, PATIENCE_S)
        publisher.publish(b"first")
        publisher.close(PATIENCE_S)
        assert came.get(timeout=PATIENCE_S).payload.to_bytes() == b"first"


@pytest.mark.skipif(not TENDON.is_file(), reason="TENDON_PYTHON_PEER is not set: run tools/python_tests.sh")
def test_topic_pub_once_reaches_a_plain_reader(hub, peer, join, tmp_path):
    join("any")  # skips without Zenoh
    path = tmp_path / "one.safetensors"
    path.write_bytes(files.save({"n": np.arange(3)}))
    command = [TENDON, "topic", "pub", "vision/objects", path, "--once", "--router", hub, "--timeout", str(PATIENCE_S)]
    came: queue.Queue = queue.Queue()
    with peer.declare_subscriber("vision/**", came.put):
        for _ in range(10):
            done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
            assert done.returncode == 0, done.stderr
            sample = came.get(timeout=PATIENCE_S)
            np.testing.assert_array_equal(files.load(sample.payload.to_bytes())["n"], np.arange(3))
    assert came.empty()


def test_without_zenoh_there_are_none(start):
    node = start("alone")
    node.publisher("a")
    with pytest.raises(tendon.NotSupported, match="routers"):
        node.subscriber("a", hears_plain=True)
    with pytest.raises(tendon.NotSupported):
        node.has_plain_subscribers("a")
    with pytest.raises(tendon.NotSupported, match="routers"):
        node.publisher("a", plain_peers="bare")


def test_arguments_may_have_their_former_names(start):
    node = start("alone")
    with pytest.warns(DeprecationWarning, match="plain= is called plain_keys= now"):
        tendon.Node("other", peers=[], plain=[], context=node.context).close()
    with pytest.warns(DeprecationWarning, match="plain= is called plain_peers= now"):
        assert node.publisher("a", plain="off").key == "a"
    with pytest.warns(DeprecationWarning, match="plain= is called hears_plain= now"):
        node.subscriber("a", plain=False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'plain'"):
        node.publisher("a", plain="off", plain_peers="off")
