# SPDX-License-Identifier: Apache-2.0
"""The source of a connection, and the limits of one source."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_SOCK_DIAG = 4  # a netlink protocol by which the kernel reports a socket's owner
_BY_FAMILY, _REQUEST = 20, 1
_NO_COOKIE = b"\xff" * 8
_UID_AT = 16 + 64  # after the netlink header, in inet_diag_msg


@dataclass(frozen=True)
class Source:
    address: str = ""
    user: int | None = None  # on this host; None: the kernel does not report it

    @staticmethod
    def of(transport: asyncio.BaseTransport) -> Source:
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        return Source(peer[0], _user_of(peer, here)) if peer and here else Source()


def _user_of(peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """Asks the kernel for the owner: any user may use any loopback address."""
    asked = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + struct.pack(
        ">HH16s16sI", peer[1], here[1], socket.inet_aton(peer[0]), socket.inet_aton(here[0]), 0) + _NO_COOKIE
    header = struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.send(header + asked)
            said = kernel.recv(4096, socket.MSG_DONTWAIT)
    except OSError:
        return None
    if len(said) < _UID_AT + 4 or struct.unpack_from("=H", said, 4)[0] != _BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", said, _UID_AT)[0])


class Shares:
    """Places: one address may have half of them, one user three quarters; the rest is for others."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._half, self._most = max(1, places // 2), max(1, places * 3 // 4)
        self._by_address: Counter[str] = Counter()
        self._by_user: Counter[int | None] = Counter()
        self.taken = 0

    @contextlib.contextmanager
    def one_for(self, source: Source) -> Iterator[str]:
        """Takes a place and yields ''; without a place it yields the reason."""
        refusal = self._refusal(source)
        if refusal:
            yield refusal
            return
        self._count(source, 1)
        try:
            yield ""
        finally:
            self._count(source, -1)

    def _refusal(self, source: Source) -> str:
        if self.taken >= self._places:
            return f"all {self._places} are taken"
        if self._by_address[source.address] >= self._half:
            return f"{source.address} has {self._half} of {self._places}, and the others are kept for other addresses"
        if self._by_user[source.user] >= self._most:
            return f"one user has {self._most} of {self._places}, and the others are kept for other users"
        return ""

    def _count(self, source: Source, change: int) -> None:
        self.taken += change
        self._by_address[source.address] += change
        self._by_user[source.user] += change
        if not self._by_address[source.address]:
            del self._by_address[source.address]
        if not self._by_user[source.user]:
            del self._by_user[source.user]
