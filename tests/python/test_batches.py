# SPDX-License-Identifier: Apache-2.0
"""Batches arrive as they were sent: arrays, values, nesting, on both paths."""

import copy
import itertools
import json
import pickle
import warnings
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest

import tendon

LARGE = 1 << 20  # elements: more than travels inline


def test_a_batch_comes_out_as_it_went_in(pair):
    batch = {
        "observation": np.arange(12, dtype="f4").reshape(4, 3),
        "info": {"step": 7, "name": "zoë", "deep": {"done": np.array([True, False])}},
        "nothing": None,
        "list": [1, -2.5, "x", [True, None], {"k": [2**63]}],
        "large": 2**64 - 1,
        "a/b": 1,
        "": 2,
        "empty": {},
    }
    pair.here.send(batch)
    got = pair.there.recv(as_=dict)
    np.testing.assert_array_equal(got.pop("observation"), batch.pop("observation"))
    np.testing.assert_array_equal(got["info"]["deep"].pop("done"), [True, False])
    batch["info"]["deep"] = {}
    assert got == batch
    assert {k: type(v) for k, v in got.items()} == {k: type(v) for k, v in batch.items()}


def test_it_is_a_mapping(pair):
    pair.here.send({"a": np.ones(2), "b": {"c": 1}})
    got = pair.there.recv()
    assert isinstance(got, Mapping)
    assert isinstance(got["b"], Mapping)
    assert list(got) == list(got.keys()) == ["a", "b"]
    assert len(got) == 2
    assert "a" in got and "c" not in got and 3 not in got
    assert got["b", "c"] == got["b"]["c"] == 1
    assert got.get("c") is None and got.get("c", 5) == 5
    assert dict(got["b"].items()) == {"c": 1}
    with pytest.raises(KeyError, match="there is no tensor 'c'"):
        got["c"]


class Name(str):
    """A key that equals another key, but is not the remembered one."""


class Items(dict):
    """A dict that overrides its own items."""

    def items(self):
        return [("shown", self["c"])]


def test_dicts_that_are_almost_the_same(pair):
    """The last dict is remembered by names, dtypes and shapes: each difference must be noticed."""
    one, two = np.arange(4), np.arange(4) + 10
    frozen = np.arange(4) + 20
    frozen.flags.writeable = False
    batches = [
        {"a": one, "b": two, "v": 1}, {"a": two, "b": one, "v": 1}, {"a": one, "b": two, "v": 2},
        {"a": one, "b": two, "v": True}, {"a": one, "b": two, "v": "x"}, {"a": one, "v": 1, "b": two},
        {"a": one, "b": two}, {"a": one, "b": two, "v": 1, "w": 2}, {"a": frozen, "b": two},
        {"a": one.astype("f8"), "b": two}, {"a": one.view("f8"), "b": two}, {"a": one.reshape(2, 2), "b": two}, {"a": one[::2], "b": two},
        {"a": one, "b": {"c": two}}, {"a": one, "b": {"c": two, "d": one}}, {"a": one, "b": {"c": two}, "d": one},
        {"a": one, "b": {}, "c": two}, {"a": one, "b": {"c": two}}, {"a": {"b": {"c": one}, "d": two}},
        {"a": {"b": {"c": one, "d": two}}}, {"a": [1], "b": one}, {"a": None}, {}, {"a": one.copy()},
        {Name("a"): one}, {"a": one}, {Name("a"): one}, {"a": Items(c=one)}, {"a": {"c": one}}, {"a": Items(c=one)},
        {"a": 0.0}, {"a": -0.0}, {"a": 1}, {"a": 1.0}, {"x": one, "b": two}, {"b": two}, {"": one, "a/b": two}, {"a": {"b": one}}, {"a": 2**63}, {"a": -1}, {"a": 0.5}, {"a": float("nan")},
    ]
    expected = [repr(ordered(batch)) for batch in batches]
    for i, j in itertools.product(range(len(batches)), repeat=2):  # each one after each other one
        for k in (i, j):
            pair.here.send(batches[k])
            assert repr(pair.there.recv(as_=dict)) == expected[k]


def ordered(batch):
    """The order of a message: arrays and mappings before values."""
    is_value = lambda entry: not isinstance(entry, (np.ndarray, dict))  # noqa: E731
    entries = sorted(batch.items(), key=lambda item: is_value(item[1]))
    return {key: ordered(entry) if isinstance(entry, dict) else entry for key, entry in entries}


