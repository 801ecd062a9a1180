# SPDX-License-Identifier: Apache-2.0
"""The Context behind the module's functions."""

from __future__ import annotations

import atexit
import os
from collections.abc import Coroutine
from types import EllipsisType
from typing import Any

from ._fork import free_lock
from ._tendon import Context, Listener, Pipe, Security

_lock = free_lock()
_context: Context | None = None


def default_context() -> Context:
    """The Context that connect, listen and serve use by default.

    Made at the first call; a forked child makes its own. In the child, objects of the
    parent's default Context raise Forked.
    """
    global _context
    with _lock:
        if _context is None:
            _context = Context()
        return _context


def _given(context: Context | None) -> Context:
    if context is None:
        return default_context()
    if not isinstance(context, Context):
        raise TypeError(f"context is {context!r}, a '{type(context).__qualname__}'; legal are a tendon.Context and None "
                        "(that of the module)")
    return context


def connect(address: str, timeout: float | None | EllipsisType = ..., *, profile: str = "local",
            security: Security | None = None, wait: bool = True, context: Context | None = None) -> Pipe:
    """Connects to a listener: Context.connect of `context`, or of the default one.

    timeout: seconds; None: for ever; left out: as the context says.
    """
    return _given(context).connect(address, timeout, profile, security=security, wait=wait)


def aconnect(address: str, timeout: float | None | EllipsisType = ..., *, profile: str = "local",
             security: Security | None = None, wait: bool = True, context: Context | None = None) -> Coroutine[Any, Any, Pipe]:
    """`pipe = await tendon.aconnect(address)`: Context.aconnect of `context`, or of the default one.

    timeout: seconds; None: for ever; left out: as the context says.
    """
    return _given(context).aconnect(address, timeout, profile, security=security, wait=wait)


def listen(address: str, *, profile: str = "local", security: Security | None = None,
           context: Context | None = None) -> Listener:
    """Listens at an address: Context.listen of `context`, or of the default one."""
    return _given(context).listen(address, profile, security=security)


@atexit.register
def _forget() -> None:
    global _context
    _context = None


os.register_at_fork(after_in_child=_forget)
