#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chooses the files for the slow checks of .ci/run: files near the change, and a rotating part of the others.

affected_tests.py cpp|python|tidy [--base COMMIT]   prints the chosen files, one a line
affected_tests.py --self-test                       plants changes and expects the right choice

The change is everything except comments that differs from the newest commit that is over a day old, or from --base.
The distance of a file is the number of steps from it to a changed one. A file depends on the headers that it includes,
a header on the sources that implement it (same layer, same beginning of the name), and a test in Python on the binding
that registers a name it uses. The nearest files are chosen first, up to N lines of them together (KINDS), so that a
change of half the tree is checked in time too. Then all files are cut into K parts of similar size, and the number of
commits selects one more part. stderr lists the files that were left out.

  cpp      tests/unit and tests/conformance, for the sanitizers
  python   tests/python, for the sanitizers
  tidy     src, cli and python/bindings, for clang-tidy
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import deque
from pathlib import Path

import checker

CODE = (".hpp", ".cpp", ".def")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
PYTHON_IMPORT = re.compile(r"^\s*(?:from|import) +([\w.]+)", re.MULTILINE)
# A class or a function that a binding registers.
REGISTERED = re.compile(r'\(\s*module,\s*"(\w{4,})"|\.def\w*\(\s*"(\w{4,})"')
WORD = re.compile(r"\w{4,}")
# A comment, or a literal, which may contain the characters that begin a comment.
LITERAL_OR_COMMENT = re.compile(r'''R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/''', re.DOTALL)
KINDS = {"cpp": (re.compile(r"tests/(unit/.*|conformance)/[^/]*_test\.cpp"), 3000),
         # Without tests that run programs and tools, or torch's arithmetic: little of their time is spent in the
         # extension module.
         "python": (re.compile(r"tests/python/test_(?!packaging|typing|pages|examples|deploy|brain|engine)\w+\.py"), 1000),
         "tidy": (re.compile(r"(src|cli|python/bindings)/.*\.cpp"), 6000)}
# A prime, so that landings of any number of commits select every part in the end.
PARTS = 13


class Graph:
    """The files of the tree that each file depends on directly."""

    def __init__(self, root: Path, names: list[str]) -> None:
        self.names = set(names)
        self.texts = {name: (root / name).read_text(errors="replace")
                      for name in names if name.endswith((*CODE, ".py", ".proto"))}
        self.needs: dict[str, set[str]] = {name: set() for name in names}
        for name, text in self.texts.items():
            if name.endswith(CODE):
                self.needs[name] |= {found for word in INCLUDE.findall(text) if (found := self.included(name, word))}
        self.add_implementations()
        self.add_python()

    def included(self, name: str, word: str) -> str | None:
        word = re.sub(r"\.pb\.h$", ".proto", word)
        beside = f"{name.rpartition('/')[0]}/{word}"
        places = [beside, *(f"{place}/{word}" for place in ("include", "src", "tests", "proto", "examples/engine")), word]
        return next((place for place in places if place in self.names), None)

    def add_implementations(self) -> None:
        for source in [name for name in self.names if name.endswith(".cpp")]:
            for header in list(self.needs[source]):
                same_layer = layer_of(header) == layer_of(source)
                if header.endswith(".hpp") and same_layer and Path(source).stem.startswith(Path(header).stem):
                    self.needs[header].add(source)

    def add_python(self) -> None:
        registered_by: dict[str, set[str]] = {}
        for name in self.names:
            if name.startswith("python/bindings/") and name.endswith(".cpp"):
                for pair in REGISTERED.findall(self.texts[name]):
                    registered_by.setdefault(pair[0] or pair[1], set()).add(name)
        for name in self.names:
            if not name.endswith(".py"):
                continue
            folder = name.rpartition("/")[0]
            for module in PYTHON_IMPORT.findall(self.texts[name]):
                path = module.strip(".").replace(".", "/")
                places = [f"{base}/{path}{end}" for base in (folder, "python") for end in (".py", "/__init__.py")]
                self.needs[name] |= {place for place in places if place in self.names}
            for word in set(WORD.findall(self.texts[name])):
                # A name that several bindings register, such as "close", tells nothing.
                if len(found := registered_by.get(word, set())) == 1:
                    self.needs[name] |= found

    def distances(self, changed: set[str]) -> dict[str, int]:
        """Returns the distance of each file that depends on a changed one."""
        needed_by: dict[str, list[str]] = {}
        for name, needs in self.needs.items():
            for need in needs:
                needed_by.setdefault(need, []).append(name)
        far = {name: 0 for name in changed if name in self.names}
        waiting = deque(far)
        while waiting:
            name = waiting.popleft()
            for user in needed_by.get(name, []):
                if user not in far:
                    far[user] = far[name] + 1
                    waiting.append(user)
        return far


