# SPDX-License-Identifier: Apache-2.0
"""One HTTP request at the controller: all its choices, from submit to the last token."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from ..tokenizer import Tokenizer
from .asked import Asked
from .choice import Choice, Piece
from .errors import ApiError, of_failure, of_refusal, unavailable
from .limits import Limits
from .link import Link
from .messages import Accepted, Done, Event, Lost, Refused, Tokens


class Exchange:
    """Used by `async with`: at its end, unfinished choices are cancelled at the controller.

    If more than limits.unread_tokens are unread, it calls overflow(), which must end the task that should read them.
    """

    def __init__(self, link: Link, tokenizer: Tokenizer, asked: Asked, limits: Limits,
                 overflow: Callable[[], None]) -> None:
        self._link, self._limits, self._overflow = link, limits, overflow
        self._asked = asked
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._unread = 0  # tokens
        self._admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        name = secrets.token_hex(12)
        self._requests = [f"{name}-{index}" for index in range(len(asked.choices))]
        self._not_yet = set(range(len(asked.choices)))  # accepted
        self.choices = [Choice(tokenizer, asked.stop, one.echo) for one in asked.choices]

    async def __aenter__(self) -> Exchange:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        self.cancel()

    def cancel(self) -> None:
        for request in self._requests:
            self._link.cancel(request)

    async def submit(self) -> None:
        """Returns when all choices are accepted; raises the client's error if one is not."""
        for index, (request, wanted) in enumerate(zip(self._requests, self._asked.choices, strict=True)):
            self._link.submit(request, wanted.prompt, wanted.sampling, functools.partial(self._put, index))
        await self._admitted

    async def pieces(self, idle_s: float) -> AsyncIterator[tuple[int, Piece] | None]:
        """Yields (index, piece) in order of arrival, the last piece of a choice with its finish_reason set; None
        after idle_s without one. Raises ApiError if a choice does not finish normally."""
        left = len(self.choices)
        while left:
            try:
                async with asyncio.timeout(idle_s):
                    index, event = await self._events.get()
            except TimeoutError:
                yield None
                continue
            if self.choices[index].finish_reason is not None:
                continue
            piece = self._piece(index, event)
            left -= self.choices[index].finish_reason is not None
            yield index, piece

    def _piece(self, index: int, event: Event) -> Piece:
        choice = self.choices[index]
        if isinstance(event, Tokens):
            self._unread -= len(event.tokens)
            piece = choice.push(event.tokens, event.logprobs)
            if choice.finish_reason is not None:
                self._link.finish(self._requests[index])
            return piece
        if isinstance(event, Done) and event.reason in ("stop", "length"):
            return choice.finish(event.reason)
        raise self._error_of(event)

    def _put(self, index: int, event: Event) -> None:
        """Called by the link."""
        if not self._admitted.done():
            if isinstance(event, (Refused, Lost)):
                self._admitted.set_exception(self._error_of(event))
                return
            self._not_yet.discard(index)
            if not self._not_yet:
                self._admitted.set_result(None)
        if isinstance(event, Accepted):
            return
        self._events.put_nowait((index, event))
        if isinstance(event, Tokens):
            self._unread += len(event.tokens)
            if self._unread > self._limits.unread_tokens:
                self.cancel()
                self._overflow()

    def _error_of(self, event: Event) -> ApiError:
        if isinstance(event, Refused):
            return of_refusal(event.code, event.message, self._limits.retry_after_s)
        if isinstance(event, Lost) and event.code == "stopping":
            return unavailable(event.message, event.code, self._limits.retry_after_s)
        if isinstance(event, Lost):
            return of_failure(event.code, event.message)
        reason = event.reason if isinstance(event, Done) else "failed"
        if isinstance(event, Done) and event.code:
            return of_failure(event.code, event.message)
        return of_failure(reason, f"the engine ended the request: {reason}")
