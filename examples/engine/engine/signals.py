# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP for a program that has to clean up: the first one ends it in order, the second at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """Ctrl-C, SIGTERM, or a terminal that was closed."""


class Signals:
    """Used by the main thread. Before ends() is called the first signal raises Ended; later ones call `hurry`."""

    def __init__(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry
        self._held = self._ending = False
        self.number: int | None = None  # of the first
        self.hurried = False
        self.is_ready = False  # set by the program: it has started
        for one in _SIGNALS:
            signal.signal(one, self._on_signal)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lets the block run to its end; Ended is raised there."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
            if self.number is not None and not self._ending:
                self._ending = True
                raise Ended

    def ends(self) -> None:
        """Stops raising Ended."""
        self._ending = True

    def close(self) -> None:
        """Everything has ended: signals have no effect from here on, also on the exit code."""
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
