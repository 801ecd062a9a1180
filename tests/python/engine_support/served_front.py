# SPDX-License-Identifier: Apache-2.0
"""The front in this process, in an event loop on a thread of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from conftest import eventually
from engine_support.fake_controller import FakeController, status
from engine.front.asked import Model
from engine.front.limits import Limits
from engine.front.serving import Running, running
from engine.tokenizer import Tokenizer

MODEL = Model("tiny", 512)


class ServedFront:
    def __init__(self, controller: str, tokenizer: Tokenizer, limits: Limits) -> None:
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._running: Running | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.Runner(loop_factory=lambda: self._loop).run(
                self._serve(controller, tokenizer, limits)), daemon=True)
        self._thread.start()
        self._started.wait()
        assert self._running is not None
        self.url, self.front, self.link = self._running.url, self._running.front, self._running.link

    async def _serve(self, controller: str, tokenizer: Tokenizer, limits: Limits) -> None:
        try:
            async with running(controller, 0, tokenizer, MODEL, limits) as self._running:
                self._started.set()
                await self._ended.wait()
        finally:
            self._started.set()

    def close(self) -> None:
        """Ends the front; may be repeated."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()


@contextlib.contextmanager
def starting_fronts(tokenizer: Tokenizer) -> Iterator[Callable[..., tuple[ServedFront, FakeController]]]:
    """Starts fronts, each with a controller that replies by `reply` and has a status with those changes."""
    made: list[ServedFront | FakeController] = []

    def begin(reply=None, limits: Limits = Limits(), **changed) -> tuple[ServedFront, FakeController]:
        controller = FakeController(reply)
        controller.status = status(**changed)
        made.append(controller)
        front = ServedFront(controller.address, tokenizer, limits)
        made.append(front)
        assert eventually(lambda: front.link.status is not None)
        return front, controller

    yield begin
    for one in reversed(made):
        one.close()
