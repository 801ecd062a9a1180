# SPDX-License-Identifier: Apache-2.0
"""Which half serves: the extension that is compiled against torch, or the one in Python."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .. import _tendon

GAPS = (
    "is_completed() of a Work is always False",
    "recv(src=None) is refused, because torch would not hear whose message it was",
    "exception() and result() of a Work are torch's defaults",
    "the profiler sees no `tendon:` events",
)


def backend(group: _tendon.Group, rank: int, size: int, timeout: timedelta, name: str,
            global_ranks: Sequence[int]) -> Any:
    _warn_once()
    from ._backend import PythonBackend

    return PythonBackend(group, rank, size, timeout, name, global_ranks)


@functools.cache
def _warn_once() -> None:
    warnings.warn("the backend 'tendon' runs without its extension: `python -m tendon.torch build` "
                  "compiles it against this torch. Until then it is slower, and: " + "; ".join(GAPS)
                  + ".", RuntimeWarning, stacklevel=2)
