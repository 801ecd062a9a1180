#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no class is too large: its fields, mutexes, methods and source files, and that no bool parameter hides
its meaning.

check_classes.py [ROOT]        prints file:line and the rule that is broken; exit code 1 if any is
check_classes.py --self-test   plants one fault per rule and expects each to be reported

Fields and mutexes of nested types count for the enclosing class, because its methods read and write them.
tools/house_debts.txt has the classes that exceed a limit today. A number there may only fall: a class that needs less
than its number is a fault too.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import checker
from checker import DEBTS

PRODUCT = ("include", "src", "cli")
LIMITS = {"fields": 20, "methods": 40, "mutexes": 2, "files": 3}

NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'', re.DOTALL)
TYPE = re.compile(r"(?<!enum )\b(?:class|struct|union) (?:TENDON_\w+(?:\([^)]*\))? )?(\w+)(?: final)?(?: : [^;{]*)?\s*\{")
OPENS_TYPE = re.compile(r"(?<!enum )\b(?:class|struct|union)\b[^=();]*$")
ENUM = re.compile(r"\benum\b")
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
MACRO = re.compile(r"\b(?:TENDON_\w+|alignas)\s*(?:\((?:[^()]|\([^()]*\))*\))?|\[\[[^\]]*\]\]")
NO_MEMBER = re.compile(r"(?:using|typedef|friend|static_assert|enum|class|struct|union|template\s*<.*>\s*(?:class|struct|friend))\b",
                       re.DOTALL)
# `struct {...}` as the type of a field.
FIELD_OF_TYPE = re.compile(r"(?:class|struct|union)\b.*\{\}\s*\w+", re.DOTALL)
GIVEN = re.compile(r"=\s*(?:default|delete)\s*$")
FIELD = re.compile(r"[\w>&*\]]\s+[*&]?\w+(?:\s*:\s*\d+)?\s*(?:,|$)")
MUTEX = re.compile(r"\bMutex \w+$")
MEMBER_OF = re.compile(r"^(?! )[\w:<>,&*\[\] ]*?\b(\w+)::~?\w+\(", re.MULTILINE)
BOOL_PARAMETER = re.compile(r"\b(\w+)\((?:[^(){};]*[ ,(])?bool (\w+)[,)]")
# The argument of these is the value itself.
BOOL_VALUES = {"boolean"}


@dataclass
class Members:
    fields: int = 0
    methods: int = 0
    mutexes: int = 0


def code_of(text: str) -> str:
    """Returns `text` without comments, and with empty strings."""
    return NO_CODE.sub(lambda found: re.sub(r"[^\n]", "", found[0]) if found[0].startswith("/") else '""', text)


def body_at(text: str, begin: int) -> str:
    """Returns the text between the brace before `begin` and its closing brace."""
    depth = 1
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at]
    return text[begin:]


def declarations_of(body: str) -> tuple[list[str], list[str]]:
    """Returns the declarations of a class, with empty braces, and the bodies of its nested types."""
    declarations: list[str] = []
    nested: list[str] = []
    current = ""
    at = 0
    while at < len(body):
        if body[at] == ";":
            declarations.append(current)
            current = ""
        elif body[at] == "{":
            inside = body_at(body, at + 1)
            at += len(inside) + 1
            if OPENS_TYPE.search(current) and not ENUM.search(current):
                nested.append(inside)
            # A function's body ends its declaration.
            elif "(" in current and not ENUM.search(current) and re.match(r"\s*[;,)=]", body[at + 1:]) is None:
                declarations.append(current)
                current = ""
                at += 1
                continue
            current += "{}"
        else:
            current += body[at]
        at += 1
    return declarations, nested


def without_arguments(text: str) -> str:
    """Returns `text` without the contents of angle brackets."""
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def count(body: str) -> Members:
    members = Members()
    declarations, nested = declarations_of(body)
    for text in declarations:
        text = MACRO.sub("", ACCESS.sub("", re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE))).strip()
        if not text or GIVEN.search(text):
            continue
        if NO_MEMBER.match(text):
            members.fields += FIELD_OF_TYPE.match(text) is not None
            continue
        declared = re.sub(r"\[[^\]]*\]|\{\}", "", without_arguments(re.split(r"(?<!operator)=", text, maxsplit=1)[0])).strip()
        if "(" in declared or "operator" in declared:
            members.methods += 1
        elif not re.search(r"\bstatic\b", declared) and FIELD.search(declared):
            members.fields += declared.count(",") + 1
            members.mutexes += MUTEX.search(declared) is not None
    for inner in map(count, nested):
        members.fields += inner.fields
        members.mutexes += inner.mutexes
    return members