class OddDevice:
    def __init__(self, device):
        self.device = device

    def __dlpack__(self, **words):
        raise AssertionError("asked before the device was looked at")

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("device", ["cpu", 1, (1,), (1.5, 0), ("1", "0"), None, (2**70, 0)], ids=repr)
def test_a_device_that_is_no_pair_of_integers(device):
    with pytest.raises(TypeError, match=r"'a' is a '.*OddDevice' whose __dlpack_device__\(\) is no pair of integers"):
        tendon.TensorDict({"a": OddDevice(device)})


def test_a_masked_array_would_lose_its_mask():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    with pytest.raises(TypeError, match="'a' is a '.*MaskedArray', whose mask would be lost"):
        tendon.TensorDict({"a": masked})
    kept = tendon.TensorDict({"a": masked.data, "mask": masked.mask})
    assert kept["mask"].tolist() == [False, True]


def test_a_mistake_after_a_good_dict(pair):
    array = np.arange(4)
    for wrong, error in (({"a": array, "v": 2**64}, ValueError), ({"a": array, 1: 2}, TypeError),
                         ({"a": array, "v": object()}, TypeError)):
        for _ in range(2):
            pair.here.send({"a": array, "v": 1})
            with pytest.raises(error):
                pair.here.send(wrong)
            assert pair.there.recv(as_=dict)["v"] == 1


@pytest.mark.parametrize("count", [8, LARGE])
def test_arrays_of_any_strides_arrive(pair, count):
    base = np.arange(4 * count, dtype="i4").reshape(count, 4)
    batch = {"t": base.T, "step": base[::2, 1:3], "back": base[::-1], "one": base[:1, :1],
             "scalar": np.array(5.0), "none": np.empty((0, 3)), "copied": np.broadcast_to(base[0], (3, 4))}
    pair.here.send(batch)
    got = pair.there.recv()
    for name, array in batch.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype == array.dtype and got[name].shape == array.shape


def test_received_arrays_may_be_written(pair):
    pair.here.send({"x": np.zeros(LARGE)})
    got = pair.there.recv()
    got["x"][3] = 1
    assert got["x"][3] == 1  # the same memory each time
    assert got["x"].flags.writeable


def test_what_was_received_is_sent_on(pair):
    pair.here.send({"x": np.arange(LARGE), "v": {"n": 1}})
    got = pair.there.recv()
    pair.there.send(got)
    pair.there.send({"again": got["x"], "whole": got})
    np.testing.assert_array_equal(pair.here.recv()["x"], np.arange(LARGE))
    last = pair.here.recv()
    np.testing.assert_array_equal(last["again"], last["whole", "x"])
    assert last["whole", "v", "n"] == 1


def test_raw_bytes(pair):
    pair.here.send(b"hello", tag=3, header=b"head")
    pair.here.send(bytearray(LARGE))
    pair.here.send(memoryview(b"view"))
    pair.here.isend(b"soon", tag=4, header=b"top").result()
    pair.here.send({"x": 1})
    with pytest.raises(tendon.WrongKind):
        pair.there.recv()
    first = pair.there.recv_message()
    assert (bytes(first.bytes), first.tag, first.header, first.batch) == (b"hello", 3, b"head", None)
    assert pair.there.recv_message().bytes == bytearray(LARGE)
    assert bytes(pair.there.recv_message().bytes) == b"view"
    soon = pair.there.recv_message()
    assert (bytes(soon.bytes), soon.tag, soon.header) == (b"soon", 4, b"top")
    assert pair.there.recv_message().batch["x"] == 1


@pytest.mark.parametrize("count", [8, LARGE])
def test_recv_into_arrays(pair, count):
    pair.here.send({"x": np.arange(count), "in": {"y": np.ones((2, 2), "f4")}})
    mine = {"x": np.zeros(count, int), "in": {"y": np.zeros((2, 4), "f4")[:, ::2]}}
    pair.there.recv_into(mine)
    np.testing.assert_array_equal(mine["x"], np.arange(count))
    np.testing.assert_array_equal(mine["in"]["y"], np.ones((2, 2)))


def test_recv_into_sets_values_too(pair):
    pair.here.send({"x": np.arange(3), "step": 8, "in": {"name": "b", "same": 1}, "new": {"v": [1, "z"]}})
    inner = tendon.TensorDict({"name": "a", "same": 1})
    mine = {"x": np.zeros(3, int), "step": 7, "in": inner, "mine": 5}
    array = mine["x"]
    pair.there.recv_into(mine)
    assert mine["x"] is array and array[2] == 2
    assert mine["in"] is inner and dict(inner) == {"name": "b", "same": 1}
    del mine["x"], mine["in"]
    assert mine == {"step": 8, "mine": 5, "new": {"v": [1, "z"]}}


