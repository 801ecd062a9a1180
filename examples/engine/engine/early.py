# SPDX-License-Identifier: Apache-2.0
"""Handles Ctrl-C and similar signals while a program still imports, which takes seconds: nothing has to be ended."""

from __future__ import annotations

import os
import signal
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"engine: ended before it began\n")
    os._exit(128 + number)


for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(_number, _end)
