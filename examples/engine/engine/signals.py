# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP, of a program that has something to end: the first ends it, the second at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """Ctrl-C, SIGTERM, or a terminal that was closed."""


class Signals:
    """The main thread's. Until ends() is called the first signal raises Ended; those after it call `hurry`."""

    def __init__(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry
        self._held = self._ending = False
        self.number: int | None = None  # of the first
        self.hurried = False
        self.is_ready = False  # the program's word, that it had begun
        for one in _SIGNALS:
            signal.signal(one, self._on_signal)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The block runs to its end: Ended is raised there."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if self.number is not None and not self._ending:
                self._ending = True
                raise Ended

    def ends(self) -> None:
        """Nothing is raised from here on."""
        self._ending = True

    def close(self) -> None:
        """All is ended: signals change nothing any more, the exit code included."""
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ending:
            self.hurried = True
            self._hurry()
            return
        self.number = number
        if not self._held:
            self._ending = True
            raise Ended