@pytest.mark.parametrize("kind", [dict, tendon.TensorDict])
def test_a_value_that_came_replaces_what_is_in_its_way(pair, kind):
    """Arrays are never replaced, and the tensors that are there stay."""
    inner = kind({"a": 1, "b": {"c": {"d": 2}}, "x": np.zeros(3, int)})
    pair.here.send({"in": {"a": {"y": {"z": 4}}, "b": 6, "x": np.arange(3)}})
    mine = {"in": inner}
    pair.there.recv_into(mine)
    assert mine["in"] is inner and inner["x"][2] == 2
    assert inner["a"]["y"]["z"] == 4 and inner["b"] == 6


def test_recv_into_a_batch_of_our_own_sets_values_too(pair):
    array = np.zeros(3, int)
    mine = tendon.TensorDict({"x": array, "in": {"step": 7}})
    pair.here.send({"x": np.arange(3), "in": {"step": 8}})
    pair.there.recv_into(mine)
    assert mine["in", "step"] == 8 and array[2] == 2


def test_recv_into_a_mapping_that_cannot_be_changed(pair):
    """Arrays can still be written; values have no place, and a warning says so."""
    array = np.zeros(3, int)
    for data in ({"x": np.arange(3), "step": 8}, {"x": np.arange(3) + 1}):
        pair.here.send(data)
    with pytest.warns(UserWarning, match="the values 'step' came too and are dropped.*mappingproxy"):
        pair.there.recv_into(MappingProxyType({"x": array}))
    assert array[2] == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pair.there.recv_into(MappingProxyType({"x": array}))
    assert array[2] == 3


def test_recv_into_as_a_future_sets_values_too(pair):
    mine = {"x": np.zeros(3, int), "step": 7}
    future = pair.there.irecv_into(mine)
    pair.here.send({"x": np.arange(3), "step": 8})
    future.result()
    assert mine["x"][2] == 2 and mine["step"] == 8


def test_recv_into_another_schema_leaves_the_message(pair):
    pair.here.send({"x": np.arange(3)})
    with pytest.raises(tendon.SchemaMismatch, match="x"):
        pair.there.recv_into({"x": np.zeros(4, int)})
    assert pair.there.recv()["x"][2] == 2


def test_recv_into_memory_that_is_read_only(pair):
    pair.here.send({"x": np.arange(3)})
    frozen = np.zeros(3, int)
    frozen.flags.writeable = False
    with pytest.raises(tendon.ReadOnly):
        pair.there.recv_into({"x": frozen})
    assert pair.there.recv()["x"][2] == 2


def test_a_loan_copies_nothing(make_pair):
    pair = make_pair("shm")
    schema = tendon.Schema({"image": ("uint8", (64, 64, 3)), "info": {"r": (np.float32, ())}})
    loan = pair.here.loan(schema)
    loan["image"][:] = 9
    loan["info", "r"][...] = 0.5
    loan["step"] = 3
    assert not loan.empty
    pair.here.send(loan)
    assert loan.empty
    got = pair.there.recv()
    assert got["image"].max() == got["image"].min() == 9
    assert got["info", "r"] == 0.5 and got["step"] == 3
    assert pair.here.stats().copies == 0 and pair.there.stats().copies == 0
    with pytest.raises(ValueError, match="sent before"):
        pair.here.send(loan)


def test_a_loan_of_another_link_stays_a_loan(make_pair):
    one, other = make_pair("shm"), make_pair("shm")
    loan = one.here.loan({"x": ("f32", 4)})
    with pytest.raises(tendon.WrongLink):
        other.here.send(loan)
    assert not loan.empty
    one.here.send(loan)


def test_schemas():
    schema = tendon.Schema({"a": ("f32", (2, 3)), "n": {"b": ("bool", 4)}})
    assert schema.leaves == {"a": ("float32", (2, 3)), "n/b": ("bool", (4,))}
    assert schema.nbytes == 28
    assert schema == tendon.Schema.of({"a": np.zeros((2, 3), "f4"), "n": {"b": np.zeros(4, bool)}})
    assert schema != tendon.Schema({"a": ("f32", (2, 3))}) and schema != 3
    assert len({schema, tendon.Schema.of({"a": np.ones((2, 3), "f4"), "n": {"b": np.ones(4, bool)}})}) == 1


