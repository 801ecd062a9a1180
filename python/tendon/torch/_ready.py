# SPDX-License-Identifier: Apache-2.0
"""Waits for the first of several futures of one Context."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any

from .._tendon import Context, Future


def first_done(context: Context, futures: Sequence[Future[Any]], timeout: float | None) -> int | None:
    """Returns the index of the first done future in the list; None if none was done in time.

    timeout: seconds, None for ever. No event loop may wait for this Context.
    """
    end = None if timeout is None else time.monotonic() + timeout
    watched: Any = context  # the stub has no _arm
    poller = select.poll()
    poller.register(context.fileno(), select.POLLIN)
    while True:
        watched._arm()  # resets the signal before the look, so that no later one is lost
        for place, future in enumerate(futures):
            if future.done():
                return place
        left_ms = None if end is None else max(0.0, end - time.monotonic()) * 1e3
        if not poller.poll(left_ms) and end is not None and time.monotonic() >= end:
            return None
