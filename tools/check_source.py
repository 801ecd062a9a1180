#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the house that a line of text can show.

check_source.py [ROOT]        prints file:line and the rule that is broken; exit code 1 if any is
check_source.py --self-test   plants one fault per rule and expects each to be reported
"""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HEADER_LINES_MAX = 250
COLUMNS_MAX = 100
CODE = (".hpp", ".cpp", ".def")
SPDX = "SPDX-License-Identifier: Apache-2.0"
SPDX_FILES = (*CODE, ".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile", ".ci/run")
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


PRODUCT = ("include/", "src/", "cli/")
LINE_RULES = [
    LineRule("nothing a peer sent is ever executed: no system, popen, dlopen, eval, pickle",
             re.compile(r"(?<![\w.>])(?:::|std::)?(system|popen|dlopen|eval)\s*\(|\bpickle\b"), PRODUCT),
    LineRule("the library never prints: use the log callback",
             re.compile(r"\bstd::(cout|cerr|clog)\b|\bf?printf\s*\(|\bf?puts\s*\("),
             ("include/", "src/")),
    LineRule("a test waits for a condition, it never sleeps",
             re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\("), ("tests/",)),
    LineRule("leave nothing for later without an entry in CONTRIBUTING or the tracker",
             re.compile(r"\b(TODO|FIXME|XXX)\b"), (*PRODUCT, "tests/", "benchmarks/", "examples/"),
             in_comments=True),
    # grep leaves at its first match, the writer then dies of SIGPIPE, and pipefail calls it a failure.
    LineRule("a pipe into grep -q fails now and then: grep ... >/dev/null reads to the end",
             re.compile(r"\|\s*grep\s+-\w*q"), ("tools/", "tests/", ".ci/"), (".sh", ".ci/run")),
    # Broken up, so that this file does not match itself.
    LineRule("a path of one machine",
             re.compile(r"(?<![\w.$}/-])/(?:ro" r"ot|wo" r"rk|ho" r"me/\w+|Us" r"ers)/"), ("",), ("",),
             in_comments=True),
    LineRule("the host of a package registry",
             re.compile(r"py" r"pi\.org|pythonhos" r"ted\.org|crates" r"\.io|deb\.deb" r"ian\.org|"
                        r"(?:extra-)?index-u" r"rl|npmj" r"s\."), ("",), ("",), in_comments=True),
]
COMMENT = re.compile(r"//.*|/\*.*?\*/")


def files_of(root: Path) -> list[str]:
    """What git tracks or would add; every file but what was built where there is no git."""
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
        if not (name.startswith(rule.folders) and name.endswith(rule.suffixes)):
            continue
        for number, line in enumerate(lines, 1):
            if rule.pattern.search(line if rule.in_comments else COMMENT.sub("", line)):
                faults.append(f"{name}:{number}: {rule.says}")
    return faults


def check_error_pages(root: Path, names: list[str]) -> list[str]:
    """Each error has its page, and no page is left of an error that is gone."""
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


def check(root: Path) -> list[str]:
    names = files_of(root)
    faults = check_error_pages(root, names)
    for name in names:
        try:
            faults += check_text(name, (root / name).read_text())
        except UnicodeDecodeError:
            continue  # golden bytes, a fuzz corpus
    return faults


def self_test() -> None:
    head = f"// {SPDX}\n"
    good = {
        "src/core/a.cpp": head + "// system() is never called\nf(ErrorCode::system, std::snprintf(a));\n",
        "src/core/a.hpp": head + "#pragma once\n" + "\n" * (HEADER_LINES_MAX - 2),
        "tools/a.sh": f"#!/usr/bin/env bash\n# {SPDX}\n",
        "README.md": "build/release/bin/tendon lies in framework/src\n",
        ERROR_TABLE: head + 'TENDON_ERROR(107, peer_lost, reconnect, 13, PeerLost, "...")\n',
        "docs/errors/TD-E0107.md": "peer_lost\n",
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
        ("tests/unit/core/b_test.cpp", head + "std::this_thread::sleep_for(1ms);\n", "never sleeps"),
        ("tools/a.sh", "# " + head[3:] + "ldd a | grep -q b\n", "fails now and then"),
        ("src/core/b.cpp", head + "// TO" "DO later\n", "nothing for later"),
        ("docs/b.md", "see /ro" "ot/x\n", "path of one machine"),
        ("docs/b.md", "from https://py" "pi.org/x\n", "package registry"),
        ("docs/errors/TD-E0999.md", "x\n", "no such error"),
        ("docs/errors/TD-E0107.md", "x\n", "does not name the error"),
        (ERROR_TABLE, head + 'TENDON_ERROR(107, peer_lost)\nTENDON_ERROR(3, timeout)\n',
         "timeout has no page docs/errors/TD-E0003.md"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in good.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        assert check(root) == [], check(root)
        for name, text, rule in bad:
            file = root / name
            before = file.read_text() if file.exists() else None
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            faults = check(root)
            assert len(faults) == 1 and name in faults[0] and rule in faults[0], \
                f"planted {name}: {text!r}, expected {rule!r}, reported {faults}"
            file.unlink() if before is None else file.write_text(before)
    print(f"each of {len(bad)} planted faults was reported")


def main() -> int:
    if "--self-test" in sys.argv:
        self_test()
        return 0
    faults = check(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(faults) if faults else "source: every rule is kept")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
