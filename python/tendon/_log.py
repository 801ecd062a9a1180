# SPDX-License-Identifier: Apache-2.0
"""The Python thread that calls the log callback."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable

from . import _tendon
from ._fork import free_lock
from ._tendon import LogLine

_log = logging.getLogger("tendon")
# The longest wait for pending lines when the callback is replaced or the interpreter ends [s].
_PATIENCE_S = 2.0


class _Pump:
    """A callback, the lines that wait for it, and the thread that calls it."""

    def __init__(self, callback: Callable[[LogLine], object], level: str) -> None:
        self._callback = callback
        self.level = level
        self._lines = _tendon._LogQueue(level)
        self._thread = threading.Thread(target=self._run, name="tendon log", daemon=True)

    def start(self) -> None:
        self._thread.start()
        _tendon._log_to(self._lines)

    def end(self) -> None:
        """Delivers waiting lines to the callback first; its own thread does not wait."""
        self._lines.finish()
        if threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE_S)

    def in_child(self) -> _Pump | None:
        """Returns its replacement in a forked child; None if the child cannot start a thread."""
        fresh = _Pump(self._callback, self.level)
        try:
            fresh.start()
        except RuntimeError:
            _tendon._log_to_stderr(self.level)
            return None
        return fresh

    def _run(self) -> None:
        while (line := self._lines.next()) is not None:
            try:
                self._callback(line)
            except BaseException:  # SystemExit must not end the thread either
                _log.exception("the callback of tendon.set_log_callback failed")


_lock = free_lock()
_pump: _Pump | None = None


def set_log_callback(callback: Callable[[LogLine], object] | None, level: str = "warn") -> None:
    """Sends what the library logs at `level` or above to `callback(line)`, a LogLine.

    level: 'error', 'warn', 'info' or 'debug'. A thread of its own calls it, so it
    may take its time: 1024 lines wait, and a line says how many there were beyond.
    Its exceptions are logged by logging.getLogger('tendon'). A forked child calls it
    for its own lines.

    None brings back the default, lines on descriptor 2 as it is now: a program that has
    redirected descriptor 2 calls this again. The former callback gets the waiting lines
    first, for at most 2 s; a call in the callback itself does not wait.
    """
    global _pump
    if callback is not None and not callable(callback):
        raise TypeError(f"the callback is a {type(callback).__qualname__}; legal are a function of "
                        "a line, and None")
    fresh = None if callback is None else _Pump(callback, level)
    with _lock:
        if fresh is None:
            _tendon._log_to_stderr(level)
        else:
            fresh.start()
        former, _pump = _pump, fresh
    if former is not None:
        former.end()


def _enter_child() -> None:
    global _pump
    if _pump is not None:
        _pump = _pump.in_child()


# This module is imported before those that log at the interpreter's end, so this function runs after them.
@atexit.register
def _stop() -> None:
    if _pump is not None:
        set_log_callback(None, _pump.level)


os.register_at_fork(after_in_child=_enter_child)
