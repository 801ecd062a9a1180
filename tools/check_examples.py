#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the examples in the comments of the public classes of include/, and finds classes without one.

check_examples.py [ROOT] --compiler c++   exit code 1, with file:line, if an example is missing, too long or does not compile
check_examples.py --self-test             plants each fault and expects it to be reported

An example is the indented text below "Example:" in the comment of a class: five to twelve lines, the body of a
function. It may use the predefined `context`, `node`, `pipe`, `group`, `batch` and `compute(step)`, and must declare
everything else.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import checker

CLASS = re.compile(r"^class (?:\[\[nodiscard\]\] )?(TENDON_API )?(\w+)\b[^;<]*\{$")
SHORTEST, LONGEST = 5, 12
# Not TENDON_API, because they are templates or inline, but every program uses them.
INLINE = {"Completion", "Deadline", "Result"}
# Made by Pipe::each(), shown in the example of Responder, thrown by value().
SHOWN_ELSEWHERE = {"Exception", "PipeRange", "Request"}

PRELUDE = """
#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <vector>
namespace examples {
using namespace tendon;
using namespace std::chrono_literals;
extern Context context;
extern Node node;
extern Pipe pipe;
extern Group group;
extern TensorDict batch;
Result<void> compute(const Step& step);
"""


def classes_of(lines: list[str]):
    """Returns (line number, name, lines of its example, number of the example's first line) of each public class."""
    in_detail = False
    for at, line in enumerate(lines):
        if line.startswith("namespace detail {"):
            in_detail = True
        elif line.startswith("}  // namespace detail"):
            in_detail = False
        found = CLASS.match(line)
        if in_detail or not found or not (found[1] or found[2] in INLINE) or found[2] in SHOWN_ELSEWHERE:
            continue
        begin = at
        while lines[begin - 1].startswith(("///", "template")):
            begin -= 1
        comment = lines[begin:at]
        if "/// Example:" not in comment:
            yield at, found[2], [], 0
            continue
        first = comment.index("/// Example:") + 1
        example = []
        for text in comment[first:]:
            if not text.startswith("///   "):
                break
            example.append(text[6:])
        yield at, found[2], example, begin + first


def check(root: pathlib.Path, compiler: str) -> list[str]:
    faults = []
    headers = sorted((root / "include" / "tendon").rglob("*.hpp"))
    program = "".join(f"#include <{header.relative_to(root / 'include')}>\n" for header in headers) + PRELUDE
    for header in headers:
        name = header.relative_to(root)
        for at, class_name, example, first in classes_of(header.read_text().splitlines()):
            if not SHORTEST <= len(example) <= LONGEST:
                faults.append(f"{name}:{at + 1}: {class_name} begins with an example of {SHORTEST} to {LONGEST} lines, not of "
                              f"{len(example)}")
            program += f'void example_{class_name}() {{\n#line {first + 1} "{name}"\n' + "\n".join(example) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "examples.cpp"
        source.write_text(program + "}\n")
        compiled = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-I", str(root / "include"), str(source)],
                                  capture_output=True, text=True, check=False)
    if compiled.returncode:
        faults += [line for line in compiled.stderr.splitlines() if ": error:" in line]
    return faults


def self_test() -> int:
    part = "///   int x = 0;\n"
    header = "namespace tendon {{\n/// A class.\n///\n{}class TENDON_API A {{\n}};\n}}\n"
    cases = [("", "not of 0"), ("/// Example:\n" + part * 4, "not of 4"), ("/// Example:\n" + part * 13, "not of 13"),
             ("/// Example:\n///   int x = 0;\n///   x = \"text\";\n" + "///   ++x;\n" * 4, ": error:")]
    failed = 0
    for text, expected in cases:
        with checker.tree({
                "include/tendon/a.hpp": header.format(text),
                "include/tendon/b.hpp": "namespace tendon { struct Context {}; struct Node {}; struct Pipe {}; struct Group {}; struct TensorDict {}; "
                "struct Step {}; template <class T> class Result {}; }\n"}) as root:
            if not any(expected in fault for fault in check(root, "c++")):
                print(f"self-test: nothing reports '{expected}'")
                failed += 1
    print(f"self-test: {len(cases) - failed} of {len(cases)} faults are reported")
    return 1 if failed else 0


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path())
    parser.add_argument("--compiler", default="c++")
    arguments = parser.parse_args()
    faults = check(arguments.root, arguments.compiler)
    print("\n".join(faults) if faults else "examples: every public class begins with one, and all compile")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
