#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that are visible in a line of text.

check_source.py [ROOT]        prints file:line and the rule that is broken; exit code 1 if any is
check_source.py --self-test   plants one fault per rule and expects each to be reported
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import checker

HEADER_LINES_MAX = 250
COLUMNS_MAX = 100
CODE = (".hpp", ".cpp", ".cu", ".def")
SPDX = "SPDX-License-Identifier: Apache-2.0"
SPDX_FILES = (*CODE, ".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile", ".ci/run")
BUILT = (".whl", ".so", ".a", ".o", ".pyc", ".zip", ".gz")
# The only binary files: pictures, inputs of fuzzers, and a file that another program wrote.
BINARIES = re.compile(r"docs/images/[\w-]+\.png|tests/fuzz/corpus/.*|tests/python/engine_support/golden\.safetensors")
ERROR_TABLE = "include/tendon/core/error_codes.def"
ERROR_ENTRY = re.compile(r"^TENDON_ERROR\((\d+),\s*(\w+)", re.MULTILINE)


@dataclass
class LineRule:
    """No line of the files below `folders` may match `pattern`."""

    says: str
    pattern: re.Pattern
    folders: tuple[str, ...]
    suffixes: tuple[str, ...] = CODE
    in_comments: bool = False
    but_for: str = ""  # the one exempt file


