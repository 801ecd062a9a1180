# SPDX-License-Identifier: Apache-2.0
"""Makes forked children find this package's locks free, end in order, and explain memory faults."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import weakref

from . import _end, _tendon

# Modules that the package imports at their first use, each with the module that it serves.
_LATER = {
    "tendon._asyncio": "asyncio", "tendon.tensordict": "tensordict", "tendon._convert": "tendon", "tendon._each": "tendon",
    "tendon._group": "tendon", "tendon._pickles": "tendon", "tendon._responder": "tendon", "tendon._store": "tendon",
    "inspect": "inspect", "reprlib": "reprlib", "ast": "ast",
}
_closes_at_end = False
_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def free_lock() -> threading.Lock:
    """Returns a lock that is free in a forked child, whichever thread of the parent holds it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def close_all_at_end() -> None:
    """Called when a Context is made. A child that multiprocessing forked does not run atexit handlers."""
    global _closes_at_end
    process = sys.modules.get("multiprocessing.process")
    if _closes_at_end or process is None or process.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    _closes_at_end = True
    Finalize(None, _end.close_all, exitpriority=-1)  # after those of the program


def _finish_imports() -> None:
    """Imports them before the fork: the child would wait forever for a module that another thread is importing at the
    fork.
    """
    for module, wanted_for in _LATER.items():
        if wanted_for in sys.modules:
            with contextlib.suppress(Exception):  # the call that needs the module reports the reason
                importlib.import_module(module)


def _enter_child() -> None:
    global _closes_at_end
    _closes_at_end = False
    for lock in _locks:
        lock._at_fork_reinit()  # as threading and logging do
    _tendon._explain_memory_faults()


os.register_at_fork(before=_finish_imports, after_in_child=_enter_child)
