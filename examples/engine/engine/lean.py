# SPDX-License-Identifier: Apache-2.0
"""Returns memory to the system that the process no longer needs."""

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
# Libraries with this prefix fill 100 MB of variables with data about GPUs when they are loaded. torch always loads
# them.
_OF_GPUS = "libcublasLt.so"
# The 64-bit ELF header: its first bytes, the place of the segment table, and the size and number of its rows. A
# segment: its type, flags, address, and bytes in the file and in memory.
_ELF_HEAD = struct.Struct("<5s27xQ14xHH6x")
_ELF_SEGMENT = struct.Struct("<II8xQ8xQQ8x")
_PT_LOAD = 1


@dataclass
class _Mapping:
    first: int
    end: int
    can_be_written: bool
    file: str  # empty: no file
    own_kib: int = 0  # written by this process

    def forget(self) -> None:
        _forget(self.first, self.end)


def _forget(first: int, end: int) -> None:
    _LIBC.madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)


def forget_file(file: str) -> None:
    """Releases the pages of a mapped file that this process has only read. Pages that are used again are loaded from
    the kernel's cache, without the disk."""
    for mapping in _mappings():
        if mapping.file == file and mapping.own_kib == 0:
            mapping.forget()


def forget_libraries() -> None:
    """Releases code that ran only at import, and the variables of a GPU library, which becomes unusable:
    the process computes on CPUs, and ends by os._exit(), without the library's own end."""
    begins: dict[str, int] = {}  # the start address of each library
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
    """Returns the whole pages of a library with its zero-initialized variables, relative to its start. A mapping
    shown by the kernel may also contain memory of others after them."""
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
