# SPDX-License-Identifier: Apache-2.0
"""The warning about a call that blocks an event loop; separate from asyncio, whose import takes long."""

from __future__ import annotations

import sys
import warnings


class BlocksEventLoop(RuntimeWarning):
    """A waiting call was made in a thread whose event loop runs; the warning appears once per process.

    warnings.filterwarnings("ignore", category=tendon.BlocksEventLoop) turns it off.
    """


BlocksEventLoop.__module__ = "tendon"


def warn() -> None:
    # The binding has no frame: the first frame outside the package is the caller's.
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "tendon":
        level, frame = level + 1, frame.f_back
    warnings.warn("a call that may wait was made in a thread whose event loop runs, and the loop stands still until "
                  "it returns; await its asynchronous twin (asend, arecv, aaccept, aconnect, aflush, aclose, "
                  "async_op=True), or make the call by asyncio.to_thread(). This is said once in a process; "
                  "warnings.filterwarnings('ignore', category=tendon.BlocksEventLoop) turns it off",
                  BlocksEventLoop, stacklevel=level)
