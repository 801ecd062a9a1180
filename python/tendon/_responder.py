# SPDX-License-Identifier: Apache-2.0
"""The Python threads that run a responder's handler."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ._fork import free_lock
from ._tendon import Request, ResourceExhausted

_log = logging.getLogger("tendon")
# The time for handlers at the end of the interpreter [s].
_PATIENCE_S = 2.0


class _Task(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(self, *exception: object) -> None: ...
    @property
    def request(self) -> Request: ...
    def answer(self, data: Any) -> None: ...
    def fail(self, failure: BaseException) -> None: ...


class _Tasks(Protocol):
    @property
    def idle_count(self) -> int: ...
    def next(self) -> _Task | None: ...
    def close(self) -> None: ...


Handler = Callable[[Request], object]


def check(handler: Handler) -> None:
    """Raises TypeError unless it is a handler."""
    import inspect  # not at the top: it would slow down the import of tendon

    if not callable(handler):
        raise TypeError(f"the handler is a {type(handler).__qualname__}; legal is a function or an "
                        "async function of a request")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"the handler {handler!r} is a generator, which would never run; legal is a "
                        "function or an async function, without yield")


def start(tasks: _Tasks, handler: Handler, key: str, most: int) -> None:
    """Runs the handler for each task, until the tasks are closed."""
    _Threads(tasks, handler, key, most).start_one()


class _Threads:
    """Up to `most` threads; one waits for a task while fewer run."""

    def __init__(self, tasks: _Tasks, handler: Handler, key: str, most: int) -> None:
        self._tasks = tasks
        self._handler = handler
        self._key = key
        self._most = most
        self._lock = free_lock()
        self._threads: set[threading.Thread] = set()
        self._process = os.getpid()
        # No thread may wait while the interpreter shuts down.
        atexit.register(self._stop)

    def start_one(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"tendon responder {self._key}", daemon=True)
        with self._lock:
            if len(self._threads) >= self._most:
                return
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as failure:
            self._forget(thread)
            if not self._threads:
                raise ResourceExhausted("TD-E0201 resource exhausted: the system gives no further thread to the "
                                        f"responder of {self._key}: {failure}") from failure
            _log.exception("no further thread for %s", self._key)

    def _serve(self) -> None:
        try:
            while (task := self._tasks.next()) is not None:
                if self._tasks.idle_count == 0:
                    self.start_one()
                self._run(task)
                del task  # it holds memory of its caller
        finally:
            self._forget(threading.current_thread())

    def _run(self, task: _Task) -> None:
        try:
            with task:  # a handler that ends the responder does not wait for itself
                answer = self._handler(task.request)
                if isinstance(answer, Awaitable):
                    import asyncio

                    answer = asyncio.run(_wait(answer))
            task.answer(answer)
        except BaseException as failure:  # CancelledError and SystemExit also end only the handler
            _log.exception("the handler of %s failed", self._key)
            task.fail(failure)

    def _forget(self, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.discard(thread)
            if not self._threads:
                atexit.unregister(self._stop)

    def _stop(self) -> None:
        """Called at the end of the interpreter."""
        if os.getpid() != self._process:
            return  # a forked child has none of the threads
        self._tasks.close()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_PATIENCE_S)


async def _wait(returned: Awaitable[object]) -> object:
    return await returned
