# SPDX-License-Identifier: Apache-2.0
"""Futures in an event loop: the descriptor of a Context, or of its events, tells when to look at them."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ._fork import free_lock
from ._tendon import Cancelled, EndOfStream, Future, Pipe, PipeClosed, ResourceExhausted, Timeout

T = TypeVar("T")
# The time between two checks whether a call was cancelled [s].
_SLICE_S = 0.05


class _Watched(Protocol):
    def fileno(self) -> int: ...
    def _arm(self) -> object: ...


class _Watch:
    """The descriptor on which all event loops of a process wait for one Context, or one queue of events.

    All loops share the descriptor, so the loop that wakes up looks at every future and tells the
    loop that each future belongs to.
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
        # It may have been done before the watch began.
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
        """Ends the receives of closed loops, so that the next receive gets their messages."""
        with self._lock:
            gone = [each for each in self._waiting.values() if each[1].get_loop().is_closed()]
            for future, waiter in gone:
                self._forget(future, waiter)
        for future, _ in gone:
            future._give_back()

    def _look(self) -> None:
        watched = self._watched()
        if watched is not None:
            watched._arm()  # resets the signal first, so that no later one is lost
        with self._lock:
            done = [waiter for future, waiter in self._waiting.values() if future.done()]
        for waiter in done:
            try:
                waiter.get_loop().call_soon_threadsafe(_finish, waiter)
            except RuntimeError:  # its loop was closed; the other loops must still be told
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
    """Ends receives of closed loops, so that they do not delay a thread that is about to wait."""
    with _watches_lock:
        watches = list(_watches.values())
    for watch in watches:
        watch.drop_closed()


async def wait(future: Future) -> Any:
    """Returns the result of a future; the event loop runs meanwhile."""
    try:
        in_time = future.done() or await _until_done(future)
    except BaseException:
        # Cancelled or closed: the message returns to its stream, so that the next receive gets it.
        future._give_back()
        raise
    try:
        return future.result(0)
    except Cancelled:
        if in_time:
            raise
        raise future._late() from None
    except EndOfStream:
        if future._ends_iteration:
            raise StopAsyncIteration from None
        raise


async def _until_done(future: Future) -> bool:
    """False if the time is over; the future was then ended, unless it finished just in time."""
    watch = _watch_of(future._watched)
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    seconds = future._timeout
    # asyncio.wait_for is not used: in Python 3.11 it swallows a cancellation that arrives with the result.
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


# A Future acts as a coroutine for create_task() and similar functions. Its operation already runs, so an end of the
# coroutine before its first step withdraws the operation too.


def send(future: Future, value: Any) -> Any:
    if future._driver is None:
        future._driver = wait(future)
    return future._driver.send(value)


def throw(future: Future, *exception: Any) -> Any:
    if future._driver is None:
        future._give_back()
        future._driver = wait(future)
    return future._driver.throw(*exception)


def close(future: Future) -> None:
    if future._driver is None:
        future._give_back()
    else:
        future._driver.close()


async def beside(call: Callable[[], T], stop: Callable[[], object]) -> T:
    """Returns the outcome of a waiting call on a thread of its own; a cancellation tells the call to stop."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], what: Any) -> None:
        if not outcome.done():
            set_outcome(what)

    def run() -> None:
        try:
            settling = (outcome.set_result, call())
        except BaseException as failure:
            settling = (outcome.set_exception, failure)
        try:
            loop.call_soon_threadsafe(settle, *settling)
        except RuntimeError:  # the loop was closed: no task waits any more
            pass

    try:
        threading.Thread(target=run, name="tendon call", daemon=True).start()
    except RuntimeError as failure:
        raise ResourceExhausted("TD-E0201 resource exhausted: the system gives no further thread to a call: "
                                f"{failure}") from failure
    try:
        return await outcome
    except BaseException:  # also when its loop ends
        stop()
        raise


async def in_slices(call: Callable[[float], None], seconds: float | None) -> None:
    """Repeats a call with short timeouts until it succeeds; ends soon after a cancellation."""
    try:
        return call(0)
    except Timeout:
        if seconds == 0:
            raise
    stopped = threading.Event()
    end = None if seconds is None else time.monotonic() + seconds

    def run() -> None:
        while True:
            left = _SLICE_S if end is None else max(0.0, end - time.monotonic())
            try:
                return call(min(left, _SLICE_S))
            except Timeout:
                if left <= _SLICE_S and end is not None or stopped.is_set():
                    raise

    await beside(run, stopped.set)


async def enter(entered: T) -> T:
    """Begins `async with pipe`."""
    return entered


async def leave_at_once(entered: Any) -> None:
    """Ends an `async with` for an object that closes without a wait."""
    entered.close()


async def leave(pipe: Pipe, *exception: object) -> None:
    """Ends `async with pipe`: closes it in order, or cancels it if an exception leaves the block."""
    if exception[0] is not None:
        pipe.__exit__(*exception)  # does not wait
        return
    try:
        await pipe.aclose()
    except PipeClosed:
        pass
