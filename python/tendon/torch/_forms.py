# SPDX-License-Identifier: Apache-2.0
"""Tuples and lists of tensors in a batch: they are sent as dicts, with a text that describes the form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import _tendon

# A form is None (unchanged), or one of {"d": {key: form}}, {"t": [form, ...]}, {"l": [form, ...]}.
_SEQUENCES: dict[str, Any] = {"t": tuple, "l": list}


def pack(batch: Any) -> tuple[Any, str]:
    """Returns the batch that Tendon sends, and the form as text."""
    content, form = _packed(batch)
    return content, "" if form is None else json.dumps(form)


def unpack(content: Any, form: Any) -> Any:
    """Restores the batch. Checks both arguments, as they arrive from a peer."""
    if form in ("", None):
        return content
    try:
        return _unpacked(content, json.loads(form))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as why:
        raise _tendon.CorruptData(f"TD-E0304 corrupt data: a batch does not fit its form {form!r:.200}: {why!r}") from why


def _packed(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Mapping):
        parts = {key: _packed(entry) for key, entry in value.items()}
        form = {key: each for key, (_, each) in parts.items() if each is not None}
        return {key: entry for key, (entry, _) in parts.items()}, {"d": form} if form else None
    if isinstance(value, tuple) and type(value) is not tuple:
        raise TypeError(f"a batch has a '{type(value).__qualname__}', which its consumer cannot make; legal are "
                        "dict, list, tuple, tensors, arrays and plain values")
    if type(value) is tuple or type(value) is list and not _is_plain(value):
        entries = [_packed(entry) for entry in value]
        kind = "t" if type(value) is tuple else "l"
        return {str(place): entry for place, (entry, _) in enumerate(entries)}, {kind: [form for _, form in entries]}
    return value, None


def _is_plain(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _unpacked(content: Any, form: Any) -> Any:
    if form is None:
        return content
    (kind, inner), = form.items()
    if kind == "d":
        return {key: _unpacked(entry, inner.get(key)) for key, entry in content.items()}
    if len(content) != len(inner):
        raise ValueError(f"{len(content)} entries and {len(inner)} places")
    return _SEQUENCES[kind](_unpacked(content[str(place)], each) for place, each in enumerate(inner))
