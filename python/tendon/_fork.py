# SPDX-License-Identifier: Apache-2.0
"""Forked children: they find the locks of this package free, end in order, and hear why they die."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import weakref

from . import _end, _tendon

# Modules that the package imports when it first needs them, each behind the one that it is for.
_LATER = {
    "tendon._asyncio": "asyncio", "tendon.tensordict": "tensordict", "tendon._convert": "tendon", "tendon._each": "tendon",
    "tendon._group": "tendon", "tendon._pickles": "tendon", "tendon._responder": "tendon", "tendon._store": "tendon",
    "inspect": "inspect", "reprlib": "reprlib", "ast": "ast",
}
_closes_at_end = False
_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def free_lock() -> threading.Lock:
    """A lock that a forked child finds free, whichever thread of its parent holds it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def close_all_at_end() -> None:
    """A Context was made. A child that multiprocessing forked ends without what atexit has."""
    global _closes_at_end
    process = sys.modules.get("multiprocessing.process")
    if _closes_at_end or process is None or process.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    _closes_at_end = True
    Finalize(None, _end.close_all, exitpriority=-1)  # behind those of the program


def _finish_imports() -> None:
    """A module that another thread is importing at the fork would never be whole in the child, which would wait for it."""
    for module, wanted_for in _LATER.items():
        if wanted_for in sys.modules:
            with contextlib.suppress(Exception):  # the call that needs it says why
                importlib.import_module(module)


def _enter_child() -> None:
    global _closes_at_end
    _closes_at_end = False
    for lock in _locks:
        lock._at_fork_reinit()  # as threading and logging do
    _tendon._explain_memory_faults()


os.register_at_fork(before=_finish_imports, after_in_child=_enter_child)
