# SPDX-License-Identifier: Apache-2.0
"""The pipe to the controller: sends requests, and delivers the replies."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tendon

from . import messages
from .errors import unavailable
from .limits import Limits
from .messages import Done, Event, Lost, MalformedOf, Refused
from .status import Malformed, Status

_CONNECT_S = 2.0
_TICK_S = 0.25  # the interval at which waiters for a state look at the clock
_WAITING = ("starting", "rebuilding")
_STOPPING = "the engine is being stopped"
_log = logging.getLogger("engine.front")

Sink = Callable[[Event], None]


class Link:
    """Belongs to the event loop, except for a thread that reads.

    A lost pipe ends its requests with an error, and is reconnected as long as run() runs.
    """

    def __init__(self, address: str, vocabulary: int, limits: Limits) -> None:
        self._address, self._vocabulary, self._limits = address, vocabulary, limits
        self._context = tendon.Context("engine front", linger=0.2)
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._sinks: dict[str, Sink] = {}
        self._leaving: set[str] = set()  # ended here; the controller has not confirmed it
        self._status_at = 0.0
        self._changed = asyncio.Condition()
        self._connected = False
        self._stopping = False
        self.status: Status | None = None
        self.listeners: set[Callable[[Status], None]] = set()
        self.malformed = 0  # messages
        self.refused = 0  # messages that the controller could not read
        self.unknown = 0  # messages of unknown requests

    # -- requests

    def submit(self, request: str, prompt: Sequence[int], sampling: Mapping[str, Any], sink: Sink) -> None:
        """sink gets Accepted or Refused, then Tokens in their order, then Done; or Lost at any time, as the last."""
        if self._stopping:
            raise unavailable(_STOPPING, "stopping", self._limits.retry_after_s)
        if not self._connected:
            raise unavailable("the controller cannot be reached; try again", "unreachable",
                              self._limits.retry_after_s)
        self._sinks[request] = sink
        self._outbox.put_nowait(messages.submit(request, prompt, sampling))

    def cancel(self, request: str) -> None:
        """Ends a request whose rest is not wanted. Its sink gets nothing more; may be called after its end."""
        self._leave(request, messages.cancel(request))

    def finish(self, request: str) -> None:
        """Ends a request at a stop string: works as cancel, but the controller counts it as finished."""
        self._leave(request, messages.finish(request))

    def stop(self) -> None:
        """Ends all requests and accepts no more."""
        self._stopping = True
        for request, sink in list(self._sinks.items()):
            self.cancel(request)
            sink(Lost(request, "stopping", _STOPPING))

    def _leave(self, request: str, message: bytes) -> None:
        if self._sinks.pop(request, None) is not None:
            self._leaving.add(request)
            self._outbox.put_nowait(message)

    # -- state

    def state(self) -> str:
        """Returns the controller's last state, or unreachable."""
        if self.status is None:
            return "starting"
        late = time.monotonic() - self._status_at > self._limits.status_s
        return "unreachable" if late or not self._connected else self.status.state

    async def ready(self) -> None:
        """Returns when requests are accepted; raises 503 if that is not expected soon."""
        try:
            async with asyncio.timeout(self._limits.ready_s), self._changed:
                await self._changed.wait_for(lambda: self.state() not in _WAITING)
        except TimeoutError:
            raise unavailable(f"the engine is still {self.state()} after {self._limits.ready_s:g} s; try again",
                              self.state(), self._limits.retry_after_s) from None
        if self.state() != "running":
            raise unavailable(f"the engine is {self.state()}; try again", self.state(), self._limits.retry_after_s)

    # -- the pipe

    async def run(self) -> None:
        """Runs until it is cancelled."""
        ticking = asyncio.create_task(self._tick())
        try:
            while True:
                try:
                    pipe = await asyncio.to_thread(self._context.connect, self._address, _CONNECT_S)
                except tendon.Error as error:
                    _log.info("no controller at %s: %s", self._address, error)
                    await asyncio.sleep(_TICK_S)
                    continue
                self._connected = True
                try:
                    why = await self._serve(pipe)
                finally:
                    self._connected = False
                    self._lose_all("controller_lost", "the controller was lost")
                _log.warning("the controller was lost: %s", why)
        finally:
            ticking.cancel()
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        try:
            self._context.close(1.0)
        except tendon.Error:
            pass  # unsent data for a controller that no longer reads

    async def _serve(self, pipe: tendon.Pipe) -> str:
        """Runs until the pipe ends; returns the reason."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()
        reader = threading.Thread(target=self._read, args=(pipe, loop, ended), name="controller", daemon=True)
        reader.start()
        sender = asyncio.create_task(self._send(pipe))
        try:
            await asyncio.wait((ended, sender), return_when=asyncio.FIRST_COMPLETED)
            return ended.result() if ended.done() else str(sender.exception())
        finally:
            sender.cancel()
            pipe.cancel()
            await asyncio.to_thread(reader.join)
            self._outbox = asyncio.Queue()

    async def _send(self, pipe: tendon.Pipe) -> None:
        while True:
            await pipe.asend(await self._outbox.get(), None)

    def _read(self, pipe: tendon.Pipe, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[str]) -> None:
        """Runs on a thread of its own, because raw bytes cannot be awaited."""
        try:
            while True:
                raw = bytes(pipe.recv_message(None).bytes)
                try:
                    loop.call_soon_threadsafe(self._take, messages.read(raw, self._vocabulary))
                except Malformed as error:
                    loop.call_soon_threadsafe(self._take_malformed, error)
        except tendon.Error as error:
            loop.call_soon_threadsafe(_end, ended, str(error))

    def _take(self, message: Event | Status) -> None:
        if isinstance(message, Status):
            self._take_status(message)
        elif message.id is None:
            self.refused += 1
            _log.warning("the controller could not read a message of ours: %s", message)
        else:
            self._take_event(message.id, message)

    def _take_event(self, request: str, event: Event) -> None:
        last = isinstance(event, (Done, Lost, Refused))
        if request in self._leaving:
            if last:
                self._leaving.discard(request)
            return
        sink = self._sinks.get(request)
        if sink is None:
            self.unknown += 1
            return
        if last:
            del self._sinks[request]
        sink(event)

    def _take_malformed(self, error: Malformed) -> None:
        self.malformed += 1
        _log.warning("a message of the controller: %s", error)
        if isinstance(error, MalformedOf) and error.request in self._sinks:
            sink = self._sinks[error.request]
            self.cancel(error.request)
            sink(Lost(error.request, "malformed", f"the controller said of this request what cannot be read: {error}"))

    def _lose_all(self, code: str, message: str) -> None:
        lost, self._sinks = self._sinks, {}
        self._leaving.clear()
        for request, sink in lost.items():
            sink(Lost(request, code, message))

    def _take_status(self, status: Status) -> None:
        self.status, self._status_at = status, time.monotonic()
        for listener in list(self.listeners):
            listener(status)

    async def _tick(self) -> None:
        """Wakes the waiters regularly, because the state also depends on the clock."""
        while True:
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(_TICK_S)


def _end(ended: asyncio.Future[str], why: str) -> None:
    if not ended.done():
        ended.set_result(why)
