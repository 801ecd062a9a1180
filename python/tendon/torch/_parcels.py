# SPDX-License-Identifier: Apache-2.0
"""Sends any picklable object, with its tensors and large buffers beside the pickle, over a pipe between own processes.
"""

from __future__ import annotations

import io
import math
import pickle
import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

from .. import _tendon

# Larger tensors and buffers lie beside the pickle, and are not copied on arrival.
_INLINE_BYTES = 4096
# The padded length of a pickle beside tensors is a multiple of this, so that few schemas are announced.
_PICKLE_STEP = 1024
_PICKLE = "pickle"

# The tag of a message that lies in a loan and belongs to the next pickle.
_LENT = "lent"

_taken = threading.local()  # the data beside the pickle that this thread loads


class _Pickler(ForkingPickler):
    """Extracts dense tensors on the CPU; other objects that torch can share between processes are shared."""

    def __init__(self, file: io.BytesIO, loans: Loans | None) -> None:
        super().__init__(file, 5, True, self._buffer)
        self._loans = loans
        self.tensors: list[torch.Tensor] = []
        self.buffers: list[memoryview] = []

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and not value.flags.writeable:
            return value.copy().__reduce_ex__(5)  # writable where it arrives, as from torch's queues
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.device.type != "cpu" or (
                value.requires_grad or value.is_quantized):
            return NotImplemented
        if self._loans is not None:
            place = self._loans.place_of(value)
            if place is not None:
                return _lent, (place, value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
        if not value.numel():
            return _empty, (value.dtype, tuple(value.shape), value.stride())
        value = value.resolve_conj().resolve_neg()
        if not value.is_contiguous():
            value = value.clone()  # keeps the strides if its elements lie without gaps
        flat = value.as_strided((value.numel(),), (1,)).view(torch.uint8)
        form = (value.dtype, tuple(value.shape), value.stride())
        if len(flat) <= _INLINE_BYTES:
            return _small, (flat.numpy().tobytes(), *form)
        self.tensors.append(flat)
        return _beside, (len(self.tensors) - 1, *form)

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Returns True if the buffer lies inside the pickle."""
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


def _lent(place: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    flat: torch.Tensor = torch.from_dlpack(_taken.lent[place])
    return flat.view(dtype).as_strided(shape, stride, offset)


class Loans:
    """Tensors made where the peer will read them: for a tensor that the caller drops once it is sent."""

    def __init__(self, pipe: _tendon.Pipe) -> None:
        self._pipe = pipe
        self._made: dict[int, tuple[_tendon.Loan, torch.Tensor]] = {}

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """Returns None for a small tensor, or one larger than a message may be."""
        count = math.prod(shape) * dtype.itemsize
        if count <= _INLINE_BYTES:
            return None
        try:
            loan = self._pipe.loan({_LENT: ("uint8", (count,))}, None)
        except _tendon.MessageTooLarge:
            return None
        flat = torch.from_numpy(loan[_LENT])
        self._made[flat.data_ptr()] = (loan, flat)
        return flat.view(dtype).view(shape)

    def place_of(self, tensor: torch.Tensor) -> int | None:
        """Returns the loan that the tensor lies in."""
        start = tensor.untyped_storage().data_ptr()
        return list(self._made).index(start) if start in self._made else None

    def send(self) -> None:
        for loan, _ in self._made.values():
            self._pipe.send(loan, None)
        self._made.clear()

    def drop(self) -> None:
        """Drops the loans of a failed batch."""
        self._made.clear()


def send(pipe: _tendon.Pipe, value: Any, loans: Loans | None = None) -> None:
    """Sends the object. Raises pickle's exceptions before anything is sent."""
    file = io.BytesIO()
    pickler = _Pickler(file, loans)
    pickler.dump(value)
    pickled = file.getbuffer()
    if loans is not None:
        loans.send()
    if not pickler.tensors and not pickler.buffers:
        pipe.send(pickled, None)
        return
    padded = bytearray(-(-len(pickled) // _PICKLE_STEP) * _PICKLE_STEP)
    padded[:len(pickled)] = pickled  # a pickle marks its own end
    parts: dict[str, Any] = {f"t{place}": each for place, each in enumerate(pickler.tensors)}
    parts.update((f"b{place}", each) for place, each in enumerate(pickler.buffers))
    pipe.send({_PICKLE: padded, **parts}, None)


class Arrivals:
    """Reassembles the objects of send(). Loads pickles, so the peer must be an own process."""

    def __init__(self) -> None:
        self._lent: list[Any] = []

    def take(self, message: _tendon.Message) -> tuple[Any] | None:
        """Returns the object in a tuple; None while parts are missing."""
        batch = message.batch
        if batch is not None and _LENT in batch:
            self._lent.append(batch[_LENT])
            return None
        _taken.batch, _taken.lent = batch, self._lent
        self._lent = []
        try:
            if batch is None:
                return (pickle.loads(message.bytes),)
            return (pickle.loads(batch[_PICKLE], buffers=[batch[key] for key in batch if key.startswith("b")]),)
        finally:
            del _taken.batch, _taken.lent
