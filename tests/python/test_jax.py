# SPDX-License-Identifier: Apache-2.0
"""JAX on the CPU: in and out on the same memory."""

import numpy as np
import pytest

import tendon

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", "float32", "complex64",
                                   "bfloat16", "float8_e4m3fn"])
def test_in_without_a_copy(dtype):
    array = jax.numpy.arange(6).reshape(2, 3).astype(dtype)
    entry = tendon.TensorDict({"x": array})["x"]
    assert np.asarray(entry).ctypes.data == array.unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.asarray(entry).astype("c8"), np.asarray(array).astype("c8"))


@pytest.mark.parametrize("count", [8, 1 << 20])
@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
def test_out_without_a_copy(pair, dtype, count):
    pair.here.send({"x": jax.numpy.arange(count).astype(dtype)})
    entry = pair.there.recv()["x"]
    back = jax.dlpack.from_dlpack(entry)
    assert back.dtype == dtype and back.shape == (count,)
    assert back.unsafe_buffer_pointer() == np.asarray(entry).ctypes.data
    assert bool((back == jax.numpy.arange(count).astype(dtype)).all())


def test_what_is_read_only_is_copied():
    """JAX asks for the struct before DLPack 1.0, which cannot say READ_ONLY."""
    entry = tendon.TensorDict({"x": jax.numpy.ones(16)})["x"]
    assert not entry.flags.writeable
    before = tendon.copied_read_only()
    assert jax.dlpack.from_dlpack(entry).sum() == 16
    assert tendon.copied_read_only() == before + 1