def test_iteration_ends_at_the_end_of_the_stream(pair):
    with pair.here as pipe:
        for i in range(3):
            pipe.send({"i": i})
    assert [batch["i"] for batch in pair.there] == [0, 1, 2]
    with pytest.raises(EOFError):
        pair.there.recv()


def test_what_recv_cannot_make_is_refused_before_it_waits(pair):
    for call in (pair.here.recv, pair.here.irecv, pair.here.arecv):
        for wrong in (list, "dict"):
            with pytest.raises(TypeError, match="legal are dict, tendon.TensorDict"):
                call(as_=wrong)


def test_dicts_of_values_on_a_loan(pair):
    loan = pair.here.loan({"x": ("i64", (3,))})
    loan["x"][:] = 5
    loan["info"] = {"step": 7, "more": {"name": "a"}}
    pair.here.send(loan)
    got = pair.there.recv(as_=dict)
    assert got["x"].sum() == 15 and got["info"] == {"step": 7, "more": {"name": "a"}}
    with pytest.raises(TypeError, match="'info/x' is a 'numpy.ndarray'"):
        pair.here.loan({"x": ("i64", (3,))})["info"] = {"x": np.ones(3)}


def test_an_exception_cancels_the_pipe(pair):
    with pytest.raises(ZeroDivisionError):
        with pair.here:
            1 / 0
    with pytest.raises(tendon.Cancelled, match="an exception left its with block: ZeroDivisionError: division"):
        pair.there.recv()


def test_a_peer_that_went_raises_in_iteration(pair):
    pair.here.send({"i": 0})
    pair.here.flush()
    pair.here.cancel()
    with pytest.raises(tendon.Cancelled):
        for _ in pair.there:
            pass


def test_memory_of_the_pool(make_pair):
    context = make_pair("tcp").contexts[0]
    array = context.pool.empty((3, 4), "f32")
    array[:] = 1
    assert array.shape == (3, 4) and array.dtype == np.float32
    assert context.pool.summary().loaned_count == 1
    del array
    assert context.pool.summary().loaned_count == 0


def test_files(tmp_path):
    batch = {"w": np.arange(6, dtype="f4").reshape(2, 3), "opt": {"step": 3, "m": np.ones(2)}}
    tendon.save(tmp_path / "a.safetensors", batch, metadata={"author": "x"})
    got = tendon.load(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(got["w"], batch["w"])
    assert got["opt", "step"] == 3
    assert got.metadata == {"author": "x"}
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tendon.load(str(tmp_path / "nowhere"))
    (tmp_path / "bad").write_bytes(b"\xff" * 64)
    with pytest.raises((tendon.CorruptData, tendon.LimitExceeded)):
        tendon.load(tmp_path / "bad")


def head_of(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]


def test_metadata_of_others_survives_a_load_and_a_save(tmp_path, make_pair):
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    written = pytest.importorskip("safetensors.numpy")
    written.save_file({"w": np.ones(3)}, theirs, metadata={"format": "pt", "license": "ü"})
    loaded = tendon.load(theirs)
    assert isinstance(loaded, tendon.TensorDict) and isinstance(loaded, Mapping)
    assert loaded.metadata == {"format": "pt", "license": "ü"}
    loaded.metadata["format"] = "a copy"
    for same in (loaded, copy.copy(loaded), copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        tendon.save(ours, same)
        assert head_of(ours) == {"format": "pt", "license": "ü"}
        assert tendon.load(ours)["w"].tolist() == [1, 1, 1]
    tendon.save(ours, loaded, metadata={"license": "MIT", "by": "me"})
    assert head_of(ours) == {"format": "pt", "license": "MIT", "by": "me"}
    tendon.save(ours, {**loaded, "in": {"v": 1}}, metadata=loaded.metadata)
    assert {"format", "license", "tensordict"} == set(head_of(ours)), "what is ours is written beside it"
    nested = tendon.load(ours)
    assert nested.metadata == loaded.metadata and nested["in", "v"] == 1
    tendon.save(ours, nested)
    assert tendon.load(ours).metadata == loaded.metadata
    pair = make_pair()
    pair.here.send(loaded)
    got = pair.there.recv()
    assert type(got) is tendon.TensorDict and got["w"].tolist() == [1, 1, 1]
    for without in (got, dict(loaded), tendon.TensorDict(loaded)):
        tendon.save(ours, without)
        assert tendon.load(ours).metadata == {}
