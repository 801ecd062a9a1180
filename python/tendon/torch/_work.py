# SPDX-License-Identifier: Apache-2.0
"""Works of the Python backend, and the threads that complete their futures."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .. import _tendon
from ._errors import as_of_torch


class PythonWork(dist.Work):
    """Operations that were started together, and the tensors that they use.

    torch gives programs a Work of its own, in C++, which asks this one only for wait() and get_future(). So
    is_completed(), exception() and result() cannot be answered here.
    """

    def __init__(self, operations: Sequence[_tendon.Future], tensors: Any,
                 timeout_s: float | None = None, is_receive: bool = False) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        self._left = list(operations)
        self._tensors = tensors
        self.is_receive = is_receive
        self._error: dist.DistBackendError | None = None
        # Held by the thread that waits, as each result can be taken only once.
        self._lock = threading.Lock()
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        limit = timeout.total_seconds() or None
        began = time.monotonic()
        if not self._lock.acquire(timeout=-1 if limit is None else limit):
            raise _not_done(timeout)
        try:
            while self._left and self._error is None:
                self._take(limit if limit is None else max(0, began + limit - time.monotonic()),
                           timeout)
        finally:
            self._lock.release()
        if self._error is not None:
            raise self._error
        return True

    def over(self) -> bool:
        """True if it is done; does not wait. False also while another thread waits for it."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._error is not None or all(one.done() for one in self._left)
        finally:
            self._lock.release()

    def give_up(self) -> None:
        """Ends a receive that has no message yet with an error."""
        for one in self._left:
            one.cancel()

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns the future. A failure is an error of the future, as torch's C++ would take a value for a tensor."""
        if self._future is None:
            ended: torch.futures.Future[Any] = torch.futures.Future()
            self._future = ended.then(self._outcome)
            threading.Thread(target=self._complete, args=(ended,), daemon=True,
                             name="tendon-future").start()
        return self._future

    def _take(self, limit: float | None, given: timedelta) -> None:
        """Takes the result of the next operation, which ends at its own timeout."""
        try:
            with as_of_torch(self._timeout_s):
                if limit is None:
                    self._left[0].result()
                else:
                    try:
                        self._left[0].result(limit)
                    except _tendon.Timeout as error:
                        if not self._left[0].done():
                            raise _not_done(given) from error
                        raise
                del self._left[0]
        except dist.DistBackendError as error:
            if not isinstance(error, _NotDone):
                self._error = error
                self._left.clear()
            raise
        except BaseException:
            # Ctrl-C: the operation ends for all members, as it cannot be restarted.
            self.give_up()
            raise

    def _complete(self, ended: torch.futures.Future[Any]) -> None:
        try:
            self.wait()
        except dist.DistBackendError:
            pass  # _outcome raises it
        ended.set_result(None)

    def _outcome(self, _: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._tensors


class _NotDone(dist.DistBackendError):
    """The Work continues."""


def _not_done(timeout: timedelta) -> _NotDone:
    return _NotDone(f"the operation is not over after the {timeout.total_seconds():g} s of wait(); "
                    "it goes on, wait again")
