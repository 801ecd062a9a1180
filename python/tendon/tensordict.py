# SPDX-License-Identifier: Apache-2.0
"""tensordict.TensorDict in and out. Imported only when the program uses tensordict itself.

Nested TensorDicts, batch sizes, names of dimensions, devices, lock states, non-tensor data and
stacks of it, lazy stacks and registered tensorclasses arrive as they were sent. Attributes that a
TensorDict of Tendon cannot express are written beside its entries, under one reserved name; C++
programs see them as a value.

TensorDictPipe and TensorDictServer replace tensordict's own: td.send(pipe),
await td.arecv(pipe). With TensorDictGroup tensordict's sends and receives run in a tendon.Group;
isend, all_reduce, scatter and similar functions here are its other verbs, with the TensorDict first.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from tensordict import (LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict,
                        TensorDictBase, is_tensorclass)

from . import _mark
from ._mark import MARK
from ._tendon import Tensor
from ._tendon import TensorDict as Batch
from ._tendon import _BatchLevel as Level
from ._tensordict_pipe import TensorDictPipe as TensorDictPipe
from ._tensordict_pipe import TensorDictServer as TensorDictServer
from ._tensordict_verbs import TensorDictGroup as TensorDictGroup
from ._tensordict_verbs import all_gather as all_gather
from ._tensordict_verbs import all_reduce as all_reduce
from ._tensordict_verbs import broadcast as broadcast
from ._tensordict_verbs import from_remote_init as from_remote_init
from ._tensordict_verbs import gather_and_stack as gather_and_stack
from ._tensordict_verbs import init_remote as init_remote
from ._tensordict_verbs import irecv as irecv
from ._tensordict_verbs import isend as isend
from ._tensordict_verbs import reduce as reduce
from ._tensordict_verbs import scatter as scatter

_classes: dict[str, type] = {}
# The argument of Batch._of_levels: batch size, names of dimensions, entries (also such levels), values.
_Given = tuple[Any, Any, dict[str, Any], dict[str, Any]]


def register(tensorclass: type) -> type:
    """Makes recv(as_=TensorDict) return this tensorclass as it was sent; a decorator.

    A name from a peer is looked up only among the registered classes.
    """
    _classes[_name_of(tensorclass)] = tensorclass
    return tensorclass


def _sample() -> TensorDict:
    """Makes a small TensorDict for an early first conversion; on the CPU whatever torch's default."""
    tensor = torch.zeros(1, dtype=torch.float32, device="cpu")
    return TensorDict({"tensor": tensor, "below": {"tensor": tensor}})


def is_tensordict(data: Any) -> bool:
    """True for the objects that to_batch accepts."""
    return isinstance(data, TensorDictBase) or (
        is_tensorclass(data) and not isinstance(data, (NonTensorData, NonTensorStack)))


def to_batch(data: Any) -> Batch:
    """Makes a tendon.TensorDict of the same tensors, without a copy."""
    packed = _consolidated(data)
    batch = Batch._of_levels(_to_level(data, "", packed, marked=True))
    return batch._packed_by_tensordict(packed.storage) if packed else batch


def to_plain_batch(data: Any) -> Batch:
    """Works as to_batch, for files: lazy stacks and tensorclasses become plain TensorDicts."""
    return Batch._of_levels(_to_level(data, "", None, marked=False))


def _name_of(tensorclass: type) -> str:
    return f"{tensorclass.__module__}.{tensorclass.__qualname__}"


class _Packed:
    """The result of consolidate(): one buffer, and the place of each tensor of one level in it."""

    def __init__(self, buffer: torch.Tensor, storage: Tensor, level: dict[str, Any]) -> None:
        self._buffer = buffer
        self.storage = storage
        self._level = level
        leaves = level["leaves"]
        # An entry named "leaves", itself a TensorDict, replaces the list of leaves there.
        self._leaves = leaves if all(isinstance(leaf, (list, tuple)) for leaf in leaves.values()) else None

    def leaf(self, key: str, item: Any) -> Tensor | None:
        """Returns this entry in the buffer; None if the buffer does not hold it."""
        if self._leaves is None:
            return self._found(item)
        if key not in self._leaves:
            return None
        dtype, shape, start, *_ = self._leaves[key]
        return self.storage._view(start, dtype, shape)

    def _found(self, item: Any) -> Tensor | None:
        if not isinstance(item, torch.Tensor) or item.is_nested or not item.is_contiguous():
            return None
        start = item.data_ptr() - self._buffer.data_ptr()
        if item.numel() == 0 or not 0 <= start <= self._buffer.numel() - item.nbytes:
            return None
        return self.storage._view(start, item.dtype, item.shape)

    def below(self, key: str) -> _Packed | None:
        level = self._level.get(key)
        return _Packed(self._buffer, self.storage, level) if level and "leaves" in level else None


