#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that src/cuda/gather_ptx.hpp was made of the sources that lie beside it, and runs its PTX, without a GPU.

check_gather_ptx.py ROOT          each thread is run by itself, over memory that only lets it in where it is aligned
check_gather_ptx.py --self-test   plants faults in the PTX

It knows the instructions that this kernel has. The C++ that it is compiled of is tested with the double of the driver;
this is about what the compiler made of it.
"""

import re
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))

from make_gather_ptx import MADE, digest_of  # noqa: E402

ENTRY_BYTES, CHUNK_BYTES, THREADS = 24, 4096, 256
PARAMETERS, MEMORY = 1 << 20, 1 << 36  # addresses
FILL = 0xEE
COMPARISONS = {"le": lambda a, b: a <= b, "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b, "eq": lambda a, b: a == b}
OPERATIONS = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
              "shr": lambda a, b: a >> b, "min": min, "mul": lambda a, b: a * b}


class Fault(Exception):
    """What a thread did wrong."""


class Kernel:
    def __init__(self, ptx: str) -> None:
        self.lines: list[tuple[str, str, list[str]]] = []  # predicate, operation, operands
        self.labels: dict[str, int] = {}
        self.parameter = re.search(r"\.param .* (\w+)\[(\d+)\]", ptx)
        for line in ptx[ptx.index("{") + 1:ptx.rindex("}")].splitlines():
            line = line.strip().rstrip(";")
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.lines)
            elif line and not line.startswith(".reg"):
                predicate, operation, operands = re.fullmatch(r"(?:@(%p\d+) )?([\w.]+) ?(.*)", line).groups()
                self.lines.append((predicate or "", operation, re.findall(r"[^,\s{}]+", operands)))

    def run(self, memory: dict[int, bytearray], block: tuple[int, int], thread: int) -> None:
        """`memory`: by the address where it begins; the first one is the parameter."""
        values = {"%tid.x": thread, "%ctaid.x": block[0], "%ctaid.y": block[1], self.parameter[1]: PARAMETERS}

        def value(operand: str) -> int:
            return values[operand] if operand in values else int(operand)

        def place(operand: str, size: int) -> tuple[bytearray, int]:
            register, offset = re.fullmatch(r"\[(%\w+)(?:\+(-?\d+))?\]", operand).groups()
            address = values[register] + int(offset or 0)
            if address % size != 0:
                raise Fault(f"an access of {size} bytes at {address:#x}")
            for begin, room in memory.items():
                if begin <= address and address + size <= begin + len(room):
                    return room, address - begin
            raise Fault(f"an access at {address:#x}, where nothing is")

        at = 0
        while True:
            predicate, operation, operands = self.lines[at]
            at += 1
            if predicate and not values[predicate]:
                continue
            name, *kinds = operation.split(".")
            bits = int(kinds[-1][1:]) if kinds and kinds[-1][1:].isdigit() else 0
            if name == "ret":
                return
            if name == "bra":
                at = self.labels[operands[0]]
            elif name in ("ld", "st"):
                count = 4 if "v4" in kinds else 1
                address = operands[-1] if name == "ld" else operands[0]
                registers = operands[:-1] if name == "ld" else operands[1:]
                room, offset = place(address, count * bits // 8)
                for number, register in enumerate(registers):
                    begin = offset + number * bits // 8
                    if name == "ld":
                        values[register] = int.from_bytes(room[begin:begin + bits // 8], "little")
                    else:
                        room[begin:begin + bits // 8] = value(register).to_bytes(bits // 8, "little")
            elif name == "setp":
                values[operands[0]] = COMPARISONS[kinds[0]](value(operands[1]), value(operands[2]))
            elif name in ("mov", "cvt"):
                width = min(int(kind[1:]) for kind in kinds)
                values[operands[0]] = value(operands[1]) % (1 << width)
            elif name in OPERATIONS:
                width = 2 * bits if "wide" in kinds else bits
                values[operands[0]] = OPERATIONS[name](value(operands[1]), value(operands[2])) % (1 << width)
            else:
                raise Fault(f"the instruction {operation} is not known here")


def faults_of(ptx: str) -> list[str]:
    """Gathers pieces of many sizes and alignments, some of several chunks."""
    kernel = Kernel(ptx)
    pieces = [(size, shift) for size in (1, 16, 33, 4100) for shift in (0, 1, 4, 8)] + [(0, 0), (8193, 12)]
    source, destination, entries = bytearray(), bytearray(), bytearray()
    wanted = bytearray()
    for number, (size, shift) in enumerate(pieces):
        source += bytes(-len(source) % 64 + shift)
        destination += bytes([FILL]) * (-len(destination) % 64)
        entries += struct.pack("<QQQ", 2 * MEMORY + len(destination), MEMORY + len(source), size)
        content = bytes((number * 37 + at * 11 + at // 256) % 251 for at in range(size))
        wanted += bytes([FILL]) * (len(destination) - len(wanted)) + content
        source += content
        destination += bytes([FILL]) * size
    parameter = entries + bytes(int(kernel.parameter[2]) - len(entries))
    memory = {PARAMETERS: parameter, MEMORY: source, 2 * MEMORY: destination}
    try:
        for number, (size, _) in enumerate(pieces):
            for chunk in range((size + CHUNK_BYTES - 1) // CHUNK_BYTES + 1):  # and one behind the end
                for thread in range(THREADS):
                    kernel.run(memory, (chunk, number), thread)
    except Fault as fault:
        return [f"{MADE}: {fault}"]
    if destination == wanted:
        return []
    first = next(at for at, (got, right) in enumerate(zip(destination, wanted)) if got != right)
    return [f"{MADE}: the byte {first} of what was gathered is wrong"]


def ptx_in(header: str) -> str:
    return header[header.index('R"ptx('):header.index(')ptx"')]


def check(root: Path) -> list[str]:
    header = (root / MADE).read_text()
    if digest_of(root) not in header:
        return [f"{MADE}: it was made of other sources than those beside it: run tools/make_gather_ptx.py"]
    return faults_of(ptx_in(header))


def self_test(root: Path) -> None:
    ptx = ptx_in((root / MADE).read_text())
    assert faults_of(ptx) == []
    plants = ((r"%ctaid\.y", "%ctaid.x"), (r"(min\.u64 .*), 4096;", r"\1, 4095;"), (r"(and\.b64 .*), 15;", r"\1, 7;"),
              (r"(st\.v4\.u32 .*)\{(\S+), (\S+),", r"\1{\3, \2,"), (r"\+16\]", "+8]"), (r"setp\.lt\.u32", "setp.le.u32"))
    for good, bad in plants:
        planted = re.sub(good, bad, ptx)
        assert planted != ptx and faults_of(planted), bad
    print(f"each of {len(plants)} planted faults was reported")


def main() -> int:
    if "--self-test" in sys.argv:
        self_test(Path(__file__).resolve().parent.parent.parent)
        return 0
    faults = check(Path(sys.argv[1]))
    print("\n".join(faults) or "the PTX is that of its sources, and packs what it should")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
