# SPDX-License-Identifier: Apache-2.0
"""The mark: tensordict's attributes of a batch besides its entries, under one reserved name.

It arrives from a peer like every other byte, so read() checks all of it before anything is made.
"""

from __future__ import annotations

import reprlib
from typing import Any, NoReturn

from ._tendon import _BatchLevel, _corrupt_data

MARK = "__tensordict__"
_MAX_CLASS_NAME = 255  # characters


def read(batch: _BatchLevel, place: str) -> dict[str, Any]:
    """Returns the words of the mark in a peer's batch; CorruptData unless all can be used."""
    if MARK in batch.entries:
        kind = "a batch" if isinstance(batch.entries[MARK], _BatchLevel) else "a tensor"
        refuse(place, f"it is {kind}; legal is a list of one dict")
    if MARK not in batch.values:
        return {}
    entry = batch.values[MARK]
    if type(entry) is not list or len(entry) != 1 or type(entry[0]) is not dict:
        refuse(place, f"it is {_shown(entry)}; legal is a list of one dict")
    mark: dict[str, Any] = entry[0]
    for word, said in mark.items():
        if word not in _WORDS:
            refuse(place, f"the word {_shown(word)} is unknown; legal are {', '.join(_WORDS)}")
        is_legal, legal = _WORDS[word]
        if not is_legal(said):
            refuse(place, f"{word} is {_shown(said)}; legal is {legal}")
    if ("stack_dim" in mark) != ("stack_name" in mark):
        refuse(place, "stack_dim and stack_name come together")
    if ("batch_size" in mark) != ("names" in mark):
        refuse(place, "batch_size and names come together")
    if "stack_dim" in mark:
        _check_stack(batch, mark, place)
    if "batch_size" in mark:
        _check_sizes(batch, mark, place)
    return mark


def refuse(place: str, why: str, cause: Exception | None = None) -> NoReturn:
    """Raises the error for a peer whose mark does not fit the batch at `place`."""
    name = f"{place}/{MARK}" if place else MARK
    raise _corrupt_data(f"the entry '{name}' of a message is malformed: {why}") from cause


def _check_stack(batch: _BatchLevel, mark: dict[str, Any], place: str) -> None:
    others = sorted(mark.keys() - {"stack_dim", "stack_name", "class", "locked"})
    if others:
        refuse(place, f"a lazy stack has no {' and no '.join(others)} of its own")
    if batch.batch_size:
        refuse(place, f"a lazy stack has no batch size of its own, but it is {batch.batch_size}")
    parts = len(batch.entries) + len(batch.values) - 1
    if not all(isinstance(batch.entries.get(str(i)), _BatchLevel) for i in range(parts)):
        refuse(place, "the entries beside it are no lazy stack; legal are batches named 0, 1, ...")


def _check_sizes(batch: _BatchLevel, mark: dict[str, Any], place: str) -> None:
    if batch.batch_size:
        refuse(place, f"the batch has a second batch size, {batch.batch_size}")
    if len(mark["names"]) != len(mark["batch_size"]):
        refuse(place, f"there are {len(mark['names'])} names for batch size {mark['batch_size']}")


def _is_integer(said: Any) -> bool:
    return type(said) is int and said >= 0


def _is_name(said: Any) -> bool:
    return said is None or type(said) is str


def _is_class_name(said: Any) -> bool:
    return type(said) is str and len(said) <= _MAX_CLASS_NAME and all(
        part.isidentifier() or part == "<locals>" for part in said.split("."))


# The legal values of each word.
_WORDS = {
    "class": (_is_class_name, "module.Name"),
    "device": (lambda said: said == "cpu", "'cpu'"),
    "locked": (lambda said: said is True, "True"),
    "batch_size": (lambda said: type(said) is list and all(map(_is_integer, said)),
                   "a list of integers from 0 on"),
    "names": (lambda said: type(said) is list and all(map(_is_name, said)),
              "a list of names and None"),
    "stack_dim": (_is_integer, "an integer from 0 on"),
    "stack_name": (_is_name, "a name or None"),
    "stacks": (lambda said: type(said) is dict and all(_is_integer(dims) and dims > 0
                                                       for dims in said.values()),
               "a dict from names to integers from 1 on"),
}


def _shown(said: Any) -> str:
    """Shortens a peer's value for messages and escapes unprintable characters."""
    return reprlib.repr(said)
