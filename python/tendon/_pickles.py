# SPDX-License-Identifier: Apache-2.0
"""Functions that pickles of batches name. A program makes such pickles for itself: no peer sends them."""

from __future__ import annotations

from typing import Any

from ._tendon import LoadedDict, Tensor, TensorDict


def batch(parts: tuple[Any, Any, list[tuple[str, Any]]]) -> TensorDict:
    return TensorDict._of_parts(parts)


def loaded(parts: tuple[Any, Any, list[tuple[str, Any]]], metadata: dict[str, str]) -> LoadedDict:
    return LoadedDict._of(TensorDict._of_parts(parts), metadata)


def tensor(dtype: str, shape: tuple[int, ...], data: Any) -> Tensor:
    return Tensor(data)._view(0, dtype, shape)