def layer_of(name: str) -> str:
    parts = name.removeprefix("include/tendon/").removeprefix("src/").split("/")
    return parts[0] if len(parts) > 1 else ""


def parts_of(sizes: dict[str, int], count: int) -> list[set[str]]:
    """Cuts the files into `count` parts of similar size, the same for every commit with the same files."""
    parts: list[tuple[int, set[str]]] = [(0, set()) for _ in range(count)]
    for name in sorted(sizes, key=lambda each: (-sizes[each], each)):
        least = min(range(count), key=lambda index: parts[index][0])
        total, names = parts[least]
        parts[least] = (total + sizes[name], names | {name})
    return [names for _, names in parts]


def choose(sizes: dict[str, int], far: dict[str, int], lines: int, part: set[str]) -> tuple[list[str], list[str]]:
    """Returns the chosen files, and the files in or near the change that were left out."""
    near = sorted((name for name in sizes if name in far), key=lambda name: (far[name], name))
    chosen, left, total = [], [], 0
    for name in near:
        total += sizes[name]
        (chosen if total <= lines else left).append(name)
    chosen += sorted(part - set(chosen))
    return chosen, [name for name in left if name not in part]


def code_of(name: str, text: str) -> str:
    """Returns the text without its comments, and C++ without white space; an unknown kind of file unchanged."""
    if name.endswith(CODE):
        return "".join(LITERAL_OR_COMMENT.sub(lambda found: "" if found[0].startswith("/") else found[0], text).split())
    if name.endswith(".py"):
        try:
            return ast.unparse(ast.parse(text))
        except SyntaxError:
            return text
    return text


