# SPDX-License-Identifier: Apache-2.0
"""Element types, in and out, by every protocol."""

import ctypes

import numpy as np
import pytest

import tendon

NUMPY_TYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
ML_TYPES = ["bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
            "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


class OnlyDLPack:
    """An array that offers only DLPack."""

    def __init__(self, array, legacy=False):
        self.array = array
        self.legacy = legacy

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        if self.legacy and arguments:
            raise TypeError("unexpected argument")
        return self.array.__dlpack__(**arguments)


class OnlyInterface:
    """An array that offers only __array_interface__."""

    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.kept = array


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("wrap", [lambda a: a, OnlyInterface, OnlyDLPack,
                                  lambda a: OnlyDLPack(a, legacy=True), memoryview],
                         ids=["buffer", "interface", "dlpack", "legacy dlpack", "memoryview"])
def test_types_of_numpy(make_pair, dtype, wrap):
    array = np.arange(6).astype(dtype).reshape(2, 3)
    pair = make_pair("shm")
    pair.here.send({"x": wrap(array), "t": wrap(array.T)})
    got = pair.there.recv()
    assert got["x"].dtype == array.dtype
    np.testing.assert_array_equal(got["x"], array)
    np.testing.assert_array_equal(got["t"], array.T)


@pytest.mark.parametrize("name", ML_TYPES)
def test_types_of_ml_dtypes(make_pair, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([[1, 2, 0.5], [4, 8, 1]]).astype(getattr(ml_dtypes, name))
    pair = make_pair("shm")
    pair.here.send({"x": array, "t": array.T})
    got = pair.there.recv()
    assert isinstance(got["x"], tendon.Tensor)
    back = np.asarray(got["x"])
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back.view("u1"), array.view("u1"))
    np.testing.assert_array_equal(np.asarray(got["t"]).astype("f4"), array.T.astype("f4"))
    back.view("u1")[0, 0] = 3
    assert np.asarray(got["x"]).view("u1")[0, 0] == 3, "a copy, not a view"


FULL_NAMES = {"u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32", "u64": "uint64", "i64": "int64",
              "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
              **{"f8_" + name.split("_", 1)[1]: name for name in ML_TYPES[1:]}}


def test_every_type_of_the_library_has_a_full_name():
    for name in ["bool", "uint8", "int8", "float16", "complex32", *FULL_NAMES.values()]:
        assert tendon.Schema({"x": (name, 1)}).leaves["x"] == (name, (1,))
    for short, name in FULL_NAMES.items():
        assert tendon.Schema({"x": (short, 1)}).leaves["x"] == (name, (1,))
    for spelled in [np.float32, np.dtype("f4"), "torch.float32"]:
        assert tendon.Schema({"x": (spelled, 1)}).leaves["x"] == ("float32", (1,))


@pytest.mark.parametrize(("name", "readings"), [("i8", ["int8", "int64"]), ("u8", ["uint8", "uint64"]),
                                                ("f16", ["float16", "float128"]), ("c32", ["complex32", "complex256"])])
def test_a_name_with_two_readings_is_refused_with_both(make_pair, name, readings):
    here = make_pair("shm").here
    for declare in (tendon.Schema, here.loan):
        with pytest.raises(TypeError, match="two readings.*" + ".*".join(readings)):
            declare({"x": (name, (2,))})
    assert tendon.Schema({"x": (np.dtype("i8"), 1)}).leaves["x"] == ("int64", (1,))


def test_codes_of_numpy_are_no_names():
    for code in ["f4", "<i8", "d", "float", "half"]:
        with pytest.raises(TypeError, match=f"no element type '{code}'"):
            tendon.Schema({"x": (code, 1)})


def test_nothing_is_copied_on_the_way_in():
    array = np.zeros(4)
    shared = tendon.TensorDict({"x": array})
    array[2] = 7
    assert shared["x"][2] == 7
    shared["x"][3] = 8
    assert array[3] == 8


def test_read_only_stays_read_only():
    array = np.zeros(4)
    array.flags.writeable = False
    shared = tendon.TensorDict({"x": array, "b": b"bytes"})
    assert not shared["x"].flags.writeable
    assert not shared["b"].flags.writeable
    tensor = tendon.Tensor(array)
    assert tensor.readonly
    assert memoryview(tensor).readonly
    assert not np.from_dlpack(tensor).flags.writeable
    assert not np.from_dlpack(shared["x"]).flags.writeable
    assert not np.asarray(tensor).flags.writeable
    assert isinstance(shared["x"], np.ndarray) and (shared["x"] + 1).flags.writeable


def test_the_dlpack_before_1_gets_a_copy_of_what_is_read_only():
    array = np.zeros(4)
    array.flags.writeable = False
    tensor = tendon.Tensor(array)
    before = tendon.copied_read_only()
    copy = np.asarray(tendon.Tensor(OnlyDLPack(tensor, legacy=True)))  # this version cannot say READ_ONLY
    copy[1] = 5
    assert array[1] == 0
    assert tendon.copied_read_only() == before + 1
    with pytest.raises(BufferError, match="may be read, not written"):
        tensor.__dlpack__(copy=False)
    assert tendon.copied_read_only() == before + 1
    tendon.Tensor(np.zeros(3)).__dlpack__()  # no copy of a writable array
    np.from_dlpack(tensor)
    assert tendon.copied_read_only() == before + 1


def test_a_tensor_of_our_own():
    tensor = tendon.Tensor(np.arange(6, dtype="i2").reshape(2, 3).T)
    assert (tensor.shape, tensor.dtype, tensor.device, tensor.nbytes) == ((3, 2), "int16", "cpu", 12)
    assert len(tensor) == 3
    assert tensor.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(tensor), np.asarray(tensor))
    copy = np.from_dlpack(tensor, copy=True)
    copy[0, 0] = 9
    assert np.asarray(tensor)[0, 0] == 0
    assert "int16" in repr(tensor)
    with pytest.raises(TypeError, match="no array"):
        tendon.Tensor(3)


