#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what README.md and the examples show, and compares what they print.

check_readme.py programs README --compiler CXX --library FILE --include DIR [--flag=F]... [--emulator=E]...
                [--launcher TENDON]
    Every ```cpp block is a complete program, followed by its output in a ```text block. The first one
    is examples/quickstart.cpp, word for word; ```cpp examples/x.cpp is that file.
check_readme.py example SOURCE PROGRAM [--emulator=E]... [--launcher TENDON]
    PROGRAM prints what the comment "// Prints:" at the head of SOURCE says.
check_readme.py --self-test
    Plants faults and expects each to be reported.

An example whose head says "tendon launch -n N" runs in N processes; without --launcher it is left out.
Host names and process ids differ from run to run: "host a, pid 4711" stands for any.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LAUNCH = re.compile(r"^//.*\btendon launch -n (\d+) ", re.MULTILINE)
ANY_PROCESS = re.compile(r"host \S+, pid \d+")
TIMEOUT_S = 90
COMPILE_TIMEOUT_S = 400  # a busy machine, and a sanitizer
SKIPPED = 77


class Fault(Exception):
    """What is wrong, in words."""


def same_everywhere(text: str) -> str:
    return ANY_PROCESS.sub("host a, pid 4711", text)


def compare(what: str, expected: str, printed: str) -> None:
    expected, printed = same_everywhere(expected), same_everywhere(printed)
    if expected == printed:
        return
    lines = difflib.unified_diff(expected.splitlines(), printed.splitlines(),
                                 f"{what}: expected", f"{what}: printed", lineterm="")
    raise Fault("\n".join(lines))


def run(what: str, command: list[str], timeout_s: int = TIMEOUT_S) -> str:
    # What the user's shell says to Tendon is no part of the promise.
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith("TENDON_") and k not in ("RANK", "WORLD_SIZE")}
    try:
        done = subprocess.run(command, env=environment, timeout=timeout_s, capture_output=True,
                              text=True, check=False)
    except subprocess.TimeoutExpired as expired:
        raise Fault(f"{what} did not end within {timeout_s} s") from expired
    if done.returncode != 0:
        raise Fault(f"{what} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def programs_of(markdown: str) -> list[tuple[str, str, str]]:
    """Each program with the output that follows it, and the example that it is, or ""."""
    fences = FENCE.findall(markdown)
    programs = []
    for index, (language, example, body) in enumerate(fences):
        if language != "cpp":
            continue
        first_line = body.splitlines()[0] if body else ""
        if "int main(" not in body:
            raise Fault(f"the cpp block '{first_line} ...' is no complete program: nothing would run it")
        if index + 1 == len(fences) or fences[index + 1][0] != "text":
            raise Fault(f"the cpp block '{first_line} ...' is not followed by its output in a text block")
        programs.append((body, fences[index + 1][2], example.strip()))
    if not programs:
        raise Fault("there is no cpp block")
    return programs


def without_head(source: str) -> str:
    """The program below the comment that it starts with."""
    lines = source.splitlines(keepends=True)
    while lines and lines[0].startswith("//"):
        lines.pop(0)
    return "".join(lines)


def head_of(source: str) -> str:
    return source[: len(source) - len(without_head(source))]


def started(source: str, program: str, options: argparse.Namespace) -> list[str]:
    """How a program runs, by what the head of its source says; [] where there is no launcher."""
    launch = LAUNCH.search(head_of(source))
    if launch is None:
        return [*options.emulator, program]
    if options.launcher is None:
        return []
    return [*options.emulator, options.launcher, "launch", "-n", launch[1], "--", program]


def check_programs(options: argparse.Namespace) -> None:
    programs = programs_of(options.readme.read_text())
    programs[0] = (*programs[0][:2], "examples/quickstart.cpp")
    left_out = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (program, output, example) in enumerate(programs, 1):
            original = (options.readme.parent / example).read_text() if example else program
            if example:
                compare(f"README's program {number} against {example}", without_head(original), program)
            source, binary = Path(folder, f"{number}.cpp"), Path(folder, str(number))
            source.write_text(program)
            run(f"compiling program {number}",
                [options.compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror",
                 *options.flag, f"-I{options.include}", str(source), str(options.library), "-lcrypto",
                 "-lhwy", "-lpthread", "-o", str(binary)], COMPILE_TIMEOUT_S)
            if command := started(original, str(binary), options):
                compare(f"program {number}", output, run(f"program {number}", command))
            else:
                left_out += 1
    print(f"{len(programs) - left_out} programs print what README.md says; "
          f"{left_out} left out for want of a launcher")


def expected_of(source: str) -> str:
    head = head_of(source)
    if "// Prints:\n" not in head:
        raise Fault("the comment at its head does not say what it prints (// Prints:)")
    lines = head.split("// Prints:\n", 1)[1].splitlines()
    return "".join(line.removeprefix("//").removeprefix(" ") + "\n" for line in lines)


def check_example(options: argparse.Namespace) -> None:
    source = options.source.read_text()
    expected = expected_of(source)
    command = started(source, str(options.program), options)
    if not command:
        print(f"{options.source.name} was left out: it needs `tendon launch`, which is not built")
        sys.exit(SKIPPED)
    compare(options.source.name, expected, run(options.source.name, command))
    print(f"{options.source.name} prints what it says")


def self_test() -> None:
    def refuses(what: str, action) -> None:
        try:
            action()
        except Fault:
            return
        sys.exit(f"self-test: {what} was not reported")

    program = "```cpp\nint main() {}\n```\n"
    refuses("a block that is no program", lambda: programs_of("```cpp\nint x;\n```\n```text\n```\n"))
    refuses("a program without output", lambda: programs_of(program))
    refuses("a page without programs", lambda: programs_of("nothing\n"))
    refuses("another output", lambda: compare("x", "pid 1\n", "pid 2\n"))
    refuses("an exit code", lambda: run("false", ["false"]))
    refuses("an example that says nothing", lambda: expected_of("// A\nint main() {}\n"))
    assert programs_of(program + "```text\nx\n```\n") == [("int main() {}\n", "x\n", "")]
    named = program.replace("cpp", "cpp examples/x.cpp") + "```text\nx\n```\n"
    assert programs_of(named) == [("int main() {}\n", "x\n", "examples/x.cpp")]
    options = argparse.Namespace(emulator=["e"], launcher="tendon")
    launched = "// By `tendon launch -n 3 -- x`\nint main() {}\n"
    assert started(launched, "x", options) == ["e", "tendon", "launch", "-n", "3", "--", "x"]
    assert started("// A\n// Prints:\nint y;  // tendon launch -n 3 \n", "x", options) == ["e", "x"]
    options.launcher = None
    assert started(launched, "x", options) == []
    assert expected_of("// A\n// Prints:\n// a\n//   b\n#include <x>\n") == "a\n  b\n"
    compare("x", "x (host a, pid 4711)\n", "x (host b7, pid 12)\n")
    print("self-test: every planted fault was reported")


def main() -> None:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    programs = verbs.add_parser("programs")
    programs.add_argument("readme", type=Path)
    programs.add_argument("--compiler", required=True)
    programs.add_argument("--library", required=True)
    programs.add_argument("--include", required=True)
    programs.add_argument("--flag", action="append", default=[])
    programs.set_defaults(check=check_programs)
    example = verbs.add_parser("example")
    example.add_argument("source", type=Path)
    example.add_argument("program", type=Path)
    example.set_defaults(check=check_example)
    for verb in (programs, example):
        verb.add_argument("--emulator", action="append", default=[])
        verb.add_argument("--launcher")
    options = parser.parse_args()
    try:
        options.check(options)
    except Fault as fault:
        sys.exit(str(fault))


if __name__ == "__main__":
    main()
