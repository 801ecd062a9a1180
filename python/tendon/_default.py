# SPDX-License-Identifier: Apache-2.0
"""The Context behind the functions of the module."""

from __future__ import annotations

import atexit
import os
from types import EllipsisType

from ._fork import free_lock
from ._tendon import Context, Listener, Pipe

_lock = free_lock()
_context: Context | None = None


def default_context() -> Context:
    """The Context that connect, listen and serve use when they are given none.

    Made at the first call; a forked child makes its own. What the parent made with
    its own one raises Forked there.
    """
    global _context
    with _lock:
        if _context is None:
            _context = Context()
        return _context


def connect(address: str, timeout: float | None | EllipsisType = ..., *, profile: str = "local",
            wait: bool = True, context: Context | None = None) -> Pipe:
    """Connects to a listener: Context.connect of `context`, or of the default one."""
    return (context or default_context()).connect(address, timeout, profile, wait=wait)


def listen(address: str, *, profile: str = "local", context: Context | None = None) -> Listener:
    """Listens at an address: Context.listen of `context`, or of the default one."""
    return (context or default_context()).listen(address, profile)


@atexit.register
def _forget() -> None:
    global _context
    _context = None


os.register_at_fork(after_in_child=_forget)
