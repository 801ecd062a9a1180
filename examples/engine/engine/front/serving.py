# SPDX-License-Identifier: Apache-2.0
"""The running front: a link, and an HTTP server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web

from ..tokenizer import Tokenizer
from .app import Front
from .asked import Model
from .door import ACCEPTED_AT_ONCE, Door
from .limits import Limits
from .link import Link

_SHUTDOWN_S = 2.0
_BACKLOG = 512  # connections that wait to be accepted


@dataclass(frozen=True)
class Running:
    url: str
    front: Front
    link: Link


@contextlib.asynccontextmanager
async def running(controller: str, port: int, tokenizer: Tokenizer, model: Model,
                  limits: Limits) -> AsyncIterator[Running]:
    """Serves on 127.0.0.1 while the block runs. No other address is possible, because clients are not authenticated."""
    door = Door(limits)
    link = Link(controller, len(tokenizer), limits)
    front = Front(link, tokenizer, model, door)
    runner = web.AppRunner(front.app(), handler_cancellation=True, access_log=None,
                           shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    assert runner.server is not None
    linking = asyncio.create_task(link.run())
    server = None
    try:
        listening = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        server = await asyncio.get_running_loop().create_server(
            functools.partial(door.guest, runner.server), sock=listening, backlog=ACCEPTED_AT_ONCE)
        # asyncio uses one number for the backlog and for the connections that it accepts in one turn.
        listening.listen(_BACKLOG)
        yield Running(f"http://127.0.0.1:{listening.getsockname()[1]}", front, link)
    finally:
        if server is not None:
            server.close()
        link.stop()  # clients get the reason; then connections are closed
        await runner.cleanup()
        linking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await linking
