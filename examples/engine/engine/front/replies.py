# SPDX-License-Identifier: Apache-2.0
"""Converts an exchange to HTTP: one JSON object, or server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from .choice import Piece
from .errors import ApiError, internal_error
from .exchange import Exchange
from .limits import Limits
from .shapes import Shape

_STREAM_BUFFER = 64 << 10  # bytes of one stream that are buffered here; the kernel buffers as many
_log = logging.getLogger("engine.front")


class Stalled(ConnectionError):
    """A stream was ended because it is not read."""


async def whole(exchange: Exchange, shape: Shape, limits: Limits) -> web.Response:
    pieces = [Piece() for _ in exchange.choices]
    async for one in exchange.pieces(limits.keep_alive_s):
        if one is not None:
            index, piece = one
            pieces[index].text += piece.text
            pieces[index].shown += piece.shown
    return web.json_response(shape.whole(pieces, exchange.choices))


async def stream(request: web.Request, exchange: Exchange, shape: Shape, limits: Limits,
                 include_usage: bool) -> web.StreamResponse:
    """Sends a stream. Later errors are events in the stream, because its HTTP status has been sent."""
    events = await Events.open(request, limits)
    for index in range(len(exchange.choices)):
        await events.send(shape.first(index))
    try:
        async for one in exchange.pieces(limits.keep_alive_s):
            if one is None:
                await events.keep_alive()
                continue
            index, piece = one
            if piece:
                await events.send(shape.chunk(index, piece))
            if (reason := exchange.choices[index].finish_reason) is not None:
                await events.send(shape.last(index, reason))
    except ApiError as error:
        await events.send(error.body())
    except ConnectionError:
        raise
    except Exception:
        _log.exception("a stream")
        await events.send(internal_error().body())
    else:
        if include_usage:
            await events.send(shape.usage_chunk(exchange.choices))
        await events.write(b"data: [DONE]\n\n")
    return await events.close()


class Events:
    """Server-sent events to one reader, which must take some data within limits.write_s."""

    def __init__(self, response: web.StreamResponse, transport: asyncio.Transport | None, limits: Limits) -> None:
        self._response, self._transport, self._limits = response, transport, limits

    @staticmethod
    async def open(request: web.Request, limits: Limits) -> Events:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache",
                                               "X-Accel-Buffering": "no"})
        transport = request.transport
        if transport is not None:
            transport.set_write_buffer_limits(high=_STREAM_BUFFER)
            if (wire := transport.get_extra_info("socket")) is not None:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_BUFFER)
        await response.prepare(request)
        return Events(response, transport, limits)

    async def send(self, event: Mapping[str, Any] | None, kind: str = "") -> None:
        """kind names the event for readers that distinguish events; the default is for all clients."""
        if event is not None:
            name = f"event: {kind}\n" if kind else ""
            await self.write(f"{name}data: {json.dumps(event, separators=(',', ':'))}\n\n".encode())

    async def keep_alive(self) -> None:
        await self.write(b": waiting\n\n")

    async def write(self, raw: bytes) -> None:
        try:
            async with asyncio.timeout(self._limits.write_s):
                await self._response.write(raw)
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()
            raise Stalled(f"its reader has taken nothing for {self._limits.write_s:g} s") from None

    async def close(self) -> web.StreamResponse:
        async with asyncio.timeout(self._limits.write_s):
            await self._response.write_eof()
        return self._response
