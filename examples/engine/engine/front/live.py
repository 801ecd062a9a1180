# SPDX-License-Identifier: Apache-2.0
"""The live page, and its events: first those of the last minutes, then each status."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections import deque
from pathlib import Path

from aiohttp import web

from .door import Door
from .errors import unavailable
from .link import Link
from .replies import Events
from .source import Shares
from .status import Status

_POINTS = 600  # two minutes of a status every 200 ms
_QUIET_S = 1.0  # after this time without a status the page still gets the state
_FOLDER = Path(__file__).parent / "page"


class Live:
    def __init__(self, link: Link, door: Door) -> None:
        self._link, self._door, self._limits = link, door, door.limits
        self._shares = Shares(door.limits.pages)
        self._history: deque[dict[str, float]] = deque(maxlen=_POINTS)
        self._readers: set[asyncio.Queue[Status]] = set()
        self._page, self._headers = _page()
        link.listeners.add(self._take)

    async def page(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=self._page, content_type="text/html", headers=self._headers)

    async def events(self, request: web.Request) -> web.StreamResponse:
        with self._shares.one_for(self._door.guest_of(request).source) as refusal:
            if refusal:
                raise unavailable(f"live pages: {refusal}; close one", "too_many_pages", self._limits.retry_after_s)
            return await self._tell(request)

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        # One place: a slow page gets only the newest status.
        latest: asyncio.Queue[Status] = asyncio.Queue(1)
        self._readers.add(latest)
        try:
            events = await Events.open(request, self._limits)
            await events.send({"points": list(self._history)}, "history")
            while True:
                try:
                    async with asyncio.timeout(_QUIET_S):
                        status = await latest.get()
                except TimeoutError:
                    await events.send({"state": self._link.state()}, "quiet")
                else:
                    await events.send({**status.as_json(), **_point(status)}, "status")
        finally:
            self._readers.discard(latest)

    def _take(self, status: Status) -> None:
        self._history.append(_point(status))
        for latest in self._readers:
            if latest.full():
                latest.get_nowait()
            latest.put_nowait(status)


def _point(status: Status) -> dict[str, float]:
    """Returns the values that the page plots over time."""
    return {"t": round(time.time(), 3), "tokens_per_s": status.tokens_per_s,
            "prompt_tokens_per_s": status.prompt_tokens_per_s, "control_ms": status.control_ms,
            "compute_ms": status.compute_ms, "wait_ms": status.wait_ms, "move_ms": status.move_ms}


def _page() -> tuple[str, dict[str, str]]:
    """Returns one document that loads only its events, and a policy that permits nothing else."""
    style = (_FOLDER / "style.css").read_text()
    script = (_FOLDER / "live.js").read_text()
    html = (_FOLDER / "live.html").read_text().replace("/*style*/", style).replace("/*script*/", script)
    policy = ("default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
              f"frame-ancestors 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'")
    return html, {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
                  "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
