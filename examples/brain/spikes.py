# SPDX-License-Identifier: Apache-2.0
"""The neurons of a population that fired in one tick, encoded as the bytes of a sample.

spikes.hpp has the same in C++, and the format. The shorter of a bitmap and a list of addresses is sent:
the list below a density of 1 / log2(neurons).
"""

import struct

import numpy as np

MAX_NEURONS = 65536
HEAD = struct.Struct("<BxxxII")
BITMAP, LIST = 1, 2


def address_bits(neurons: int) -> int:
    return max(1, (neurons - 1).bit_length())


def code_for(neurons: int, fired: int) -> int:
    return LIST if fired * address_bits(neurons) < neurons else BITMAP


def encode(fired: np.ndarray) -> bytes:
    """Encodes a boolean for each neuron."""
    neurons, addresses = len(fired), np.flatnonzero(fired)
    code = code_for(neurons, len(addresses))
    if code == LIST:
        bits = addresses[:, None] >> np.arange(address_bits(neurons)) & 1
    else:
        bits = fired
    payload = np.packbits(bits.astype(bool).ravel(), bitorder="little")
    return HEAD.pack(code, neurons, len(addresses)) + payload.tobytes()


def decode(data: bytes | memoryview) -> np.ndarray:
    """Returns a boolean for each neuron. ValueError for any bytes of a peer that encode() does not produce."""
    if len(data) < HEAD.size:
        raise ValueError(f"{len(data)} bytes are no message of spikes")
    code, neurons, count = HEAD.unpack_from(data)
    if not 1 <= neurons <= MAX_NEURONS or count > neurons:
        raise ValueError(f"{count} of {neurons} neurons; legal are 1 to {MAX_NEURONS}")
    width = address_bits(neurons)
    length = count * width if code_for(neurons, count) == LIST else neurons
    payload = np.frombuffer(data, np.uint8, offset=HEAD.size)
    if code != code_for(neurons, count) or len(payload) != (length + 7) // 8:
        raise ValueError("a payload of another length or code than its count asks for")
    bits = np.unpackbits(payload, count=length, bitorder="little")
    fired = np.zeros(neurons, bool)
    if code == LIST:
        addresses = bits.reshape(count, width) @ (1 << np.arange(width))
        if np.any(addresses >= neurons):
            raise ValueError("an address beyond the population")
        fired[addresses] = True
    else:
        fired[:] = bits
    if encode(fired) != bytes(data):  # the legal encoding is unique
        raise ValueError("addresses that do not ascend, another count, or bits that say nothing")
    return fired
