# SPDX-License-Identifier: Apache-2.0
"""What `recv(as_=...)` makes of a batch, and what `recv_into(...)` puts where it belongs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from types import ModuleType
from typing import Any

from ._mark import MARK
from ._tendon import TensorDict


def to_dict(batch: TensorDict) -> dict[str, Any]:
    """Nested dicts of the same arrays and values."""
    return {key: to_dict(entry) if isinstance(entry, TensorDict) else entry
            for key, entry in batch.items() if key != MARK}


def to_torch(batch: TensorDict) -> dict[str, Any]:
    """Nested dicts of tensors of torch and values. What may only be read is copied, and counted."""
    from torch import from_dlpack

    return {key: to_torch(entry) if isinstance(entry, TensorDict) else
            from_dlpack(entry) if hasattr(entry, "__dlpack__") else entry
            for key, entry in batch.items() if key != MARK}


class _Placed:
    """A TensorDict of tensordict that says where its tensors are."""

    def __init__(self, device: Any) -> None:
        self.device = device


def conversion(wanted: Any, device: Any) -> Any:
    """For convert(); refuses what it cannot make. The device is the CPU or None."""
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
    """Sets values that came with arrays; (names of the path, value) each. Returns those without a place."""
    return [".".join(names) for names, value in changed if not _store(destination, names, value)]


def _is_place(entry: Any) -> bool:
    """False for values: one that is in the way of others makes room."""
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
        return True  # of the message, not of its content
    if len(names) > 1 and names[0] in place and _is_place(place[names[0]]):
        return _store(place[names[0]], names[1:], value)
    if not isinstance(place, MutableMapping):
        return False
    for name in names[:-1]:
        place[name] = {}
        place = place[name]
    place[names[-1]] = value
    return True
