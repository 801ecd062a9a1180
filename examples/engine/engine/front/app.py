# SPDX-License-Identifier: Apache-2.0
"""Routes: the handler of each path, and the checks of every request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from ..tokenizer import Tokenizer
from . import asked as bodies
from . import fields, metrics, replies
from .asked import Asked, Model
from .bodies import Bodies
from .door import Door
from .errors import ApiError, internal_error, queue_full, unavailable
from .exchange import Exchange
from .fields import Body
from .limits import Limits
from .link import Link
from .live import Live
from .shapes import Shape
from .source import Shares

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Reader = Callable[[Body, Tokenizer, Model, Limits], Asked]
_log = logging.getLogger("engine.front")


class Front:
    """Belongs to one event loop; aiohttp runs app() with handler_cancellation, so that the end of a client is noticed.
    """

    def __init__(self, link: Link, tokenizer: Tokenizer, model: Model, door: Door) -> None:
        limits = door.limits
        self._link, self._tokenizer, self._model, self._limits = link, tokenizer, model, limits
        self.door, self.bodies = door, Bodies(limits)
        # The other places are for connections that only read pages, or whose request still arrives.
        self._shares = Shares(min(limits.open_requests, max(1, door.places * 3 // 4)))
        self._live = Live(link, door)
        self._made = int(time.time())
        self.counts = metrics.Counts()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded, self._checked], client_max_size=self._limits.body_bytes)
        app.router.add_get("/", self._live.page)
        app.router.add_get("/events", self._live.events, allow_head=False)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{id:.+}", self._one_model)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    # -- every request

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Handles a request whose connection keeps its place meanwhile."""
        with self.door.guest_of(request).busy():
            return await handler(request)

    @web.middleware
    async def _checked(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Returns errors in the shape that clients know, and counts them."""
        route = request.match_info.route.resource
        path = route.canonical if route is not None else "other"
        try:
            _check_origin(request)
            response = await handler(request)
        except ApiError as error:
            response = _error(error)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            response = _error(ApiError(error.status, f"{request.method} {request.path[:200]}: {error.reason}",
                                       code=f"http_{error.status}"), allow=error.headers.get("Allow"))
        except (asyncio.CancelledError, ConnectionError) as error:
            if isinstance(error, replies.Stalled):
                self.counts.unread += 1
            self.counts.disconnected += path.startswith("/v1")
            raise asyncio.CancelledError from None  # aiohttp would log a ConnectionError as a failure
        except Exception:
            _log.exception("%s %s", request.method, request.path)
            response = _error(internal_error())
        self.counts.requests[path, response.status] += 1
        return response

    # -- status of the engine

    async def _health(self, _: web.Request) -> web.StreamResponse:
        state = self._link.state()
        if state != "running":
            raise unavailable(f"the engine is {state}", state, self._limits.retry_after_s)
        return web.json_response({"status": "ok", "state": state})

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        text = metrics.page(self._link.state(), self._link.status, self.counts, self.door,
                            malformed=self._link.malformed, unknown=self._link.unknown, refused=self._link.refused)
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    def _model_json(self) -> dict[str, object]:
        return {"id": self._model.name, "object": "model", "created": self._made, "owned_by": "tendon"}

    async def _models(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [self._model_json()]})

    async def _one_model(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["id"] != self._model.name:
            raise bodies.unknown_model(request.match_info["id"], self._model)
        return web.json_response(self._model_json())

    # -- requests for tokens

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._bounded(request, bodies.completion)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._bounded(request, bodies.chat)

    async def _bounded(self, request: web.Request, reader: _Reader) -> web.StreamResponse:
        guest = self.door.guest_of(request)
        with self.bodies.one() as body:
            # Before it takes a share: a body that never arrives holds none.
            with guest.awaiting_body():
                raw = await self.bodies.read(request, body)
            with self._shares.one_for(guest.source) as refusal:
                if refusal:
                    raise queue_full(f"open requests: {refusal}; try again", self._limits.retry_after_s)
                self.counts.open += 1
                try:
                    # On a thread, because tokenizing a long text is slow.
                    asked = await asyncio.to_thread(self._asked, raw, reader)
                    body.forget()
                    return await self._reply(request, asked)
                finally:
                    self.counts.open -= 1

    def _asked(self, raw: bytes, reader: _Reader) -> Asked:
        return reader(fields.parse(raw), self._tokenizer, self._model, self._limits)

    async def _reply(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        await self._link.ready()
        shape = Shape(asked, self._model, self._tokenizer)
        async with Exchange(self._link, self._tokenizer, asked, self._limits,
                            lambda: self._overflow(request)) as exchange:
            await exchange.submit()
            try:
                if asked.stream:
                    return await replies.stream(request, exchange, shape, self._limits, asked.include_usage)
                return await replies.whole(exchange, shape, self._limits)
            finally:
                self.counts.tokens += sum(choice.tokens for choice in exchange.choices)

    def _overflow(self, request: web.Request) -> None:
        """The reader takes too little; the end of the connection ends the handler."""
        self.counts.unread += 1
        if request.transport is not None:
            request.transport.abort()


def _check_origin(request: web.Request) -> None:
    """Refuses requests of foreign pages, which could use the engine through their reader's browser."""
    host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
    if host.lower() not in _HOSTS:
        raise ApiError(403, f"the host is {request.host[:100]!r}; legal is one of {', '.join(_HOSTS)}",
                       code="host_not_allowed")
    origin = request.headers.get("Origin")
    if origin is not None and origin.lower() != f"http://{request.host}".lower():
        raise ApiError(403, f"the page is of {origin[:100]!r}; legal is this server's own", code="origin_not_allowed")


def _error(error: ApiError, allow: str | None = None) -> web.Response:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if allow is not None:
        headers["Allow"] = allow
    return web.json_response(error.body(), status=error.status, headers=headers)
