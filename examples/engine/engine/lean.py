# SPDX-License-Identifier: Apache-2.0
"""Gives memory back that a process has used and uses no more."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+\s*(.*)")
_LIBC = ctypes.CDLL(None, use_errno=True)
# What begins so fills 100 MB of variables when it is loaded, with what it knows of GPUs. torch loads it in any case.
_OF_GPUS = "libcublasLt.so"


@dataclass
class _Mapping:
    first: int
    end: int
    can_be_written: bool
    file: str  # empty: of none
    own_kib: int = 0  # written to by this process

    def forget(self) -> None:
        _LIBC.madvise(ctypes.c_void_p(self.first), ctypes.c_size_t(self.end - self.first), mmap.MADV_DONTNEED)


def forget_file(file: str) -> None:
    """Pages of a mapped file that this process has read and not written to. What is used again comes from the kernel's
    cache, without the disk."""
    for mapping in _mappings():
        if mapping.file == file and mapping.own_kib == 0:
            mapping.forget()


def forget_libraries() -> None:
    """Code that ran at import alone, in the same way; and the variables of a library for GPUs, which is of no use from
    then on: the process computes on CPUs, and ends by os._exit(), without the library's own end."""
    before = ""
    for mapping in _mappings():
        is_of_gpus = PurePath(before).name.startswith(_OF_GPUS)
        if mapping.file.startswith("/"):
            before = mapping.file
            if not mapping.can_be_written and mapping.own_kib == 0:
                mapping.forget()
        elif is_of_gpus and not mapping.file:
            mapping.forget()
            before = ""


def _mappings() -> Iterator[_Mapping]:
    mapping = None
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as lines:
        text = lines.read()
    for line in text.splitlines():
        if head := _HEAD.match(line):
            if mapping is not None:
                yield mapping
            mapping = _Mapping(int(head[1], 16), int(head[2], 16), "w" in head[3], head[4])
        elif mapping is not None and line.startswith("Anonymous:"):
            mapping.own_kib = int(line.split()[1])
    if mapping is not None:
        yield mapping
