# SPDX-License-Identifier: Apache-2.0
"""Serves many clients: a handler on a thread of its own for each one."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from types import EllipsisType

from ._default import listen
from ._fork import free_lock
from ._tendon import (
    Context,
    ContextClosed,
    Error,
    Forked,
    HandlerFailed,
    Pipe,
    ResourceExhausted,
    Security,
    ServerBusy,
    Timeout,
)

_log = logging.getLogger("tendon")
# The time between two checks whether the server was closed [s].
_POLL_S = 0.1
# The time for handlers to return after their pipes are cancelled [s].
_PATIENCE_S = 2.0


class Server:
    """Serves clients until it is closed; made by serve().

    The handler may be an async function: it runs in an event loop of its own on
    the thread of its client, so a client that keeps it busy delays no other, and
    locks and queues of asyncio cannot be shared between clients. A client beyond
    max_clients gets ServerBusy. A handler that raises ends its pipe: the exception
    is logged, and the client gets HandlerFailed with its text. Use it in a `with` block, or close() it.
    """

    def __init__(self, address: str, handler: Callable[[Pipe], object], *, profile: str = "local",
                 security: Security | None = None, max_clients: int = 64, context: Context | None = None) -> None:
        _check_handler(handler)
        if type(max_clients) is not int or max_clients < 0:
            raise (ValueError if type(max_clients) is int else TypeError)(
                f"max_clients is {max_clients!r}, a '{type(max_clients).__qualname__}'; legal are whole numbers from 0")
        self._listener = listen(address, profile=profile, security=security, context=context)
        self._handler = handler
        self._max_clients = max_clients
        self._closing = threading.Event()
        self._lock = free_lock()
        self._clients: dict[threading.Thread, Pipe] = {}
        self._acceptor = threading.Thread(target=self._accept, name="tendon server", daemon=True)
        try:
            self._acceptor.start()
        except RuntimeError as failure:
            self._listener.close()
            raise ResourceExhausted("TD-E0201 resource exhausted: the system gives no further thread to a server: "
                                    f"{failure}") from failure
        self._process = os.getpid()
        # No thread may wait while the interpreter shuts down.
        atexit.register(self._stop)

    @property
    def address(self) -> str:
        """The address where it listens, with the chosen port."""
        return self._listener.address

    @property
    def client_count(self) -> int:
        """The number of clients being served now."""
        with self._lock:
            return len(self._clients)

    def close(self, timeout: float | None | EllipsisType = ...) -> None:
        """Stops accepting clients and waits for the handlers; Timeout if some still run.

        timeout: seconds, None for ever; 30 by default. In a handler of this server it does not
        wait: the handler still answers its own client.
        """
        if not self._join(30.0 if timeout is ... else _seconds(timeout)):
            raise Timeout(f"TD-E0003 timeout: {self.client_count} handlers still run")
        atexit.unregister(self._stop)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _join(self, timeout: float | None) -> bool:
        """Stops accepting clients; True when every handler has returned."""
        end = None if timeout is None else time.monotonic() + timeout
        self._closing.set()
        self._listener.close()
        with self._lock:
            threads = list(self._clients)
        if threading.current_thread() in threads:
            return True
        self._acceptor.join()
        with self._lock:
            threads = list(self._clients)  # the acceptor may have started one more
        for thread in threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _stop(self) -> None:
        """Called at the end of the interpreter: running handlers find their pipe cancelled."""
        if os.getpid() != self._process:
            return  # a forked child has none of the threads
        with self._lock:
            pipes = list(self._clients.values())
        for pipe in pipes:
            pipe.cancel()
        self._join(_PATIENCE_S)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                pipe = self._listener.accept(_POLL_S)
            except Timeout:
                continue
            except (ContextClosed, Forked):
                return
            except Error:  # for instance, the process has no descriptor left
                _log.exception("%s accepts nobody for now", self._listener)
                self._closing.wait(_POLL_S)
                continue
            if self.client_count >= self._max_clients:
                pipe.cancel(ServerBusy(f"all {self._max_clients} handlers are taken"))
                continue
            thread = threading.Thread(target=self._serve, args=(pipe,), daemon=True)
            with self._lock:
                self._clients[thread] = pipe
            try:
                thread.start()
            except RuntimeError as failure:
                with self._lock:
                    del self._clients[thread]
                pipe.cancel(ServerBusy(f"the server can start no further thread: {failure}"))

    def _serve(self, pipe: Pipe) -> None:
        try:
            returned = self._handler(pipe)
            if isinstance(returned, Awaitable):
                import asyncio

                asyncio.run(_wait(returned))
            with pipe:
                pass  # closes it, unless the handler has
        except BaseException as failure:  # CancelledError and SystemExit also end only the handler
            _log.exception("the handler of %s failed", pipe)
            pipe.cancel(HandlerFailed(f"{failure!r}"))
        finally:
            with self._lock:
                del self._clients[threading.current_thread()]


def _seconds(timeout: float | None) -> float | None:
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0):
        raise (ValueError if type(timeout) in (int, float) else TypeError)(
            f"timeout is {timeout!r}, a '{type(timeout).__qualname__}'; legal are seconds as an int or a float from 0, or "
            "None to wait for ever")
    return timeout


def _check_handler(handler: Callable[[Pipe], object]) -> None:
    """Refuses a handler that can never run here, not at each client."""
    import inspect  # not at the top: it would slow down the import of tendon

    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise TypeError(f"the handler {handler!r} is a generator, which would never run; legal "
                        "is a function or an async function, without yield")
    if not callable(handler):
        raise TypeError(f"the handler is {handler!r}; legal is a function of one argument, the pipe")


async def _wait(returned: Awaitable[object]) -> None:
    await returned


def serve(address: str, handler: Callable[[Pipe], object], *, profile: str = "local",
          security: Security | None = None, max_clients: int = 64, context: Context | None = None) -> Server:
    """Listens at an address and calls `handler(pipe)` for each client, on a thread of its own.

    handler: a function or an async function.
    """
    return Server(address, handler, profile=profile, security=security, max_clients=max_clients, context=context)
