# SPDX-License-Identifier: Apache-2.0
"""Objects that have only `__array_interface__`, like the images of PIL."""

import re

import numpy as np
import pytest

import tendon
from tendon import TensorDict


class Picture:
    """Behaves like PIL.Image.Image, which makes its bytes anew at each access."""

    def __init__(self, **words):
        self.words = words

    def __repr__(self):
        return "Picture" + repr(self.words)

    @property
    def __array_interface__(self):
        words = {"version": 3, "shape": (2, 3), "typestr": "|u1", "data": bytes(PIXELS)} | self.words
        return {key: value for key, value in words.items() if value is not ...}


def without_addresses(case) -> str:
    """The name of a test, which is the same in each process that runs some of them."""
    return re.sub(r"0x[0-9a-f]+|\d{9,}", "ADDRESS", repr(case))[:60]


PIXELS = [200, 1, 2, 3, 4, 5]
NUMBERS = np.arange(6, dtype="u1")


@pytest.mark.parametrize(("picture", "elements"), [
    (Picture(), [[200, 1, 2], [3, 4, 5]]),
    (Picture(data=bytes([1, 0, 2, 3, 4, 5])), [[1, 0, 2], [3, 4, 5]]),
    (Picture(data=bytearray(PIXELS)), [[200, 1, 2], [3, 4, 5]]),
    (Picture(data=NUMBERS.data, offset=0), [[0, 1, 2], [3, 4, 5]]),
    (Picture(data=NUMBERS.data, offset=np.int64(2), shape=(np.int64(4),)), [2, 3, 4, 5]),
    (Picture(data=NUMBERS.data, offset=5, shape=(2, 3), strides=(-3, -1)), [[5, 4, 3], [2, 1, 0]]),
    (Picture(data=(NUMBERS.ctypes.data, False)), [[0, 1, 2], [3, 4, 5]]),
    (Picture(data=(NUMBERS.ctypes.data, np.bool_(True)), strides=None), [[0, 1, 2], [3, 4, 5]]),
    (Picture(shape=(3,), typestr="<i2", data=np.arange(3, dtype="i2").data), [0, 1, 2]),
    (Picture(shape=(1, 3), typestr="|b1", data=bytes([0, 1, 0])), [[False, True, False]]),
    (Picture(shape=(), typestr="=f8", data=np.array(2.5).data), 2.5),
    (Picture(shape=(0, 3), data=b""), []),
    (Picture(shape=(0, 3), data=(0, False)), []),
    (Picture(mask=None), [[200, 1, 2], [3, 4, 5]]),
], ids=without_addresses)
def test_it_enters_as_numpy_sees_it(make_pair, picture, elements):
    pair = make_pair()
    pair.here.send({"x": picture})
    got = pair.there.recv()["x"]
    assert got.tolist() == elements
    seen = np.asarray(picture)
    assert (got.dtype, got.shape, got.tobytes()) == (seen.dtype, seen.shape, seen.tobytes())


def test_bytes_are_shared_and_may_only_be_read():
    data = bytes(PIXELS)
    batch = TensorDict({"x": Picture(data=data), "y": Picture(data=bytearray(PIXELS))})
    assert not batch["x"].flags.writeable and batch["y"].flags.writeable
    assert batch["x"].ctypes.data == np.frombuffer(data, "u1").ctypes.data
    del data
    assert batch["x"].tolist() == [[200, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(("picture", "says"), [
    (Picture(data=bytes(5)), "describes elements of shape [2, 3] that do not lie in its buffer of 5 bytes"),
    (Picture(offset=1), "do not lie in its buffer of 6 bytes"),
    (Picture(offset=-1), "do not lie in its buffer"),
    (Picture(strides=(-3, 1)), "do not lie in its buffer"),
    (Picture(strides=(2**62, 1), shape=(5, 1)), "do not lie in its buffer"),
    (Picture(shape=(2**40, 2**40)), "do not lie in its buffer"),
    (Picture(shape=(-1, 6)), "has the shape [-1, 6]"),
    (Picture(shape=6), "has the shape 6, where a tuple is legal"),
    (Picture(shape=("a", 3)), "has the shape ('a', 3), where integers are legal"),
    (Picture(shape=(2**70,)), "where integers are legal"),
    (Picture(shape=...), "has the shape None"),
    (Picture(strides=(1,)), "has 1 strides for a shape of 2"),
    (Picture(typestr=...), "has no typestr"),
    (Picture(typestr=7), "has no typestr"),
    (Picture(typestr=">u2", shape=(3,)), "legal element types are bool"),
    (Picture(typestr="|S1"), "legal element types are bool"),
    (Picture(data=7), "data is a 'int'; legal are (address, read-only)"),
    (Picture(data=...), "data is a 'NoneType'; legal are (address, read-only)"),
    (Picture(data=("a", False)), "data is ('a', False); legal are (address, read-only)"),
    (Picture(data=(2**70, False)), "legal are (address, read-only)"),
    (Picture(data=(1, False, 2)), "legal are (address, read-only)"),
    (Picture(data=(0, False)), "names the address 0"),
    (Picture(mask=[[1]]), "has a mask, which would be lost"),
], ids=without_addresses)
def test_what_is_refused_says_why(picture, says):
    with pytest.raises(TypeError) as refused:
        TensorDict({"a": {"x": picture}})
    assert "'a/x' is a 'test_array_interface.Picture'" in str(refused.value)
    assert says in str(refused.value)


def test_more_dimensions_than_there_may_be():
    with pytest.raises(tendon.LimitExceeded, match="'x' has 17 dimensions"):
        TensorDict({"x": Picture(shape=(1,) * 17, data=b"1")})


def test_the_reason_of_one_that_cannot_give_its_elements():
    class Truncated:
        @property
        def __array_interface__(self):
            raise OSError("image file is truncated")

    with pytest.raises(ValueError, match="'x' is a '.*Truncated' that gives no access .*truncated") as refused:
        TensorDict({"x": Truncated()})
    assert isinstance(refused.value.__cause__, OSError)
