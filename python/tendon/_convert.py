# SPDX-License-Identifier: Apache-2.0
"""What `recv(as_=...)` makes of a batch, and what `recv_into(...)` puts where it belongs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import MutableMapping
from typing import Any

from ._tendon import TensorDict


def to_dict(batch: TensorDict) -> dict[str, Any]:
    """Nested dicts of the same arrays and values."""
    return {key: to_dict(entry) if isinstance(entry, TensorDict) else entry
            for key, entry in batch.items()}


def check(wanted: Any) -> None:
    """Refuses what convert() cannot make."""
    foreign = getattr(wanted, "__module__", "").partition(".")[0]
    if wanted is not TensorDict and wanted is not dict and foreign != "tensordict":
        raise TypeError(f"as_ is {wanted!r}; legal are dict, tendon.TensorDict and "
                        "tensordict.TensorDict")


def convert(batch: TensorDict, wanted: Any) -> Any:
    if wanted is TensorDict:
        return batch
    if wanted is dict:
        return to_dict(batch)
    from . import tensordict

    return tensordict.from_batch(batch)


def store(destination: Any, changed: list[tuple[tuple[str, ...], Any]]) -> None:
    """Sets values that came with arrays; (names of the path, value) each."""
    homeless = [".".join(names) for names, value in changed if not _store(destination, names, value)]
    if homeless:
        warnings.warn(f"the values {', '.join(homeless)} came too and are dropped: their place in "
                      f"the {type(destination).__name__} cannot be changed; recv() returns them",
                      stacklevel=2)


def _store(place: Any, names: tuple[str, ...], value: Any) -> bool:
    if isinstance(place, TensorDict):
        place._set_value(names, value)
        return True
    if "tensordict" in sys.modules:
        from . import tensordict

        if tensordict.is_tensordict(place):
            return tensordict.store(place, names, value)
    if len(names) > 1 and names[0] in place:
        return _store(place[names[0]], names[1:], value)
    if not isinstance(place, MutableMapping):
        return False
    for name in names[:-1]:
        place[name] = {}
        place = place[name]
    place[names[-1]] = value
    return True