PRODUCT = ("include/", "src/", "cli/")
LINE_RULES = [
    LineRule("nothing a peer sent is ever executed: no system, popen, dlopen, eval, pickle",
             re.compile(r"(?<![\w.>])(?:::|std::)?(system|popen|dlopen|eval)\s*\(|\bpickle\b"), PRODUCT,
             but_for="src/cuda/library.cpp"),  # opens the library that the user's environment names
    LineRule("the library never prints: use the log callback",
             re.compile(r"\bstd::(cout|cerr|clog)\b|\bf?printf\s*\(|\bf?puts\s*\("),
             ("include/", "src/")),
    LineRule("clang cannot check this lock: use those of tendon/core/mutex.hpp",
             re.compile(r"\bstd::(\w*mutex|condition_variable\w*|(?:lock|unique|scoped|shared)_(?:guard|lock))\b"),
             (*PRODUCT, "python/bindings/"), but_for="include/tendon/core/mutex.hpp"),
    LineRule("a thread that cannot start is an error: start it by core/thread.hpp",
             re.compile(r"\bstd::(?:j?thread\b(?!::)|async\b)|\bpthread_create\s*\("),
             ("src/", "cli/", "python/bindings/"), but_for="src/core/thread.cpp"),
    LineRule("the program's locale chooses its language: use errno_text() of core/text.hpp",
             re.compile(r"\bstrerror(?:_[rl])?\s*\(|\b(?:generic|system)_category\(\)"),
             ("src/", "cli/", "python/bindings/"), but_for="src/core/text.cpp"),
    # C++20 destroys the temporary before the first iteration of the loop.
    LineRule("the loop outlives the pointer that a call returned: give the pointer a name first",
             re.compile(r"\bfor \([^;]*: (?:\*\s*)?\w[\w.]*\([^()]*\)->\w+\)"),
             (*PRODUCT, "python/bindings/", "tests/", "benchmarks/", "examples/")),
    LineRule("a test waits for a condition, it never sleeps",
             re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\("), ("tests/",)),
    LineRule("leave nothing for later without an entry in CONTRIBUTING or the tracker",
             re.compile(r"\b(TODO|FIXME|XXX)\b"), (*PRODUCT, "tests/", "benchmarks/", "examples/"),
             in_comments=True),
    # grep exits at its first match, the writer then dies of SIGPIPE, and pipefail makes that a failure.
    LineRule("a pipe into grep -q fails now and then: grep ... >/dev/null reads to the end",
             re.compile(r"\|\s*grep\s+-\w*q"), ("tools/", "tests/", ".ci/"), (".sh", ".ci/run")),
    # Split, so that this file does not match itself.
    LineRule("cite a page of docs/: a design note is not in the tree",
             re.compile(r"\b(?:SEMAN" r"TICS|RELIA" r"BILITY|DATA_P" r"LANE|STYLE_M" r"ODELS)\b|"
                        r"\b(?:GLOS" r"SARY|SEC" r"URITY|ARCHI" r"TECTURE) \d|//\s*[PR]\d{1,2}:"),
             ("",), ("",),
             in_comments=True),
    LineRule("name the subject: the caller, the peer, the member; no sentence begins with 'Of' or 'Who'",
             re.compile(r"(?://|#|^\s*\*|\"\"\").*\b[Ww]ho(?:m)?ever\b|"
                        r"(?:(?://+[!<]*|#|^\s*\*|\"\"\")\s*|(?://|#|\"\"\").*\. )(?:Of|Whom?) "),
             ("",), (*CODE, ".py"), in_comments=True),
    LineRule("a path of one machine",
             re.compile(r"(?<![\w.$}/-])/(?:ro" r"ot|wo" r"rk|ho" r"me/\w+|Us" r"ers)/"), ("",), ("",),
             in_comments=True),
    LineRule("the host of a package registry",
             re.compile(r"py" r"pi\.org|pythonhos" r"ted\.org|crates" r"\.io|deb\.deb" r"ian\.org|"
                        r"(?:extra-)?index-u" r"rl|npmj" r"s\."), ("",), ("",), in_comments=True),
]
# A type at namespace level, in clang-format's layout.
NAMESPACE_BEGINS = re.compile(r"namespace ?(.*) \{")
NAMESPACE_ENDS = re.compile(r"\}  // namespace")
TYPE = re.compile(r"(?:template.*> )?(?:struct|class|enum class|union) (?:[A-Z_]+ )?(\w+)\b(?!::)[^;]*(?:\{|$)")
COMMENT = re.compile(r"//.*|/\*.*?\*/")
# `docs/protocol.md, "Rings"`, also across two lines of a comment.
CITED = re.compile(r'\bdocs/([\w/-]+\.md)(?:,((?:(?: and|,)? "[^"\n]+")+))?')
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def files_of(root: Path) -> list[str]:
    """Returns the files that git tracks or would add; without git, every file except build outputs."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root,
                                check=True, capture_output=True, text=True).stdout.splitlines()
        return sorted(name for name in listed if (root / name).is_file())
    names = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.startswith("build/"))


def check_text(name: str, text: str) -> list[str]:
    faults = []
    lines = text.splitlines()
    if name.endswith(SPDX_FILES) and not any(SPDX in line for line in lines[:2]):
        faults.append(f"{name}:1: the first line is missing: {SPDX}")
    if name.endswith(".hpp") and "#pragma once" not in lines:
        faults.append(f"{name}:1: #pragma once is missing")
    if name.startswith(PRODUCT) and name.endswith(".hpp") and len(lines) > HEADER_LINES_MAX:
        faults.append(f"{name}:{len(lines)}: a header has at most {HEADER_LINES_MAX} lines: "
                      "one concept each")
    if name.endswith((".hpp", ".cpp")):
        faults += [f"{name}:{number}: a line has at most {COLUMNS_MAX} columns"
                   for number, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
    for rule in LINE_RULES:
        if not (name.startswith(rule.folders) and name.endswith(rule.suffixes)) or name == rule.but_for:
            continue
        for number, line in enumerate(lines, 1):
            if rule.pattern.search(line if rule.in_comments else COMMENT.sub("", line)):
                faults.append(f"{name}:{number}: {rule.says}")
    return faults


def check_error_pages(root: Path, names: list[str]) -> list[str]:
    """Checks that each error has its page, and that no page describes a removed error."""
    if ERROR_TABLE not in names:
        return []
    codes = ERROR_ENTRY.findall((root / ERROR_TABLE).read_text())
    wanted = {f"docs/errors/TD-E{int(number):04}.md": word for number, word in codes}
    pages = {name for name in names if re.fullmatch(r"docs/errors/TD-E\d+\.md", name)}
    faults = [f"{ERROR_TABLE}:1: {word} has no page {page}"
              for page, word in wanted.items() if page not in pages]
    faults += [f"{page}:1: no such error in {ERROR_TABLE}" for page in sorted(pages - set(wanted))]
    faults += [f"{page}:1: does not name the error '{wanted[page]}'"
               for page in sorted(pages & set(wanted)) if wanted[page] not in (root / page).read_text()]
    return faults


def check_citations(root: Path, name: str, text: str) -> list[str]:
    """Checks that the cited pages and sections of comments exist."""
    faults = []
    for cited in CITED.finditer(re.sub(r"\n\s*//+ ?", " ", text)):
        page = root / "docs" / cited[1]
        if not page.exists():
            faults.append(f"{name}:1: cites docs/{cited[1]}, which does not exist")
            continue
        headings = HEADING.findall(page.read_text())
        faults += [f"{name}:1: docs/{cited[1]} has no part \"{part}\""
                   for part in re.findall(r'"([^"]+)"', cited[2] or "") if part not in headings]
    return faults


def types_of(text: str) -> list[tuple[int, str]]:
    """Returns line and full name of each type that other files could use."""
    types = []
    spaces: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if begins := NAMESPACE_BEGINS.match(line):
            spaces.append(begins[1].replace("inline ", ""))
        elif NAMESPACE_ENDS.match(line) and spaces:
            spaces.pop()
        elif "" not in spaces and (found := TYPE.match(line)):
            types.append((number, "::".join([*spaces, found[1]])))
    return types


def check_types(name: str, text: str, first_places: dict[str, str]) -> list[str]:
    """Checks that a type has one definition; `first_places` has those of the files before."""
    return [f"{name}:{number}: {first} defines {full_name} too, and the linker takes the functions of "
            "one for those of the other"
            for number, full_name in types_of(text)
            if (first := first_places.setdefault(full_name, name)) != name]


def check(root: Path) -> list[str]:
    names = files_of(root)
    faults = check_error_pages(root, names)
    faults += [f"{name}:1: what was built or downloaded is no source" for name in names if name.endswith(BUILT)]
    first_places: dict[str, str] = {}
    for name in names:
        if BINARIES.fullmatch(name):
            continue
        try:
            text = (root / name).read_text()
            if "\0" in text:
                raise UnicodeDecodeError("text", b"", 0, 1, "a zero byte")
            faults += check_text(name, text)
            if name.endswith(CODE):
                faults += check_citations(root, name, text)
            if name.startswith(PRODUCT) and name.endswith((".hpp", ".cpp")):
                faults += check_types(name, text, first_places)
        except UnicodeDecodeError:
            faults.append(f"{name}:1: a binary is no source: build it, or name its place in tools/check_source.py")
    return faults


def self_test() -> None:
    head = f"// {SPDX}\n"
    good = {
        "src/core/a.cpp": head + "// system() is never called\nf(ErrorCode::system, std::snprintf(a));\n",
        "src/core/a.hpp": head + "#pragma once\n" + "\n" * (HEADER_LINES_MAX - 2),
        "src/core/types.hpp": head + "#pragma once\nnamespace a {\nstruct B {\n};\nstruct C;\nnamespace {\nstruct D {\n"
                              "};\n}  // namespace\n}  // namespace a\n",
        "src/core/types.cpp": head + "namespace a {\nnamespace {\nstruct B {\n};\n}  // namespace\nstruct C {\n};\n"
                              "struct D {\n};\n}  // namespace a\nnamespace b {\nclass B {\n};\n}  // namespace b\n",
        "src/core/words.cpp": head + "// docs/a.md says who may; f(Of members); \"Who may\" is a title.\n"
                              "f(Of::all, \"Who are you? Whoever.\");  // of all\n",
        "tools/a.sh": f"#!/usr/bin/env bash\n# {SPDX}\n",
        "README.md": "build/release/bin/tendon lies in framework/src\n",
        ERROR_TABLE: head + 'TENDON_ERROR(107, peer_lost, reconnect, 13, PeerLost, "...")\n',
        "docs/errors/TD-E0107.md": "peer_lost\n",
        "docs/a.md": "# A\n## Rings, and more\n## Doorbell\n",
        "src/core/c.cpp": head + '// See docs/a.md,\n// "Rings, and more" and "Doorbell"; or\n// docs/a.md.\n',
    }
    bad = [
        ("src/core/b.cpp", "int a;\n", "SPDX"),
        ("tools/b.py", "#!/usr/bin/env python3\n", "SPDX"),
        ("src/core/b.hpp", head, "#pragma once"),
        ("include/tendon/core/b.hpp", head + "#pragma once\n" + "\n" * (HEADER_LINES_MAX - 1),
         "at most 250 lines"),
        ("src/core/b.cpp", head + "// " + "x" * COLUMNS_MAX, "at most 100 columns"),
        ("src/core/b.cpp", head + "std::system(command);\n", "ever executed"),
        ("src/core/b.cpp", head + "if (void* h = dlopen(name, 1)) {}\n", "ever executed"),
        ("cli/b.cpp", head + 'FILE* f = ::popen("x", "r");\n', "ever executed"),
        ("src/core/b.cpp", head + 'std::printf("x");\n', "never prints"),
        ("src/core/b.cpp", head + "std::cerr << 1;\n", "never prints"),
        ("src/core/b.cpp", head + "const std::lock_guard lock(mutex_);\n", "clang cannot check this lock"),
        ("cli/b.cpp", head + "std::thread thread([] {});\n", "a thread that cannot start is an error"),
        ("src/core/b.cpp", head + "text = std::strerror(errno);\n", "chooses its language"),
        ("src/core/z.hpp", head + "#pragma once\nnamespace a {\nclass EXPORT B final : public C {\n};\n}  // namespace a\n",
         "defines a::B too"),
        ("src/core/b.cpp", head + "for (const Entry& entry : connections()->entries)\n", "outlives the pointer"),
        ("tests/unit/core/b_test.cpp", head + "std::this_thread::sleep_for(1ms);\n", "never sleeps"),
        ("tools/a.sh", "# " + head[3:] + "ldd a | grep -q b\n", "fails now and then"),
        ("src/core/b.cpp", head + "// TO" "DO later\n", "nothing for later"),
        ("src/core/b.cpp", head + "/// Of" " all members.\n", "name the subject"),
        ("src/core/b.cpp", head + "int a;  ///< Who" " has it\n", "name the subject"),
        ("src/core/b.cpp", head + "// Waits. Who" " comes late fails.\n", "name the subject"),
        ("tests/unit/core/b_test.cpp", head + "// Wakes who" "ever waits.\n", "name the subject"),
        ("tools/b.py", "# " + head[3:] + "# Who" "ever waits.\n", "name the subject"),
        ("docs/b.md", "see /ro" "ot/x\n", "path of one machine"),
        ("docs/b.md", "from https://py" "pi.org/x\n", "package registry"),
        ("src/core/b.cpp", head + "// what holds: SEMAN" "TICS 2.1\n", "cite a page of docs/"),
        ("tests/unit/core/b_test.cpp", head + "// R" "2: a peer is killed.\n", "cite a page of docs/"),
        ("src/core/b.cpp", head + "// docs/b.md says why\n", "does not exist"),
        ("src/core/b.cpp", head + '/// docs/a.md,\n/// "Slots".\n', 'has no part "Slots"'),
        ("src/core/b.cpp", head + '// docs/a.md, "Doorbell" and "Slots".\n', 'has no part "Slots"'),
        ("some-1.0-py3-none-any.whl", "x\n", "no source"),
        ("tools/helper", "\x7fELF\0", "a binary is no source"),
        ("docs/errors/TD-E0999.md", "x\n", "no such error"),
        ("docs/errors/TD-E0107.md", "x\n", "does not name the error"),
        (ERROR_TABLE, head + 'TENDON_ERROR(107, peer_lost)\nTENDON_ERROR(3, timeout)\n',
         "timeout has no page docs/errors/TD-E0003.md"),
    ]
    with checker.tree(good) as root:
        checker.expect_each(check, root, bad)
    print(f"each of {len(bad)} planted faults was reported")


if __name__ == "__main__":
    sys.exit(checker.run(check, self_test, "source: every rule is kept"))