def test_dlpack_capsules_are_freed_whether_taken_or_not():
    freed = []

    class Watched(np.ndarray):
        def __del__(self):
            freed.append(1)

    array = np.zeros(3).view(Watched)
    tensor = tendon.Tensor(array)
    capsule = tensor.__dlpack__(max_version=(1, 0))
    taken = np.from_dlpack(tensor)
    del array, tensor, taken
    assert not freed
    del capsule
    assert freed


def test_types_that_cannot_travel():
    for array, what in [
        (np.array([object()]), r"dtype object and shape \[1\]"),
        (np.array(["text"]), r"dtype <U4 and shape \[1\]"),
        (np.zeros((2, 3), ">f4"), r"dtype >f4 and shape \[2, 3\]"),
        (np.zeros(2, "M8[s]"), r"dtype datetime64\[s\] and shape \[2\]"),
        (np.zeros(2, [("a", "i4")]), r"and shape \[2\]"),
        (np.zeros(2, "g"), r"dtype float128 and shape \[2\]"),
        ((ctypes.c_char_p * 2)(), r"'&?<?z'"),
    ]:
        with pytest.raises(TypeError, match=r"'x' is a .*" + what + ".*legal element types are bool"):
            tendon.TensorDict({"x": array})


def test_strides_between_elements_are_refused():
    fields = np.zeros(3, [("a", "i1"), ("b", "i4")])
    with pytest.raises(ValueError, match=r"'x'.*shape \[3\].*stride of 5 bytes.*ascontiguousarray"):
        tendon.TensorDict({"x": fields["b"]})


def test_devices_that_cannot_be_used():
    class OnTheGraphicsCard:
        def __dlpack_device__(self):
            return (10, 1)

        def __dlpack__(self, **arguments):
            raise AssertionError("never asked for")

    with pytest.raises(tendon.UnsupportedDevice, match="'x'.*on rocm:1; legal are cpu and cuda"):
        tendon.TensorDict({"x": OnTheGraphicsCard()})


def test_a_dlpack_that_is_none():
    class Wrong:
        def __dlpack__(self, **arguments):
            return 3

    with pytest.raises(TypeError, match="'x'.*legal is a capsule"):
        tendon.TensorDict({"x": Wrong()})

    class Refuses:
        def __dlpack__(self, **arguments):
            raise BufferError("requires grad")

    with pytest.raises(ValueError, match="'x'.*gives no access") as raised:
        tendon.TensorDict({"x": Refuses()})
    assert "requires grad" in str(raised.value.__cause__)
