#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what the pages and the examples show, and compares what they print.

check_readme.py programs PAGE... --compiler CXX --library FILE --include DIR [--flag=F]... [--emulator=E]...
                [--launcher TENDON]
    Every ```cpp block is a complete program; ```cpp examples/x.cpp is that file below its head, word for word.
    Blocks that follow each other run at one time, in a terminal each; the ```text block after them has their
    output, one program after the other. tests/python/test_pages.py does the same with ```python blocks, and with the
    commands of ```console blocks.
check_readme.py example SOURCE PROGRAM [--emulator=E]... [--launcher TENDON]
    PROGRAM prints the text below the comment "// Prints:" at the head of SOURCE.
check_readme.py --self-test
    Plants faults and expects each to be reported.

An example whose head says "tendon launch -n N" runs in N processes; without --launcher it is left out.
Host names and process ids differ from run to run: "host a, pid 4711" stands for any.
"""

import argparse
import contextlib
import difflib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from checker import Fault, run_verb

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LAUNCH = re.compile(r"^//.*\btendon launch -n (\d+) ", re.MULTILINE)
ANY_PROCESS = re.compile(r"host \S+, pid \d+")
# The port at which programs of several terminals meet; the tests replace it with a free one.
ADDRESS = re.compile(r"\b127\.0\.0\.1:([1-9]\d{3,4})\b")
LISTENING = "0A"
TIMEOUT_S = 90
START_TIMEOUT_S = 240  # until a program that first imports torch listens
COMPILE_TIMEOUT_S = 400  # for a busy machine, and a sanitizer
SKIPPED = 77


@dataclass
class Program:
    source: str
    example: str  # its file, or ""

    def first_line(self) -> str:
        return self.source.partition("\n")[0]


@dataclass
class Scene:
    """Programs that run at one time, a terminal each, their output, and the commands of one more terminal."""

    programs: list[Program] = field(default_factory=list)
    output: str | None = None
    commands: list[tuple[str, str]] = field(default_factory=list)  # each with its output

    def awaited(self, ports: dict[str, str]) -> list[str]:
        """Returns the ports where the first program listens before the next one starts; none if it connects."""
        is_awaited = len(self.programs) > 1 and "listen" in self.programs[0].source
        return list(ports.values()) if is_awaited else []


def same_everywhere(text: str) -> str:
    return ANY_PROCESS.sub("host a, pid 4711", text)


def compare(what: str, expected: str, printed: str) -> None:
    expected, printed = same_everywhere(expected), same_everywhere(printed)
    if expected == printed:
        return
    lines = difflib.unified_diff(expected.splitlines(), printed.splitlines(),
                                 f"{what}: expected", f"{what}: printed", lineterm="")
    raise Fault("\n".join(lines))


def environment() -> dict[str, str]:
    """Returns the environment without variables for Tendon, which are no part of the promise."""
    return {k: v for k, v in os.environ.items()
            if not k.startswith("TENDON_") and k not in ("RANK", "WORLD_SIZE")}


def run(what: str, command: list[str], timeout_s: int = TIMEOUT_S) -> str:
    try:
        done = subprocess.run(command, env=environment(), timeout=timeout_s, capture_output=True,
                              text=True, check=False)
    except subprocess.TimeoutExpired as expired:
        raise Fault(f"{what} did not end within {timeout_s} s") from expired
    if done.returncode != 0:
        raise Fault(f"{what} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def commands_of(body: str) -> list[tuple[str, str]]:
    """Returns each `$ command` with the lines below it."""
    if not body.startswith("$ "):
        raise Fault(f"the console block '{body.partition(chr(10))[0]} ...' does not begin with a command ($ ...)")
    return [(command, output) for command, _, output in
            (part.partition("\n") for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:])]


def scenes_of(markdown: str, language: str) -> list[Scene]:
    """Returns the scenes with programs of a language. Blocks without text between them form one scene."""
    scenes: list[Scene] = []
    scene: Scene | None = None
    is_of_program = False  # a text block may be here
    end = 0
    for fence in FENCE.finditer(markdown):
        kind, example, body = fence.groups()
        if markdown[end:fence.start()].strip():
            scene, is_of_program = None, False
        end = fence.end()
        if kind == language or (kind == "console" and language == "python"):
            if scene is None or (kind == language and (scene.commands or scene.output is not None)):
                scenes.append(scene := Scene())
            if kind == language:
                scene.programs.append(Program(body, example.strip()))
            else:
                scene.commands += commands_of(body)
        elif kind == "text":
            if not is_of_program:
                raise Fault(f"the text block '{body.partition(chr(10))[0]} ...' is the output of no program")
            if scene is not None:
                scene.output = body
        else:
            scene = None
        is_of_program = kind in ("cpp", "python")
    for each in scenes:
        if each.output is None and not each.commands:
            raise Fault(f"the {language} block '{each.programs[0].first_line()} ...' is not followed by its output")
    return scenes


def cpp_scenes(markdown: str) -> list[Scene]:
    scenes = scenes_of(markdown, "cpp")
    for program in (program for scene in scenes for program in scene.programs):
        if "int main(" not in program.source:
            raise Fault(f"the cpp block '{program.first_line()} ...' is no complete program: nothing would run it")
    return scenes


def without_head(source: str, comment: str = "//") -> str:
    """Returns the program without its initial comment."""
    lines = source.splitlines(keepends=True)
    while lines and lines[0].startswith(comment):
        lines.pop(0)
    return "".join(lines)


def head_of(source: str) -> str:
    return source[: len(source) - len(without_head(source))]


def original_of(program: Program, root: Path) -> str:
    """Returns the file of a block, with its head, after a check that they are equal."""
    if not program.example:
        return program.source
    original = (root / program.example).read_text()
    comment = "#" if program.example.endswith(".py") else "//"
    compare(f"the page against {program.example}", without_head(original, comment), program.source)
    return original


def started(source: str, program: str, options: argparse.Namespace) -> list[str]:
    """Returns the command that the head of the source asks for; [] without a launcher."""
    launch = LAUNCH.search(head_of(source))
    if launch is None:
        return [*options.emulator, program]
    if options.launcher is None:
        return []
    return [*options.emulator, options.launcher, "launch", "-n", launch[1], "--", program]


def free_ports(sources: list[str]) -> dict[str, str]:
    """Returns a free port for each port at which the programs meet."""
    ports = {}
    with contextlib.ExitStack() as held:
        for port in sorted({port for source in sources for port in ADDRESS.findall(source)}):
            free = held.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            ports[port] = str(free.getsockname()[1])
    return ports


def with_ports(text: str, ports: dict[str, str]) -> str:
    return ADDRESS.sub(lambda found: f"127.0.0.1:{ports.get(found[1], found[1])}", text)


def is_listening(port: str) -> bool:
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return any(row[1].endswith(f":{int(port):04X}") and row[3] == LISTENING for row in rows)


def start_terminals(commands: list[list[str]], ports: list[str],
                    environments: list[dict[str, str]]) -> list[subprocess.Popen]:
    """Starts the commands in order, the next one when all of `ports` have a listener."""
    processes: list[subprocess.Popen] = []
    deadline = time.monotonic() + START_TIMEOUT_S
    for command, variables in zip(commands, environments, strict=True):
        while processes and not all(map(is_listening, ports)):
            if processes[-1].poll() is not None or time.monotonic() > deadline:
                stop_terminals(processes)
                raise Fault(f"nothing listens at {', '.join(ports)}, where the next program connects\n"
                            + "".join(map("".join, (process.communicate() for process in processes))))
            time.sleep(0.02)
        processes.append(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True))
    return processes


def stop_terminals(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()


def run_in_terminals(what: str, commands: list[list[str]], ports: list[str]) -> str:
    """Returns the output of the programs, one after the other."""
    processes = start_terminals(commands, ports, [environment()] * len(commands))
    printed = ""
    try:
        for process in processes:
            out, err = process.communicate(timeout=TIMEOUT_S)
            if process.returncode != 0:
                raise Fault(f"{what} ended with {process.returncode}\n{out}{err}")
            printed += out
    except subprocess.TimeoutExpired as expired:
        raise Fault(f"{what} did not end within {TIMEOUT_S} s") from expired
    finally:
        stop_terminals(processes)
    return printed


def check_scene(what: str, scene: Scene, folder: Path, root: Path, options: argparse.Namespace) -> bool:
    """Runs the scene; False if it cannot run here."""
    ports = free_ports([program.source for program in scene.programs])
    commands = []
    for number, program in enumerate(scene.programs):
        original = original_of(program, root)
        source, binary = folder / f"{number}.cpp", folder / str(number)
        source.write_text(with_ports(program.source, ports))
        run(f"compiling {what}",
            [options.compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror",
             *options.flag, f"-I{options.include}", str(source), str(options.library), "-lssl", "-lcrypto",
             "-lhwy", "-lpthread", *options.link, "-o", str(binary)], COMPILE_TIMEOUT_S)
        commands.append(started(original, str(binary), options))
    if not all(commands):
        return False
    compare(what, scene.output or "", run_in_terminals(what, commands, scene.awaited(ports)))
    return True


def check_programs(options: argparse.Namespace) -> None:
    ran = left_out = 0
    for page in options.page:
        scenes = cpp_scenes(page.read_text())
        if not scenes:
            raise Fault(f"{page} has no cpp block")
        root = next(folder for folder in page.absolute().parents if (folder / "examples").is_dir())
        for scene in scenes:
            what = f"{page.name}: " + (scene.programs[0].example or f"'{scene.programs[0].first_line()}'")
            with tempfile.TemporaryDirectory() as folder:
                if check_scene(what, scene, Path(folder), root, options):
                    ran += len(scene.programs)
                else:
                    left_out += len(scene.programs)
    print(f"{ran} programs print what the pages say; {left_out} left out for want of a launcher")


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
    output = "```text\nx\n```\n"
    refuses("a block that is no program", lambda: cpp_scenes("```cpp\nint x;\n```\n```text\n```\n"))
    refuses("a program without output", lambda: cpp_scenes(program))
    refuses("a program whose output is elsewhere", lambda: cpp_scenes(program + "words\n" + output))
    refuses("an output of nothing", lambda: cpp_scenes(program + output + output))
    refuses("a console without a command", lambda: scenes_of("```console\nx\n```\n", "python"))
    refuses("another output", lambda: compare("x", "pid 1\n", "pid 2\n"))
    refuses("an exit code", lambda: run("false", ["false"]))
    refuses("an exit code in a terminal", lambda: run_in_terminals("false", [["true"], ["false"]], []))
    refuses("a program that does not listen", lambda: run_in_terminals("true", [["true"], ["true"]], ["1"]))
    refuses("an example that says nothing", lambda: expected_of("// A\nint main() {}\n"))
    assert cpp_scenes(program + output) == [Scene([Program("int main() {}\n", "")], "x\n")]
    named = program.replace("cpp", "cpp examples/x.cpp") + "\n" + output
    assert cpp_scenes(named) == [Scene([Program("int main() {}\n", "examples/x.cpp")], "x\n")]
    two, = cpp_scenes(program + "\n" + program + output)
    assert len(two.programs) == 2
    assert len(cpp_scenes(program + output + program + output)) == 2
    page = program.replace("cpp", "python") + output + "```console\n$ a b\nc\nd\n$ e\n```\n"
    assert scenes_of(page, "python") == [Scene([Program("int main() {}\n", "")], "x\n", [("a b", "c\nd\n"), ("e", "")])]
    assert not cpp_scenes(page)
    assert scenes_of("```console\n$ a\n```\nwords\n" + page, "python")[0] == Scene(commands=[("a", "")])
    with tempfile.TemporaryDirectory() as folder:
        example = Path(folder, "a.py")
        example.write_text("# A head\nimport x\n# no head\n")
        assert original_of(Program("import x\n# no head\n", "a.py"), Path(folder)) == example.read_text()
        refuses("a block that differs from its file", lambda: original_of(Program("import y\n", "a.py"), Path(folder)))
    ports = free_ports(["127.0.0.1:7000 127.0.0.1:0", "127.0.0.1:7000"])
    assert list(ports) == ["7000"] and not is_listening(ports["7000"])
    assert with_ports("127.0.0.1:7000, 127.0.0.1:1", {"7000": "9"}) == "127.0.0.1:9, 127.0.0.1:1"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert is_listening(port)
        assert run_in_terminals("echo", [["echo", "a"], ["echo", "b"]], [port]) == "a\nb\n"
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
    programs.add_argument("page", type=Path, nargs="+")
    programs.add_argument("--compiler", required=True)
    programs.add_argument("--library", required=True)
    programs.add_argument("--include", required=True)
    programs.add_argument("--flag", action="append", default=[])
    programs.add_argument("--link", action="append", default=[], help="a further library")
    programs.set_defaults(check=check_programs)
    example = verbs.add_parser("example")
    example.add_argument("source", type=Path)
    example.add_argument("program", type=Path)
    example.set_defaults(check=check_example)
    for verb in (programs, example):
        verb.add_argument("--emulator", action="append", default=[])
        verb.add_argument("--launcher")
    run_verb(parser)


if __name__ == "__main__":
    main()