def _consolidated(data: Any) -> _Packed | None:
    """Returns the packed form of a TensorDict whose tensors lie in one buffer and cannot be replaced."""
    if is_tensorclass(data):
        data = data._tensordict
    packed = getattr(data, "_consolidated", None)
    if not (isinstance(packed, dict) and data.is_locked and data.is_consolidated()):
        return None
    storage = packed["storage"]
    if storage.device.type != "cpu" or storage.dtype != torch.uint8:
        return None
    return _Packed(storage, Tensor(storage.numpy()), packed["metadata"])


def _below(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key


def _to_level(data: Any, path: str, packed: _Packed | None, *, marked: bool,
              in_locked: bool = False) -> _Given:
    mark: dict[str, Any] = {}
    is_plain = type(data) is TensorDict
    if not is_plain and is_tensorclass(data):
        mark["class"] = _name_of(type(data))
        data = data._tensordict  # to_tensordict() would copy
    is_locked = data.is_locked
    if is_locked and not in_locked:
        mark["locked"] = True  # this includes all levels below
    entries: dict[str, Any] = {}
    values: dict[str, Any] = {}
    batch_size, names = data.batch_size, data.names
    if not is_plain and isinstance(data, LazyStackedTensorDict):
        mark["stack_dim"] = data.stack_dim
        mark["stack_name"] = names[data.stack_dim] if names else None
        batch_size, names = (), None  # the parts have their own, and may differ in shape
        for index, part in enumerate(data.tensordicts):
            below = packed.below(str(index)) if packed else None
            entries[str(index)] = _to_level(part, _below(path, str(index)), below, marked=marked,
                                            in_locked=is_locked)
    else:
        if data.device is not None and data.device.type == "cpu":
            mark["device"] = "cpu"
        has_stack = False
        for key, item in data.items():
            if key == MARK:
                raise ValueError(f"'{_below(path, key)}' is a name that Tendon keeps for itself")
            if packed and (leaf := packed.leaf(key, item)) is not None:
                entries[key] = leaf
            elif isinstance(item, torch.Tensor):
                entries[key] = item
            elif _is_level(item):
                below = packed.below(key) if packed else None
                entries[key] = level = _to_level(item, _below(path, key), below, marked=marked,
                                                 in_locked=is_locked)
                has_stack = has_stack or level[0] != item.batch_size
            else:
                values[key] = _to_value(item, _below(path, key), mark, key)
        if has_stack:  # a stack's batches differ in size, so the levels above have no batch size
            mark["batch_size"], mark["names"] = list(batch_size), list(names)
            batch_size, names = (), None
    if mark and marked:
        values[MARK] = [mark]
    return batch_size, names, entries, values


def _is_level(item: Any) -> bool:
    return type(item) is TensorDict or (is_tensordict(item) and
                                        not isinstance(item, NonTensorStack))


def _to_value(item: Any, path: str, mark: dict[str, Any], key: str) -> Any:
    if isinstance(item, NonTensorData):
        if isinstance(item.data, (type(None), bool, int, float, str, list, dict)):
            return item.data
        raise TypeError(f"'{path}' holds a {type(item.data).__name__}; legal non-tensor data are "
                        "None, bool, int, float, str, lists and dicts of these: nothing is "
                        "pickled")
    if isinstance(item, NonTensorStack):
        mark.setdefault("stacks", {})[key] = item.batch_dims
        return item.tolist()
    return item


def from_batch(batch: Batch, device: Any = None) -> Any:
    """Makes a tensordict.TensorDict (or a registered class) on the memory of `batch`, or on the device."""
    locked: list[tuple[str, ...]] = []
    on_gpu = device is not None and torch.device(device).type != "cpu"
    made = _from_level(batch._levels(), (), locked, on_gpu)
    if device is not None:
        made = made.to(device)
    for names in locked:  # last: a locked one cannot be filled, and filling may copy a part
        _at(made, names).lock_()
    return made


def _at(made: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if is_tensorclass(made):
            made = made._tensordict
        is_stack = isinstance(made, LazyStackedTensorDict)
        made = made.tensordicts[int(name)] if is_stack else made.get(name)
    return made


def _from_level(level: Level, names: tuple[str, ...], locked: list[tuple[str, ...]], on_gpu: bool) -> Any:
    path = "/".join(names)
    mark = _mark.read(level, path)
    if on_gpu:  # already there: the sender's device would move the tensors away and back
        mark.pop("device", None)
    if "locked" in mark:
        locked.append(names)
    level.values.pop(MARK, None)
    below = {name: _from_level(entry, (*names, name), locked, on_gpu)
             for name, entry in level.entries.items() if isinstance(entry, Level)}
    made = (_from_parts if "stack_dim" in mark else _from_entries)(level, mark, below, path)
    if "class" not in mark:
        return made
    if mark["class"] not in _classes:
        warnings.warn(f"{mark['class']} is not registered here (tendon.tensordict.register), so a "
                      "TensorDict comes in its place", stacklevel=3)
        return made
    try:
        return _classes[mark["class"]].from_tensordict(made)
    except Exception as unfit:
        _mark.refuse(path, f"the entries are no {mark['class']}: {unfit}", unfit)


def _from_parts(level: Level, mark: dict[str, Any], below: dict[str, Any],
                path: str) -> LazyStackedTensorDict:
    parts = [below[str(i)] for i in range(len(level.entries))]
    try:
        return LazyStackedTensorDict(*parts, stack_dim=mark["stack_dim"],
                                     stack_dim_name=mark["stack_name"])
    except Exception as unfit:
        _mark.refuse(path, f"the batches beside it cannot be stacked: {unfit}", unfit)


def _from_entries(level: Level, mark: dict[str, Any], below: dict[str, Any],
                  path: str) -> TensorDict:
    tensors, others = level.entries | below, level.values
    if not mark:
        made = TensorDict(tensors, batch_size=level.batch_size, names=level.names)
    else:
        made = _marked(level, mark, tensors, path)
    stacks = mark.get("stacks", {})
    for key, value in others.items():
        if key not in stacks:
            made.set_non_tensor(key, value)
    for key, dims in stacks.items():
        try:
            made.set(key, _stack_of(others[key], dims))
        except Exception as unfit:
            _mark.refuse(path, f"stacks names {key!r}, which is no stack of {dims} dimensions that "
                         f"fits batch size {list(made.batch_size)}", unfit)
    return made


def _marked(level: Level, mark: dict[str, Any], tensors: dict[str, Any], path: str) -> TensorDict:
    sizes = tuple(mark.get("batch_size", level.batch_size))
    for key, tensor in tensors.items():
        if tensor.shape[:len(sizes)] != sizes:
            _mark.refuse(path, f"batch_size is {list(sizes)}, but {key!r} has shape "
                         f"{list(tensor.shape)}")
    try:
        return TensorDict(tensors, batch_size=sizes, names=mark.get("names", level.names),
                          device=mark.get("device"))
    except Exception as unfit:
        _mark.refuse(path, f"tensordict refuses it: {unfit}", unfit)


def _stack_of(value: Any, dims: int) -> Any:
    if dims == 0:
        return NonTensorData(value)
    if not isinstance(value, list):
        raise TypeError("a stack is a list")
    return NonTensorStack(*(_stack_of(item, dims - 1) for item in value), stack_dim=0)


def store(data: Any, names: tuple[str, ...], value: Any) -> bool:
    """Stores a value that recv_into received; False if `data` is locked."""
    if names[-1] == MARK:
        return True  # belongs to the message, not to its content
    if is_tensorclass(data):
        data = data._tensordict
    if data.is_locked:
        return False
    name = names[0]
    if isinstance(data, LazyStackedTensorDict):
        parts = {str(index): part for index, part in enumerate(data.tensordicts)}
        return len(names) > 1 and name in parts and store(parts[name], names[1:], value)
    old = data.get(name, None)
    if len(names) > 1:
        if not is_tensordict(old):  # nothing, or a value that is replaced
            data.set(name, TensorDict(batch_size=data.batch_size))
        return store(data.get(name), names[1:], value)
    if isinstance(old, NonTensorStack) and isinstance(value, list):
        data.set(name, NonTensorStack.from_list(value))
    else:
        data.set_non_tensor(name, value)
    return True
