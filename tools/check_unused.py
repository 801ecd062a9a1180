#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds names that a private header declares and no code of the product uses.

check_unused.py [ROOT]        prints file:line and the name; exit code 1 if any is
check_unused.py --self-test   plants one and expects it to be reported

It compares words: a name counts as used if another place has the same word. So every reported name is unused, but some
unused names are not found.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import checker
from check_classes import code_of

PRODUCT = ("src", "include", "cli", "python", "benchmarks", "examples", "rust")
SUFFIXES = (".hpp", ".cpp", ".cu", ".def", ".h", ".rs")
DECLARED = re.compile(r"[\w>&*\]] [*&]?(\w+)\(|\b(k[A-Z]\w+)\b|\b(?:class|struct|enum class) (\w+)|"
                      r"[\w>] (\w+)(?: = [^;]*|\{[^;]*\})?;")
DEFINED = re.compile(r"^(?! )[\w:<>,&*\[\] ]*?\b(?:\w+::)*(\w+)\(", re.MULTILINE)
# Parts of src/cuda that only tests use so far.
CUDA = {"MemoryType", "kRegisterPortable", "kRegisterMapped", "kRegisterReadOnly", "compression",
        "direct_rdma", "source_order", "source_location", "destination_location"}
# A part of the records of secure links that only tests use so far.
SECURE = {"seal_end"}
# Names that only tests use, and names that a standard or a scope requires.
ALLOWED = {"deallocate", "kRunIdBytes", "locale_", "unfinished", "waiting_callbacks", "warm_bytes",
           "zenoh_puts"} | CUDA | SECURE


def check(root: Path) -> list[str]:
    texts = {path.relative_to(root).as_posix(): code_of(path.read_text()) for folder in PRODUCT
             for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES}
    words = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    definitions = Counter(name for path, text in texts.items() if path.endswith(".cpp") for name in DEFINED.findall(text))
    faults = []
    seen: set[str] = set()
    for path, text in texts.items():
        if not (path.startswith(("src/", "cli/")) and path.endswith(".hpp")):
            continue
        for found in DECLARED.finditer(text):
            name = next(group for group in found.groups() if group)
            if name not in seen and words[name] - 1 <= definitions[name] and name not in ALLOWED:
                faults.append(f"{path}:{text.count(chr(10), 0, found.start()) + 1}: nothing uses {name}: delete it")
            seen.add(name)
    return faults


def self_test() -> None:
    with checker.tree({"src/a.hpp": "class A {\n  int used() const;\n  // int unused();\n  int dead();\n};\n",
                       "src/a.cpp": "int A::used() const { return 1; }\nint A::dead() { return A().used(); }\n"}) as root:
        assert check(root) == ["src/a.hpp:4: nothing uses dead: delete it"], check(root)
    print("a planted fault was reported")


if __name__ == "__main__":
    sys.exit(checker.run(check, self_test, "unused: every name of a private header is used"))
