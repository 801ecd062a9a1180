# SPDX-License-Identifier: Apache-2.0
"""Gives memory back that a process has used and uses no more."""

from __future__ import annotations

import ctypes
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+\s*(.*)")
_LIBC = ctypes.CDLL(None, use_errno=True)
# What begins so fills 100 MB of variables when it is loaded, with what it knows of GPUs. torch loads it in any case.
_OF_GPUS = "libcublasLt.so"
# In an ELF file of 64 bits: from its head the first bytes, where the table of segments is, its rows' size and number; of
# a segment its type, flags, address, bytes in the file and in memory.
_ELF_HEAD = struct.Struct("<5s27xQ14xHH6x")
_ELF_SEGMENT = struct.Struct("<II8xQ8xQQ8x")
_PT_LOAD = 1


@dataclass
class _Mapping:
    first: int
    end: int
    can_be_written: bool
    file: str  # empty: of none
    own_kib: int = 0  # written to by this process

    def forget(self) -> None:
        _forget(self.first, self.end)


def _forget(first: int, end: int) -> None:
    _LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)


def forget_file(file: str) -> None:
    """Pages of a mapped file that this process has read and not written to. What is used again comes from the kernel's
    cache, without the disk."""
    for mapping in _mappings():
        if mapping.file == file and mapping.own_kib == 0:
            mapping.forget()


def forget_libraries() -> None:
    """Code that ran at import alone, in the same way; and the variables of a library for GPUs, which is of no use from
    then on: the process computes on CPUs, and ends by os._exit(), without the library's own end."""
    begins: dict[str, int] = {}  # where each library lies
    for mapping in _mappings():
        if mapping.file.startswith("/"):
            begins.setdefault(mapping.file, mapping.first)
            if not mapping.can_be_written and mapping.own_kib == 0:
                mapping.forget()
    for file, begin in begins.items():
        if PurePath(file).name.startswith(_OF_GPUS):
            first, end = _variables(file)
            _forget(begin + first, begin + end)


def _variables(file: str) -> tuple[int, int]:
    """The whole pages of a library in which all variables are 0 at first, from its beginning. What the kernel shows as one
    mapping may go on with memory of others."""
    with open(file, "rb") as library:
        head = _ELF_HEAD.unpack(library.read(_ELF_HEAD.size))
        is_elf_64, table, size, count = head[0] == b"\x7fELF\x02", head[1], head[2], head[3]
        if not is_elf_64 or size != _ELF_SEGMENT.size:
            return 0, 0
        library.seek(table)
        segments = [_ELF_SEGMENT.unpack(library.read(size)) for _ in range(count)]
    loaded = [segment for segment in segments if segment[0] == _PT_LOAD]
    zeros = [(at + in_file, at + in_memory) for _, _, at, in_file, in_memory in loaded if in_memory > in_file]
    if len(zeros) != 1 or loaded[0][2] >= mmap.PAGESIZE:
        return 0, 0
    first = -(-zeros[0][0] // mmap.PAGESIZE) * mmap.PAGESIZE
    return first, max(first, zeros[0][1] // mmap.PAGESIZE * mmap.PAGESIZE)


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
