# SPDX-License-Identifier: Apache-2.0
"""Futures in an event loop: the descriptor of a Context, or of its events, says when to look."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, Protocol

from ._fork import free_lock
from ._tendon import Cancelled, EndOfStream, Future, Pipe, PipeClosed, Timeout


class _Watched(Protocol):
    def fileno(self) -> int: ...
    def _arm(self) -> object: ...


class _Watch:
    """What all event loops of a process wait for from one Context, or from one queue of events.

    The descriptor is one for all of them, so the loop that is woken by it looks at every future and
    tells the loop that it belongs to.
    """

    def __init__(self, watched: _Watched) -> None:
        self._watched = weakref.ref(watched)
        self._fd = watched.fileno()
        self._lock = free_lock()
        self._waiting: dict[int, tuple[Future, asyncio.Future]] = {}
        self._loops: dict[asyncio.AbstractEventLoop, int] = {}

    def add(self, future: Future, waiter: asyncio.Future) -> None:
        self.drop_closed()
        loop = waiter.get_loop()
        with self._lock:
            self._waiting[id(future)] = (future, waiter)
            self._loops[loop] = self._loops.get(loop, 0) + 1
            if self._loops[loop] == 1:
                loop.add_reader(self._fd, self._look)
        # It may have been done before anybody watched.
        if future.done():
            self._look()

    def remove(self, future: Future, waiter: asyncio.Future) -> None:
        with self._lock:
            self._forget(future, waiter)

    def _forget(self, future: Future, waiter: asyncio.Future) -> None:
        loop = waiter.get_loop()
        if self._waiting.pop(id(future), None) is None:
            return  # its loop was closed
        self._loops[loop] -= 1
        if self._loops[loop] == 0:
            del self._loops[loop]
            if not loop.is_closed():
                loop.remove_reader(self._fd)

    def drop_closed(self) -> None:
        """Nobody takes what comes for a loop that was closed, so the next receive gets it."""
        with self._lock:
            gone = [each for each in self._waiting.values() if each[1].get_loop().is_closed()]
            for future, waiter in gone:
                self._forget(future, waiter)
        for future, _ in gone:
            future._give_back()

    def _look(self) -> None:
        watched = self._watched()
        if watched is not None:
            watched._arm()  # takes back the signal first, so that none is lost after the look
        with self._lock:
            done = [waiter for future, waiter in self._waiting.values() if future.done()]
        for waiter in done:
            try:
                waiter.get_loop().call_soon_threadsafe(_finish, waiter)
            except RuntimeError:  # its loop was closed, which is no reason to tell the others nothing
                pass
        self.drop_closed()


def _finish(waiter: asyncio.Future) -> None:
    if not waiter.done():
        waiter.set_result(None)


_watches: weakref.WeakKeyDictionary[_Watched, _Watch] = weakref.WeakKeyDictionary()
_watches_lock = free_lock()


def _watch_of(watched: _Watched) -> _Watch:
    with _watches_lock:
        if watched not in _watches:
            _watches[watched] = _Watch(watched)
        return _watches[watched]


def drop_closed() -> None:
    """Before a thread waits long: receives of loops that were closed are in its way no longer."""
    with _watches_lock:
        watches = list(_watches.values())
    for watch in watches:
        watch.drop_closed()


async def wait(future: Future) -> Any:
    """The result of a future; the event loop goes on meanwhile."""
    try:
        in_time = future.done() or await _until_done(future)
    except BaseException:
        # Cancelled or closed: nobody takes what came, so the next receive gets it.
        future._give_back()
        raise
    try:
        return future.result(0)
    except Cancelled as cancelled:
        if in_time:
            raise
        raise Timeout("TD-E0003 timeout: " + cancelled.detail) from None
    except EndOfStream:
        if future._ends_iteration:
            raise StopAsyncIteration from None
        raise


async def _until_done(future: Future) -> bool:
    """False: its time is over. It was ended, unless it was just in time."""
    watch = _watch_of(future._watched)
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    seconds = future._timeout
    # No asyncio.wait_for: that of Python 3.11 swallows a cancellation that comes with the result.
    timer = None if seconds is None else loop.call_later(seconds, _finish, waiter)
    watch.add(future, waiter)
    try:
        await waiter
    finally:
        watch.remove(future, waiter)
        if timer is not None:
            timer.cancel()
    if future.done():
        return True
    future._expire()
    return False


async def _in_thread(call: Any) -> None:
    await asyncio.get_running_loop().run_in_executor(None, call)


async def enter(pipe: Pipe) -> Pipe:
    """`async with pipe`."""
    return pipe


async def leave(pipe: Pipe, *exception: object) -> None:
    """The end of `async with pipe`: closed in order, or cancelled when an exception leaves it."""
    if exception[0] is not None:
        pipe.__exit__(*exception)  # does not wait
        return
    try:
        await _in_thread(pipe.close)
    except PipeClosed:
        pass