def git(*arguments: str, root: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--base")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    base = options.base or git("rev-list", "-1", "--before=1 day ago", "HEAD", root=root).strip()
    names = [name for name in git("ls-files", "-co", "--exclude-standard", root=root).splitlines()
             if (root / name).is_file()]
    # Without an older commit, everything is new. Uncommitted files are new too.
    changed = set(git("diff", "--name-only", base, root=root).splitlines() if base else names)
    changed |= set(git("ls-files", "-o", "--exclude-standard", root=root).splitlines())
    pattern, lines = KINDS[options.kind]
    graph = Graph(root, names)
    before = set(git("ls-tree", "-r", "--name-only", base, root=root).splitlines()) if base else set()
    changed -= {name for name in changed & before & set(graph.texts)
                if code_of(name, graph.texts[name]) == code_of(name, git("show", f"{base}:{name}", root=root))}
    sizes = {name: graph.texts[name].count("\n") for name in names if pattern.fullmatch(name)}
    number = int(git("rev-list", "--count", "HEAD", root=root)) % PARTS
    far = graph.distances(changed)
    chosen, left = choose(sizes, far, lines, parts_of(sizes, PARTS)[number])
    print("\n".join(chosen))
    print(f"{options.kind}: {len(chosen)} of {len(sizes)} files, {sum(sizes[name] for name in chosen)} of "
          f"{sum(sizes.values())} lines: the nearest to what changed since {base[:9] or 'the beginning'}, and part "
          f"{number + 1} of {PARTS} of all; {len(left)} that the change touches, or that depend on it by more steps, are left out",
          file=sys.stderr)
    return 0


def self_test() -> None:
    files = {
        "include/tendon/core/error.hpp": "",
        "src/core/error.cpp": "#include <tendon/core/error.hpp>\n",
        "src/pipe/pipe_core.hpp": "#include <tendon/core/error.hpp>\n",
        "src/pipe/pipe_core_send.cpp": '#include "pipe/pipe_core.hpp"\n#include "pipe/queue.hpp"\n',
        "src/pipe/queue.hpp": "",
        "src/group/rank.hpp": "",
        "python/bindings/group.cpp": '#include "group/rank.hpp"\nnb::class_<G>(module, "Group").def("close")',
        "python/bindings/pipe.cpp": 'nb::class_<P>(module, "Pipe").def("close").def("send_on")',
        "proto/tendon/v1/step.proto": "",
        "tests/unit/core/error_test.cpp": "#include <tendon/core/error.hpp>\n",
        "tests/unit/pipe/send_test.cpp": '#include "pipe/pipe_core.hpp"\n',
        "tests/unit/group/rank_test.cpp": '#include "group/rank.hpp"\n#include "helper.hpp"\n',
        "tests/unit/group/helper.hpp": "#include <tendon/v1/step.pb.h>\n",
        "tests/python/test_group.py": "tendon.Group.close()\n",
        "tests/python/test_pipe.py": "tendon.Pipe.send_on()\n",
    }
    with checker.tree(files) as root:
        graph = Graph(root, list(files))
    cases = [  # changed, a file, its distance
        ("include/tendon/core/error.hpp", "tests/unit/core/error_test.cpp", 1),
        ("src/core/error.cpp", "tests/unit/core/error_test.cpp", 2),  # through the header
        ("src/core/error.cpp", "tests/unit/pipe/send_test.cpp", 3),
        ("src/pipe/queue.hpp", "tests/unit/pipe/send_test.cpp", 3),  # through what implements the header
        ("src/pipe/queue.hpp", "tests/unit/group/rank_test.cpp", None),
        ("proto/tendon/v1/step.proto", "tests/unit/group/rank_test.cpp", 2),
        ("src/group/rank.hpp", "tests/python/test_group.py", 2),
        ("src/group/rank.hpp", "tests/python/test_pipe.py", None),  # both have a close()
        ("python/bindings/pipe.cpp", "tests/python/test_pipe.py", 1),
    ]
    for changed, name, wanted in cases:
        assert graph.distances({changed}).get(name) == wanted, (changed, name, graph.distances({changed}))
    same = [("a.cpp", "int a; // why\n/* b */ int b;", "int a;\nint b; // \"c\""), ("a.py", "a = 1  # why\n", "a = 1\n")]
    other = [("a.cpp", 'f("// a");', 'f("// b");'), ("a.cpp", "f('\\''); // a", "f('\"'); // a"),
             ("a.cpp", 'R"x(// a)x"', 'R"x(// b)x"'), ("a.py", "a = 1", "a = 2"), ("a.txt", "# a", "# b")]
    for name, one, two in same + other:
        assert (code_of(name, one) == code_of(name, two)) == ((name, one, two) in same), (name, one, two)
    sizes = {"a": 10, "b": 10, "c": 10, "d": 10}
    assert choose(sizes, {"a": 1, "b": 2}, 20, set()) == (["a", "b"], [])
    assert choose(sizes, {"a": 2, "b": 1}, 19, set()) == (["b"], ["a"]), "the nearest first"
    assert choose(sizes, {"a": 0, "b": 0, "c": 0, "d": 0}, 20, set()) == (["a", "b"], ["c", "d"]), "so many lines"
    assert choose(sizes, {"a": 1, "b": 0}, 10, set()) == (["b"], ["a"]), "changed, then near"
    assert choose(sizes, {"a": 1}, 0, {"a", "c"}) == (["a", "c"], []), "the part that rotates"
    parts = parts_of(sizes, 2)
    assert set.union(*parts) == set(sizes) and not parts[0] & parts[1] and len(parts[0]) == 2, parts
    print(f"self-test: {len(cases)} distances, {len(same + other)} changes and 5 choices are right")


if __name__ == "__main__":
    sys.exit(main())