def check(root: Path) -> list[str]:
    faults = []
    texts = {path.relative_to(root).as_posix(): code_of(path.read_text()) for folder in PRODUCT
             for path in sorted((root / folder).rglob("*.[hc]pp"))}
    sources: dict[str, set[str]] = {}
    for name, text in texts.items():
        if name.startswith("src/") and name.endswith(".cpp"):
            for of in set(MEMBER_OF.findall(text)):
                sources.setdefault(of, set()).add(name)
    debts = {(kind, words[0]): int(words[1]) for kind, *words in checker.debts_of(root) if kind != "circle"}
    for name, text in texts.items():
        for found in TYPE.finditer(text):
            members = count(body_at(text, found.end()))
            numbers = vars(members) | {"files": len(sources.get(found[1], ())) if name.endswith(".hpp") else 0}
            place = f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {found[1]}"
            for kind, number in numbers.items():
                debt = debts.pop((kind, found[1]), None) if number > LIMITS[kind] else None
                if number > (allowed := debt or LIMITS[kind]):
                    faults.append(f"{place} has {number} {kind}, at most {allowed}: split it by job")
                elif debt is not None and number < debt:
                    faults.append(f"{place} has {number} {kind} now: write that into {DEBTS}, which says {debt}")
        if name.endswith(".hpp"):
            faults += [f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {found[1]}(bool {found[2]}) hides what "
                       "it asks for: an enumeration says it" for found in BOOL_PARAMETER.finditer(text)
                       if found[1] not in BOOL_VALUES]
    return faults + [f"{DEBTS}:1: {name} is within the limit of {LIMITS[kind]} {kind}: its line may be deleted"
                     for kind, name in debts]


def self_test() -> None:
    def fields(number: int, suffix: str = "_") -> str:
        return "".join(f"  std::map<int, int> a{at}{suffix} TENDON_GUARDED_BY(m_){{}};\n" for at in range(number))

    good = {
        "src/core/wide.hpp": "class Wide {\n public:\n  int f() { return a0_ + sum_(); }\n  using A = int;\n  enum class E { a, b };\n"
                             "  struct In {\n    int z = 1;  // int y;\n  };\n  static constexpr int kA = 1;\n"
                             + fields(19) + "};\nValue boolean(bool value);\n",
        "src/core/owing.hpp": "struct Owing {\n" + fields(22, "") + "};\n",
        DEBTS: "# why\nfields Owing 22\ncircle core/a core/b core/c\n",
    }
    bad = [
        ("src/core/w.hpp", "class W {\n" + fields(21) + "};\n", "W has 21 fields, at most 20"),
        ("src/core/w.hpp", "struct W {\n" + fields(21, "") + "};\n", "W has 21 fields"),
        ("src/core/w.hpp", "class W {\n  struct In {\n" + fields(11, "") + "  };\n" + fields(10) + "};\n", "W has 21 fields"),
        ("cli/w.cpp", "class W {\n" + "".join(f"  int f{at}() const;\n" for at in range(41)) + "};\n", "W has 41 methods"),
        ("src/core/w.hpp", "class W {\n" + "".join(f"  mutable Mutex m{at}_;\n" for at in range(3)) + "};\n", "W has 3 mutexes"),
        ("src/core/w.hpp", "void f(int a,\n       bool at_once);\n", "f(bool at_once)"),
        ("src/core/owing.hpp", "struct Owing {\n" + fields(23, "") + "};\n", "Owing has 23 fields, at most 22"),
        ("src/core/owing.hpp", "struct Owing {\n" + fields(21, "") + "};\n", "has 21 fields now"),
        ("src/core/owing.hpp", "struct Owing {\n" + fields(2, "") + "};\n", "its line may be deleted"),
    ]
    with checker.tree(good) as root:
        checker.expect_each(check, root, bad)
        for at in range(4):
            checker.write(root, f"src/core/many_{at}.cpp", "int Many::f() { return 1; }\n")
        checker.write(root, "src/core/many.hpp", "class Many {\n};\n")
        checker.expect(check, root, "Many has 4 files")
    print(f"each of {len(bad) + 1} planted faults was reported")


if __name__ == "__main__":
    sys.exit(checker.run(check, self_test, "classes: every limit is kept"))
