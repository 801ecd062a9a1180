# SPDX-License-Identifier: Apache-2.0
"""The calls of Group.join on a store: a torch Store, or any object with the same methods."""

from __future__ import annotations

import datetime
import time
from typing import Any

# The time between two looks at signals.
_SLICE = datetime.timedelta(milliseconds=50)
_MOST_PREFIXES = 8


def set_text(store: Any, key: str, value: str) -> None:
    store.set(key, value)


def get_text(store: Any, key: str) -> str | None:
    """Returns the text of a key, or None while it is not set."""
    if hasattr(store, "check"):
        if not store.check([key]):
            return None
    elif hasattr(store, "wait"):
        began = time.monotonic()
        try:
            store.wait([key], _SLICE)
        except Exception:
            # Stores have no common error for a timeout; an error that is raised at once is a different one.
            if time.monotonic() - began < _SLICE.total_seconds() / 2:
                raise
            return None
    value = store.get(key)
    return value if value is None or isinstance(value, str) else bytes(value).decode()


def host_of(store: Any) -> str:
    """Returns the host of a torch TCPStore, also behind prefixes, as addresses are written; else ''."""
    for _ in range(_MOST_PREFIXES):
        inner = getattr(store, "underlying_store", None)
        if inner is None:
            break
        store = inner
    host = getattr(store, "host", "")
    if not isinstance(host, str):
        return ""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
