# SPDX-License-Identifier: Apache-2.0
"""Forked children: they find the locks of this package free, and hear why they die."""

from __future__ import annotations

import os
import threading
import weakref

from . import _tendon

_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def free_lock() -> threading.Lock:
    """A lock that a forked child finds free, whichever thread of its parent holds it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def _enter_child() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # as threading and logging do
    _tendon._explain_memory_faults()


os.register_at_fork(after_in_child=_enter_child)
