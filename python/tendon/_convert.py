# SPDX-License-Identifier: Apache-2.0
"""Converts batches for `recv(as_=...)`, and stores the values that `recv_into(...)` received."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from types import ModuleType
from typing import Any

from ._mark import MARK
from ._tendon import TensorDict


def to_dict(batch: TensorDict) -> dict[str, Any]:
    """Makes nested dicts of the same arrays and values."""
    return {key: to_dict(entry) if isinstance(entry, TensorDict) else entry
            for key, entry in batch.items() if key != MARK}


def to_torch(batch: TensorDict) -> dict[str, Any]:
    """Makes nested dicts of torch tensors and values. Read-only memory is copied, and the copy is counted."""
    from torch import from_dlpack

    return {key: to_torch(entry) if isinstance(entry, TensorDict) else
            from_dlpack(entry) if hasattr(entry, "__dlpack__") else entry
            for key, entry in batch.items() if key != MARK}


class _Placed:
    """Asks for a tensordict.TensorDict on a device."""

    def __init__(self, device: Any) -> None:
        self.device = device


def conversion(wanted: Any, device: Any) -> Any:
    """Returns the conversion for convert(); refuses an illegal one. The device is the CPU or None."""
    if wanted is dict or wanted is TensorDict or _is_torch(wanted):
        return wanted
    if getattr(wanted, "__module__", "").partition(".")[0] != "tensordict":
        raise TypeError(f"as_ is {wanted!r}; legal are dict, tendon.TensorDict, torch (the module) "
                        "and tensordict.TensorDict")
    return wanted if device is None else _Placed(device)


def _is_torch(wanted: Any) -> bool:
    return isinstance(wanted, ModuleType) and wanted.__name__ == "torch"


def convert(batch: TensorDict, wanted: Any) -> Any:
    if wanted is TensorDict:
        return batch
    if wanted is dict:
        return to_dict(batch)
    if _is_torch(wanted):
        return to_torch(batch)
    from . import tensordict

    return tensordict.from_batch(batch, wanted.device if isinstance(wanted, _Placed) else None)


def store(destination: Any, changed: list[tuple[tuple[str, ...], Any]]) -> list[str]:
    """Stores values that arrived beside arrays, each as (names of the path, value). Returns those without a place."""
    return [".".join(names) for names, value in changed if not _store(destination, names, value)]


def _is_place(entry: Any) -> bool:
    """False for a value: it is replaced if another one needs its place."""
    if isinstance(entry, Mapping) or "tensordict" not in sys.modules:
        return isinstance(entry, Mapping)
    from . import tensordict

    return tensordict.is_tensordict(entry)


def _store(place: Any, names: tuple[str, ...], value: Any) -> bool:
    if isinstance(place, TensorDict):
        place._set_value(names, value)
        return True
    if "tensordict" in sys.modules:
        from . import tensordict

        if tensordict.is_tensordict(place):
            return tensordict.store(place, names, value)
    if names[-1] == MARK:
        return True  # belongs to the message, not to its content
    if len(names) > 1 and names[0] in place and _is_place(place[names[0]]):
        return _store(place[names[0]], names[1:], value)
    if not isinstance(place, MutableMapping):
        return False
    for name in names[:-1]:
        place[name] = {}
        place = place[name]
    place[names[-1]] = value
    return True
