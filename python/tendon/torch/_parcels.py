# SPDX-License-Identifier: Apache-2.0
"""Any picklable object, with its tensors and large buffers beside the pickle, over a pipe between own processes."""

from __future__ import annotations

import io
import pickle
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

from .. import _tendon

# Bytes of a tensor or buffer that travel inside the pickle; more lie beside it, and are not copied on arrival.
_INLINE_BYTES = 4096
# The pickle beside tensors has a length of a multiple of this, so that few schemas have to be announced.
_PICKLE_STEP = 1024
_PICKLE = "pickle"

_taken = threading.local()  # what lies beside the pickle that this thread loads


class _Pickler(ForkingPickler):
    """Takes dense tensors of the CPU out; what else torch can share between processes, it shares."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5, True, self._buffer)
        self.tensors: list[torch.Tensor] = []
        self.buffers: list[memoryview] = []

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and not value.flags.writeable:
            return value.copy().__reduce_ex__(5)  # may be written where it arrives, as from torch's queues
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.device.type != "cpu" or (
                value.requires_grad or value.is_quantized):
            return NotImplemented
        if not value.numel():
            return _empty, (value.dtype, tuple(value.shape), value.stride())
        value = value.resolve_conj().resolve_neg()
        if not value.is_contiguous():
            value = value.clone()  # keeps the strides where its elements lie without gaps
        flat = value.as_strided((value.numel(),), (1,)).view(torch.uint8)
        form = (value.dtype, tuple(value.shape), value.stride())
        if len(flat) <= _INLINE_BYTES:
            return _small, (flat.numpy().tobytes(), *form)
        self.tensors.append(flat)
        return _beside, (len(self.tensors) - 1, *form)

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """True: the buffer lies inside the pickle."""
        raw = buffer.raw()
        if raw.nbytes <= _INLINE_BYTES or raw.readonly:
            return True
        self.buffers.append(raw)
        return False


def _empty(dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype)


def _small(content: bytes, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=dtype).as_strided(shape, stride)


def _beside(place: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    flat: torch.Tensor = torch.from_dlpack(_taken.batch[f"t{place}"])
    return flat.view(dtype).as_strided(shape, stride)


def send(pipe: _tendon.Pipe, value: Any, timeout: float | None) -> None:
    """Raises what pickle raises, before anything is sent."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    pickled = file.getbuffer()
    if not pickler.tensors and not pickler.buffers:
        pipe.send(pickled, timeout)
        return
    padded = bytearray(-(-len(pickled) // _PICKLE_STEP) * _PICKLE_STEP)
    padded[:len(pickled)] = pickled  # a pickle ends where it says that it ends
    parts: dict[str, Any] = {f"t{place}": each for place, each in enumerate(pickler.tensors)}
    parts.update((f"b{place}", each) for place, each in enumerate(pickler.buffers))
    pipe.send({_PICKLE: padded, **parts}, timeout)


def load(message: _tendon.Message) -> Any:
    """What was sent by an own process: pickles are taken from nobody else."""
    batch = message.batch
    if batch is None:
        return pickle.loads(message.bytes)
    _taken.batch = batch
    try:
        return pickle.loads(batch[_PICKLE], buffers=[batch[key] for key in batch if key.startswith("b")])
    finally:
        del _taken.batch
