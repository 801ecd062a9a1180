# SPDX-License-Identifier: Apache-2.0
"""tensordict.TensorDict in and out. Only imported when the program uses tensordict itself.

Nested TensorDicts, batch sizes, names of dimensions, devices, non-tensor data and stacks of it,
lazy stacks and registered tensorclasses come out as they went in. What a TensorDict of Tendon has
no word for is written beside its entries, under one reserved name; C++ programs see it as a value.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from tensordict import (LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict,
                        TensorDictBase, is_tensorclass)

from ._tendon import Tensor
from ._tendon import TensorDict as Batch

_MARK = "__tensordict__"
_classes: dict[str, type] = {}


def register(tensorclass: type) -> type:
    """Lets this tensorclass come out of recv(as_=TensorDict) as what went in; a decorator.

    Nothing is looked up by a name that a peer sent but in what was registered here.
    """
    _classes[_name_of(tensorclass)] = tensorclass
    return tensorclass


def is_tensordict(data: Any) -> bool:
    """True for what to_batch takes."""
    return isinstance(data, TensorDictBase) or (
        is_tensorclass(data) and not isinstance(data, (NonTensorData, NonTensorStack)))


def to_batch(data: Any) -> Batch:
    """The same tensors as a tendon.TensorDict, without a copy."""
    packed = _consolidated(data)
    batch = _to_batch(data, "", packed, marked=True)
    return batch._packed_by_tensordict(packed.storage) if packed else batch


def to_plain_batch(data: Any) -> Batch:
    """As to_batch, for files: lazy stacks and tensorclasses become plain TensorDicts."""
    return _to_batch(data, "", None, marked=False)


def _name_of(tensorclass: type) -> str:
    return f"{tensorclass.__module__}.{tensorclass.__qualname__}"


class _Packed:
    """What consolidate() left: one buffer, and where in it each tensor of one level lies."""

    def __init__(self, storage: Tensor, level: dict[str, Any]) -> None:
        self.storage = storage
        self._level = level
        self.leaves = level["leaves"]

    def leaf(self, key: str) -> Tensor:
        dtype, shape, start, *_ = self.leaves[key]
        return self.storage._view(start, dtype, shape)

    def below(self, key: str) -> _Packed | None:
        level = self._level.get(key)
        return _Packed(self.storage, level) if level and "leaves" in level else None


def _consolidated(data: Any) -> _Packed | None:
    """Of a TensorDict whose tensors lie in one buffer, and cannot be replaced by others."""
    if is_tensorclass(data):
        data = data._tensordict
    packed = getattr(data, "_consolidated", None)
    if not (isinstance(packed, dict) and data.is_locked and data.is_consolidated()):
        return None
    storage = packed["storage"]
    if storage.device.type != "cpu" or storage.dtype != torch.uint8:
        return None
    return _Packed(Tensor(storage.numpy()), packed["metadata"])


def _to_batch(data: Any, path: str, packed: _Packed | None, *, marked: bool) -> Batch:
    mark: dict[str, Any] = {}
    if is_tensorclass(data):
        mark["class"] = _name_of(type(data))
        data = data._tensordict  # to_tensordict() would copy
    if data.device is not None:
        mark["device"] = str(data.device)
    entries: dict[str, Any] = {}
    maps: dict[str, Any] = {}  # a dict among the entries would be a nested batch
    batch_size, names = tuple(data.batch_size), data.names
    if isinstance(data, LazyStackedTensorDict):
        mark["stack_dim"] = data.stack_dim
        mark["stack_name"] = names[data.stack_dim] if names else None
        batch_size, names = (), None  # the parts have their own, and may differ in shape
        for index, part in enumerate(data.tensordicts):
            below = packed.below(str(index)) if packed else None
            entries[str(index)] = _to_batch(part, f"{path}/{index}", below, marked=marked)
    else:
        for key, item in data.items():
            inner = f"{path}/{key}".lstrip("/")
            if packed and key in packed.leaves:
                entries[key] = packed.leaf(key)
            elif isinstance(item, torch.Tensor):
                entries[key] = _to_array(item, inner)
            elif is_tensordict(item) and not isinstance(item, NonTensorStack):
                below = packed.below(key) if packed else None
                entries[key] = _to_batch(item, inner, below, marked=marked)
            else:
                value = _to_value(item, inner, mark, key)
                (maps if isinstance(value, dict) else entries)[key] = value
    if mark and marked:
        entries[_MARK] = [mark]
    batch = Batch(entries, batch_size=batch_size, names=names)
    for key, value in maps.items():
        batch._set_value((key,), value)
    return batch


def _to_array(item: torch.Tensor, path: str) -> Any:
    if item.is_nested:
        raise TypeError(f"'{path}' is a jagged tensor; send its values and offsets as two entries, "
                        "torch.nested.to_padded_tensor(it, 0), or a LazyStackedTensorDict")
    try:
        return item.numpy()  # sooner than by DLPack
    except (RuntimeError, TypeError):
        return item  # of a type that NumPy lacks, or refused with its reason


def _to_value(item: Any, path: str, mark: dict[str, Any], key: str) -> Any:
    if isinstance(item, NonTensorData):
        if isinstance(item.data, (type(None), bool, int, float, str, list, dict)):
            return item.data
        raise TypeError(f"'{path}' holds a {type(item.data).__name__}; legal non-tensor data are "
                        "None, bool, int, float, str, lists and dicts of these: nothing is "
                        "pickled")
    if isinstance(item, NonTensorStack):
        mark.setdefault("stacks", {})[key] = item.stack_dim
        return item.tolist()
    return item


def from_batch(batch: Batch) -> Any:
    """A tensordict.TensorDict (or what was registered) on the memory of `batch`."""
    marks = batch.get(_MARK)
    mark = marks[0] if marks else {}
    if "stack_dim" in mark:
        parts = [from_batch(batch[name]) for name in batch if name != _MARK]
        made = LazyStackedTensorDict(*parts, stack_dim=mark["stack_dim"],
                                     stack_dim_name=mark["stack_name"])
    else:
        made = _from_entries(batch, mark)
    if "class" not in mark:
        return made
    if mark["class"] in _classes:
        return _classes[mark["class"]].from_tensordict(made)
    warnings.warn(f"{mark['class']} is not registered here (tendon.tensordict.register), so a "
                  "TensorDict comes in its place", stacklevel=2)
    return made


def _from_entries(batch: Batch, mark: dict[str, Any]) -> TensorDict:
    tensors: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, entry in batch.items():
        if isinstance(entry, Batch):
            tensors[key] = from_batch(entry)
        elif hasattr(entry, "__dlpack__"):
            tensors[key] = torch.from_dlpack(entry)
        elif key != _MARK:
            others[key] = entry
    made = TensorDict(tensors, batch_size=batch.batch_size, names=batch.names,
                      device=mark.get("device"))
    for key, value in others.items():
        if key in mark.get("stacks", {}):
            made.set(key, NonTensorStack.from_list(value))
        else:
            made.set_non_tensor(key, value)
    return made


def store(data: Any, names: tuple[str, ...], value: Any) -> bool:
    """Sets a value that came for recv_into; False where `data` is locked."""
    if names[-1] == _MARK:
        return True  # of the message, not of its content
    if is_tensorclass(data):
        data = data._tensordict
    if data.is_locked:
        return False
    name = names[0]
    if isinstance(data, LazyStackedTensorDict):
        return len(names) > 1 and store(data.tensordicts[int(name)], names[1:], value)
    old = data.get(name, None)
    if len(names) > 1:
        if old is None:
            data.set(name, TensorDict(batch_size=data.batch_size))
        return store(data.get(name), names[1:], value)
    if isinstance(old, NonTensorStack) and isinstance(value, list):
        data.set(name, NonTensorStack.from_list(value))
    else:
        data.set_non_tensor(name, value)
    return True
