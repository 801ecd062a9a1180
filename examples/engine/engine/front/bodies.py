# SPDX-License-Identifier: Apache-2.0
"""The arriving bodies of requests: limits of their size, their time, and the memory of all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from aiohttp import web

from .errors import ApiError
from .limits import Limits

_SMALL = 64 << 10  # bytes; a body up to this size is never ended to make room


class Bodies:
    """Belongs to one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._arriving: dict[asyncio.Timeout, Body] = {}  # the oldest first
        self.held = 0  # bytes, including complete bodies

    @contextlib.contextmanager
    def one(self) -> Iterator[Body]:
        body = Body(self)
        try:
            yield body
        finally:
            body.forget()

    async def read(self, request: web.Request, body: Body) -> bytes:
        most = self._limits.body_bytes
        said = request.content_length or 0
        try:
            async with asyncio.timeout(self._limits.body_s) as until:
                self._arriving[until] = body
                try:
                    while said <= most and (chunk := await request.content.readany()):
                        body.add(chunk)
                        said = max(said, body.size)
                        self._make_room()
                finally:
                    del self._arriving[until]
        except TimeoutError:
            raise ApiError(408, f"the body was not whole after {self._limits.body_s:g} s, or is the oldest of more than "
                           f"{self._limits.bodies_bytes} bytes that arrive; send it at once", code="timeout") from None
        if said > most:
            raise ApiError(413, f"the body has {said} bytes or more; legal is up to {most}", code="http_413")
        return body.whole()

    def _make_room(self) -> None:
        """Ends the body that has been arriving for the longest time."""
        if self.held <= self._limits.bodies_bytes:
            return
        now = asyncio.get_running_loop().time()
        for until, body in self._arriving.items():
            if body.size > _SMALL and (until.when() or 0) > now:
                until.reschedule(now)
                return


class Body:
    """A body that counts as held until forget() is called."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies, self.size = bodies, 0
        self._chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.size += len(chunk)
        self._bodies.held += len(chunk)

    def whole(self) -> bytes:
        joined = b"".join(self._chunks)
        self._chunks.clear()
        return joined

    def forget(self) -> None:
        """May be called repeatedly."""
        self._bodies.held -= self.size
        self.size = 0
        self._chunks.clear()
