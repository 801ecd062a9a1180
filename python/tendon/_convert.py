# SPDX-License-Identifier: Apache-2.0
"""What `recv(as_=...)` makes of a batch."""

from __future__ import annotations

from typing import Any

from ._tendon import TensorDict


def to_dict(batch: TensorDict) -> dict[str, Any]:
    """Nested dicts of the same arrays and values."""
    return {key: to_dict(entry) if isinstance(entry, TensorDict) else entry
            for key, entry in batch.items()}


def convert(batch: TensorDict, wanted: Any) -> Any:
    if wanted is TensorDict:
        return batch
    if wanted is dict:
        return to_dict(batch)
    if getattr(wanted, "__module__", "").partition(".")[0] == "tensordict":
        from . import tensordict

        return tensordict.from_batch(batch)
    raise TypeError(f"as_ is {wanted!r}; legal are dict, tendon.TensorDict and "
                    "tensordict.TensorDict")
