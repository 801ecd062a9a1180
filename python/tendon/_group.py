# SPDX-License-Identifier: Apache-2.0
"""The default outputs of collectives."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ._tendon import Tensor


def blocks_like(input: Any, count: int) -> Any:
    """Makes room for the inputs of `count` members, each like `input`."""
    if isinstance(input, (list, tuple)):
        raise TypeError("outputs is left out where input is a list; give a list of one array or "
                        "mapping for each member, or make input a mapping")
    if _is_mapping(input):
        return [like(input) for _ in range(count)]
    return _empty(input, (count, *_array(input).shape))


def like(values: Any) -> Any:
    """Makes arrays of the same dtypes and shapes, nested in the same way; their contents are undefined."""
    if isinstance(values, (list, tuple)):
        return [like(each) for each in values]
    if _is_tensordict(values):
        return values.detach().clone()
    if isinstance(values, Mapping):
        return {name: entry if _is_value(entry) else like(entry)
                for name, entry in values.items()}
    return _empty(values, _array(values).shape)


def _is_tensordict(values: Any) -> bool:
    if "tensordict" not in sys.modules:
        return False
    from . import tensordict

    return tensordict.is_tensordict(values)


def _is_mapping(values: Any) -> bool:
    return isinstance(values, Mapping) or _is_tensordict(values)


def _is_value(entry: Any) -> bool:
    """True for a value that a TensorDict does not take for an array: it is not changed and gets no room."""
    return entry is None or isinstance(entry, (bool, int, float, str, list, tuple))


def _array(values: Any) -> Any:
    return values if hasattr(values, "shape") else Tensor(values)


def _empty(array: Any, shape: tuple[int, ...]) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.empty(shape, dtype=array.dtype)
    return Tensor._empty(shape, Tensor(array).dtype)
