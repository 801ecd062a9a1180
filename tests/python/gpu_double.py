# SPDX-License-Identifier: Apache-2.0
"""The double of the CUDA driver (tests/support/cuda/double.hpp) for these tests: memory of a GPU, streams, kernels, and
arrays on the GPU that speak one protocol each."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
from conftest import PATIENCE_S

PATH = os.environ.get("TENDON_CUDA_DOUBLE", "")
LEGACY, PER_THREAD = 1, 2
CUDA = 2  # as DLPack numbers devices

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Gpu:
    """A GPU of the double, used through its primary context, as frameworks do."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        self._driver = ctypes.CDLL(PATH)
        for name in ("double_writes", "double_reads"):
            function = getattr(self._driver, name)
            function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_uint64, ctypes.c_size_t]
        self._driver.double_calls.restype = ctypes.c_uint64
        self._kernels: list[object] = []
        self._context = ctypes.c_void_p()
        device = ctypes.c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._driver, name)(*arguments)
        assert status == 0, f"{name} answers {status}"

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def allocate(self, size_bytes: int) -> int:
        address = ctypes.c_uint64()
        with self._current():
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return address.value

    def stream(self) -> int:
        """Makes a stream that waits for no other."""
        made = ctypes.c_void_p()
        with self._current():
            self._call("cuStreamCreate", ctypes.byref(made), 1)
        return made.value

    def synchronize(self, stream: int) -> None:
        with self._current():
            self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def launch(self, stream: int, kernel: Callable[[], None]) -> None:
        """Runs the kernel in the order of the stream."""
        called = _KERNEL(lambda _: kernel())
        self._kernels.append(called)
        with self._current():
            self._call("double_launch", ctypes.c_void_p(stream), called, None)

    @contextlib.contextmanager
    def capture(self, stream: int) -> Iterator[None]:
        """Puts the work that is enqueued on the stream meanwhile into a graph, whichever thread enqueues it."""
        with self._current():
            self._call("double_begin_capture", ctypes.c_void_p(stream), 2)
        try:
            yield
        finally:
            with self._current():
                self._call("double_end_capture", ctypes.c_void_p(stream), ctypes.byref(ctypes.c_size_t()))

    def write(self, address: int, array: np.ndarray) -> None:
        if array.nbytes:
            place = self._driver.double_writes(address, array.nbytes)
            ctypes.memmove(place, np.ascontiguousarray(array).ctypes.data, array.nbytes)

    def read(self, address: int, size_bytes: int) -> bytes:
        return ctypes.string_at(self._driver.double_reads(address, size_bytes), size_bytes) if size_bytes else b""

    def array_of(self, tensor) -> np.ndarray:
        """The elements of a contiguous tensor on this GPU, after the stream that it names has run."""
        said = tensor.__cuda_array_interface__
        if said["stream"] is not None:
            self.synchronize(said["stream"])
        dtype = np.dtype(said["typestr"])
        size_bytes = int(np.prod(said["shape"], dtype=int)) * dtype.itemsize
        return np.frombuffer(self.read(said["data"][0], size_bytes), dtype).reshape(said["shape"])

    def calls(self, name: str) -> int:
        return self._driver.double_calls(name.encode())


class Gate:
    """Work of a stream that ends when the test opens the gate."""

    def __init__(self, gpu: Gpu, stream: int) -> None:
        self._open = threading.Event()
        gpu.launch(stream, lambda: self._open.wait(PATIENCE_S))

    def open(self) -> None:
        self._open.set()


class OnGpu:
    """Elements on a GPU: those of `array`, written there at once. The object speaks no protocol."""

    def __init__(self, gpu: Gpu, array: np.ndarray, *, strides: tuple[int, ...] | None = None) -> None:
        array = np.asarray(array)
        self.gpu, self.dtype, self.shape, self.strides = gpu, array.dtype, array.shape, strides
        self.address = gpu.allocate(max(array.nbytes, 1) * 4)
        gpu.write(self.address, array)


class ByInterface(OnGpu):
    """An array that speaks the protocol of Numba's arrays."""

    stream: int | None = None
    read_only = False

    @property
    def __cuda_array_interface__(self) -> dict:
        return {"version": 3, "shape": self.shape, "typestr": self.dtype.str, "strides": self.strides,
                "data": (self.address, self.read_only), "stream": self.stream}


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", _DELETER), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# A capsule outlives its array, and its deleter may be called at any time; a test is short, so the objects are kept.
_exported: list[object] = []
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class ByDlpack(OnGpu):
    """An array that speaks the protocol of CuPy's and JAX's arrays."""

    device_type = CUDA

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.streams: list[int | None] = []
        self.deleted = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, self.gpu.ordinal

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        self.streams.append(stream)
        assert max_version >= (1, 0)
        sizes = (ctypes.c_int64 * len(self.shape))(*self.shape)
        steps = None if self.strides is None else (ctypes.c_int64 * len(self.shape))(
            *(step // self.dtype.itemsize for step in self.strides))

        def delete(_: object) -> None:
            self.deleted += 1

        managed = _Managed(1, 0, None, _DELETER(delete), 0,
                           _Tensor(self.address, self.device_type, self.gpu.ordinal, len(self.shape),
                                   _CODES[self.dtype.kind], self.dtype.itemsize * 8, 1, sizes, steps, 0))
        _exported.append((self, managed, sizes, steps))
        return _new_capsule(ctypes.addressof(managed), b"dltensor_versioned", None)
