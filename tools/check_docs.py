#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the pages of docs/ with the tree they describe.

check_docs.py links ROOT                   every relative link of a page leads somewhere, headings included
check_docs.py environment ROOT             docs/environment.md lists the variables that the code reads, and no other;
                                           `tendon info` shows those of Tendon itself
check_docs.py threads ROOT                 docs/threads.md says of each public class what its header says
check_docs.py failpoints ROOT              docs/testing.md lists those of the code, and no other
check_docs.py glossary ROOT                no word of docs/glossary.md has two rows
check_docs.py names ROOT                   files, tests and members of classes that pages name are there
check_docs.py exit_codes ROOT              docs/cli.md has the exit code of each error
check_docs.py verbs ROOT --command TENDON  docs/cli.md has each verb that `tendon --help` lists, and no flag that
                                           no help has
check_docs.py limits ROOT --compiler CXX   docs/limits.md gives every limit of include/ its value
check_docs.py numbers ROOT                 pages and texts of the code repeat limits and constants as they are
check_docs.py readme ROOT                  README.md is short; its packages, states and figures are those of
                                           tools/packages.txt, docs/status.md and docs/benchmarks.md
check_docs.py --self-test                  plants faults and expects each to be reported
"""

import argparse
import fnmatch
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

from checker import Fault, run_verb
from debian_packages import packages_of
from doc_numbers import NUMBERS

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
GETENV = re.compile(r"\b(?:getenv|variable|environment|environment_variable)\(\s*\"(\w+)\"\s*\)")
# Names of variables with several names for one meaning, and a variable that the standard library reads.
NAMES_OF_VARIABLE = re.compile(r"^constexpr (?:std::initializer_list<const char\*>|Launcher) k\w+(?:\[\])? = \{(.*?)\};",
                               re.MULTILINE | re.DOTALL)
READ_BY_LIBRARY = {"temp_directory_path": "TMPDIR"}
ROW = re.compile(r"^\| `(\w[\w:]*)` \| ([^|]+?) \|.*?\| `([\w/.]+)` \|$", re.MULTILINE)
VARIABLE_ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
TABLE_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
# "/// Threads: safe everywhere; ..." of the next class: its name, and the text up to the first punctuation.
THREADS = re.compile(r"^/// Threads: ([^.;:,\n]+).*\n(?:(?:///|template).*\n)*(?:class|struct)"
                     r"(?: \[\[nodiscard\]\])?(?: [A-Z_]+)? (\w+)", re.MULTILINE)
# Code spans of a page: a file of the tree, a test, a member of a class.
SPAN = re.compile(r"`([^`\n]+)`")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
FILE_SPAN = re.compile(r"[\w.{},*/-]+\.(?:cpp|hpp|h|py|sh|md|def|proto|svg)")
TEST_SPAN = re.compile(r"([A-Z]\w+)\.(\*|[A-Z]\w+)")
MEMBER_SPAN = re.compile(r"\b([A-Za-z]\w+)::(\w+)")
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
EXIT_ROW = re.compile(r"^\| (\d+) \| (.*TD-E.*) \|$", re.MULTILINE)
ERROR = re.compile(r"^TENDON_ERROR\((\d+),\s*(\w+),\s*\w+,\s*(\d+),", re.MULTILINE)
FAILPOINT = re.compile(r"\bTENDON_FAILPOINT\(\"([\w.]+)\"\)")
FAILPOINT_TABLE = re.compile(r"^\| layer \| failpoints \|$\n((?:\|.*\|\n)+)", re.MULTILINE)
# The last section of a help; CLI11 indents each verb by two spaces.
SUBCOMMANDS = re.compile(r"^Subcommands:\n((?: +.*\n?|\n)+)", re.MULTILINE)
SUBCOMMAND = re.compile(r"^  ([a-z][\w-]*)(?: |$)", re.MULTILINE)
# A limit is a constant that a side must not exceed; the tables of limits cover these headers.
LIMIT_HEADERS = ("include/tendon/tensor/limits.hpp", "include/tendon/session/limits.hpp",
                 "include/tendon/fabric/limits.hpp", "include/tendon/control/limits.hpp")
CONSTANT = re.compile(r"^inline constexpr [\w:]+(?:<[^>]*>)? (k\w+)\b", re.MULTILINE)
# A constant of the code, in any header or source; its value, in braces or not.
CODE_CONSTANT = re.compile(r"^\s*(?:inline |static )*constexpr ([\w:]+) (k[A-Z]\w*)\s*(?:=\s*([^;]+)|\{([^;]*)\});",
                           re.MULTILINE)
NAME = re.compile(r"\b(?:\w+::)?k[A-Z]\w+")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
NUMBER = r"(2\^\d+(?: - 1)?|\d+(?: \d{3})*(?: (?:[KMG]iB|ms|s)\b)?)"
# Excludes parts of 127.0.0.1, SHA-256 or 0x1000.
WHOLE_NUMBER = re.compile(r"(?<![\w.:^])(?<![A-Za-z]-)" + NUMBER + r"(?![\w.]*\w)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
STRINGS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
# Below it a number is the value of too many constants.
SMALLEST_TELLING = 100
README_LINES_MAX = 150
# The packages for `pip install .`: all parts of the package, and virtual environments, into which pip installs.
INSTALL_GROUPS = ("wheel", "demo", "control", "zenoh")
APT_LINE = re.compile(r"^sudo apt-get install ((?:.*\\\n)*.*)$", re.MULTILINE)
# "**Status** ...: *works*: pipes, groups; *not begun*: encryption." against "| pipes | works | ... |".
STATUS_LINE = re.compile(r"^\*\*Status\*\*.*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
STATE_OF_LINE = re.compile(r"\*([^*]+)\*: ([^;]+?)[;.](?=\s|\Z)")
STATUS_ROW = re.compile(r"^\| ([^|]+?) \| (works|never run|begun|not begun|[^|]+?) \|(?: .*)?\|$", re.MULTILINE)
STATES = ("works", "never run", "begun", "not begun")
FIGURE = re.compile(r"(?<![\d.,])(\d[\d.,]*) us\b")


Things = TypeVar("Things")


def raise_if(faults: list[str]) -> None:
    if faults:
        raise Fault("\n".join(faults))


def found(what: str, things: Things) -> Things:
    """Fails if a search finds nothing, because the check would then accept everything."""
    if not things:
        raise Fault(f"no {what} was found: the search is broken")
    return things


def pages_of(root: Path) -> list[Path]:
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/*.md")])


def slug(heading: str) -> str:
    """Returns the anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


def link_faults(page: Path, text: str) -> list[str]:
    faults = []
    for target in LINK.findall(CODE.sub("", text)):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if file != page and not file.exists():
            faults.append(f"{page}: {target} does not exist")
        elif anchor and file.suffix == ".md":
            other = text if file == page else file.read_text()
            if anchor not in map(slug, HEADING.findall(CODE.sub(lambda m: m[0].strip("`"), other))):
                faults.append(f"{page}: {file.name} has no heading for #{anchor}")
    return faults


def check_links(options: argparse.Namespace) -> None:
    pages = pages_of(options.root)
    raise_if([fault for page in pages for fault in link_faults(page, page.read_text())])
    print(f"every link of {len(pages)} pages leads somewhere")


def variables_of(code: str) -> set[str]:
    names = set(GETENV.findall(code))
    for table in NAMES_OF_VARIABLE.findall(code):
        names |= set(re.findall(r'"(\w+)"', table))
    return names | {name for function, name in READ_BY_LIBRARY.items() if function in code}


def environment_faults(page: str, product: set[str], info: str, elsewhere: str) -> list[str]:
    programs, _, tests = page.partition("## Tests and builds")
    listed = set(VARIABLE_ROW.findall(programs))
    # A table row with several names counts for each of them.
    shown = listed | set(re.findall(r"`(\w+)`", "\n".join(TABLE_ROW.findall(programs))))
    faults = [f"docs/environment.md does not list {name}, which the code reads"
              for name in sorted(product - shown)]
    faults += [f"docs/environment.md lists {name}, which the code does not read"
               for name in sorted(listed - product)]
    faults += [f"`tendon info` (cli/info.cpp) does not show {name}, which the code reads"
               for name in sorted(product) if name.startswith(("TENDON_", "ZENOH_")) and f'"{name}"' not in info]
    faults += [f"docs/environment.md lists {name}, which nothing in tests/ or tools/ knows"
               for name in VARIABLE_ROW.findall(tests) if name not in elsewhere]
    return faults


def text_of(root: Path, *patterns: str) -> str:
    files = (file for pattern in patterns for file in root.glob(pattern) if file.is_file())
    return "\n".join(file.read_text(errors="replace") for file in files)


def check_environment(options: argparse.Namespace) -> None:
    root = options.root
    product = found("variable of the code", variables_of(text_of(root, "include/**/*.hpp", "src/**/*.[ch]pp", "cli/*.[ch]pp",
                                                                 "python/bindings/*.[ch]pp")))
    elsewhere = text_of(root, "tests/**/*.[ch]pp", "tools/*", "Makefile", "CMakePresets.json")
    page, info = (root / "docs/environment.md").read_text(), (root / "cli/info.cpp").read_text()
    raise_if(environment_faults(page, product, info, elsewhere))
    print(f"docs/environment.md lists all {len(product)} variables of the code")


def is_private(header: str, position: int) -> bool:
    opened = header.rfind("namespace detail {", 0, position)
    return opened >= 0 and not re.search(r"^}(?!;)", header[opened:position], re.MULTILINE)


def thread_rules(header: str) -> dict[str, str]:
    """Returns the text after `Threads:` of a header's public classes, up to the first punctuation."""
    return {match[2]: match[1].strip() for match in THREADS.finditer(header)
            if not is_private(header, match.start())}


def threads_faults(page: str, rules: dict[str, str]) -> list[str]:
    rows = [[cell.strip() for cell in row.strip("|").split("|", 1)] for row in TABLE_ROW.findall(page)]
    said = {name: row[1] for row in rows if len(row) == 2 for name in re.findall(r"`(\w+)`", row[0])}
    faults = []
    for name, rule in sorted(rules.items()):
        if name not in said:
            faults.append(f"docs/threads.md has no row for {name} (Threads: {rule})")
        elif rule.lower() not in said[name].replace("`", "").lower():
            faults.append(f"docs/threads.md says '{said[name]}' of {name}, whose header says '{rule}'")
    return faults


def check_threads(options: argparse.Namespace) -> None:
    root = options.root
    rules: dict[str, str] = {}
    for file in sorted(root.glob("include/**/*.hpp")):
        rules |= thread_rules(file.read_text())
    raise_if(threads_faults((root / "docs/threads.md").read_text(), found("class of the headers", rules)))
    print(f"docs/threads.md has the {len(rules)} classes of the headers")


def failpoint_faults(page: str, code: set[str]) -> list[str]:
    tables = FAILPOINT_TABLE.findall(page)
    if len(tables) != 1:
        return [f"docs/testing.md has {len(tables)} tables of failpoints"]
    listed = set(re.findall(r"`([\w.]+)`", tables[0]))
    faults = [f"docs/testing.md does not list the failpoint {name}" for name in sorted(code - listed)]
    return faults + [f"docs/testing.md lists the failpoint {name}, which the code does not have"
                     for name in sorted(listed - code)]


def check_failpoints(options: argparse.Namespace) -> None:
    root = options.root
    text = text_of(root, "src/**/*.[ch]pp", "cli/*.[ch]pp", "python/bindings/*.[ch]pp")
    code = found("failpoint of the code", set(FAILPOINT.findall(text)))
    raise_if(failpoint_faults((root / "docs/testing.md").read_text(), code))
    print(f"docs/testing.md lists all {len(code)} failpoints of the code")


def expanded(span: str) -> list[str]:
    """Expands `a/{b,c}_test.cpp` to its two names."""
    match = re.search(r"\{([^{}]*)\}", span)
    if not match:
        return [span]
    return [name for part in match[1].split(",")
            for name in expanded(span[:match.start()] + part + span[match.end():])]


def name_faults(page: Path, text: str, files: list[str], tests: set[tuple[str, str]], words: set[str]) -> list[str]:
    """`files`: those of the tree, each with a leading slash. A page may omit unambiguous folders."""
    faults = []
    suites = {suite for suite, _ in tests}
    for span in SPAN.findall(FENCED.sub("", text)):
        if FILE_SPAN.fullmatch(span):
            faults += [f"{page}: there is no file {name}" for name in expanded(span)
                       if not any(fnmatch.fnmatchcase(file, f"*/{name}") for file in files)]
        elif match := TEST_SPAN.fullmatch(span):
            if match[1] not in suites if match[2] == "*" else (match[1], match[2]) not in tests:
                faults.append(f"{page}: there is no test {span}")
        for scope, member in MEMBER_SPAN.findall(span):
            if not {scope, member} <= words:
                faults.append(f"{page}: the code has no {scope}::{member}")
    return faults


def check_names(options: argparse.Namespace) -> None:
    root = options.root
    folders = ("include", "src", "cli", "python", "tests", "tools", "examples", "benchmarks", "proto", "rust", "docs",
               "cmake", "deploy")
    files = [f"/{file.relative_to(root).as_posix()}" for folder in folders for file in root.glob(f"{folder}/**/*")]
    files += [f"/{file.name}" for file in root.iterdir()]
    code = text_of(root, *(f"{folder}/**/*.{kind}" for folder in folders[:8] for kind in ("[ch]pp", "h", "py", "def", "txt")))
    tests, words = found("test of the code", set(TEST.findall(code))), set(re.findall(r"\w+", code))
    pages = pages_of(root)
    raise_if([fault for page in pages for fault in name_faults(page, page.read_text(), files, tests, words)])
    print(f"the files, tests and members that {len(pages)} pages name are there")


def exit_code_faults(page: str, table: str) -> list[str]:
    rows = {name: (int(number), int(code)) for code, cell in EXIT_ROW.findall(page)
            for name, number in re.findall(r"(\w+) \(TD-E(\d+)\)", cell)}
    # The page describes 0 in its own words.
    errors = found("error of the code", {name: (int(number), int(code)) for number, name, code in ERROR.findall(table)
                                         if code != "0"})
    faults = [f"docs/cli.md has {name} as {rows.get(name, 'nothing')}, the code as {wanted} (number, exit code)"
              for name, wanted in errors.items() if rows.get(name) != wanted]
    return faults + [f"docs/cli.md has {name}, which is no error" for name in sorted(set(rows) - set(errors))]


def check_exit_codes(options: argparse.Namespace) -> None:
    table = (options.root / "include/tendon/core/error_codes.def").read_text()
    raise_if(exit_code_faults((options.root / "docs/cli.md").read_text(), table))
    print("docs/cli.md has the exit codes of all errors")


def glossary_faults(page: str) -> list[str]:
    words = [word.strip() for row in TABLE_ROW.findall(page) for word in row.strip("|").split("|")[0].split(",")]
    return [f"docs/glossary.md has '{word}' in two rows" for word in sorted(set(words))
            if words.count(word) > 1 and not re.fullmatch("-+", word)]


def check_glossary(options: argparse.Namespace) -> None:
    page = (options.root / "docs/glossary.md").read_text()
    raise_if(glossary_faults(page))
    print(f"docs/glossary.md has {len(TABLE_ROW.findall(page)) - 2} rows, and no word in two of them")


def verbs_of_help(text: str) -> list[str]:
    section = SUBCOMMANDS.search(text)
    return SUBCOMMAND.findall(section[1]) if section else []


def helps_of(command: Path, words: list[str]) -> dict[str, str]:
    """Returns the help of the command, and of each verb: `topic`, `topic list`, ..."""
    done = subprocess.run([command, *words, "--help"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Fault(f"{command} {' '.join(words)} --help ended with {done.returncode}")
    helps = {" ".join(words): done.stdout}
    for name in verbs_of_help(done.stdout):
        helps |= helps_of(command, [*words, name])
    return helps


def verb_faults(page: str, verbs: list[str]) -> list[str]:
    """A verb must appear in code with its parent verbs; one of many benchmarks may appear alone."""
    code = re.findall(r"`([^`\n]+)`", page)
    return [f"docs/cli.md has no `{verb}`, which `tendon --help` lists" for verb in verbs
            if not any(f"{span.removeprefix('tendon ')} ".startswith(f"{verb} ") for span in code)
            and verb.split()[-1] not in code]


def flag_faults(page: str, helps: str) -> list[str]:
    known = set(FLAG.findall(helps))
    # The arguments after "--" are those of another program.
    said = {flag for span in SPAN.findall(page) for flag in FLAG.findall(span.partition(" -- ")[0])}
    return [f"docs/cli.md has {flag}, which no help of the command has" for flag in sorted(said - known)]


def check_verbs(options: argparse.Namespace) -> None:
    helps = helps_of(options.command, [])
    verbs = found(f"verb of {options.command} --help", [verb for verb in helps if verb])
    page = (options.root / "docs/cli.md").read_text()
    raise_if(verb_faults(page, verbs) + flag_faults(page, "\n".join(helps.values())))
    print(f"docs/cli.md has all {len(verbs)} verbs of the command, and no other flag")


def value_of(text: str) -> tuple[str, int]:
    """Parses `64 MiB`, `65 536`, `2^63 - 1`, `5 s`, `1 MiB (1048576)` to ("", 67108864), ..., ("ms", 5000)."""
    text = re.sub(r"(?<=\d) (?=\d{3}\b)", "", text.split(" (")[0])
    if match := re.fullmatch(r"(\d+) (s|ms)", text):
        return "ms", int(match[1]) * (1000 if match[2] == "s" else 1)
    if match := re.fullmatch(r"2\^(\d+)( - 1)?", text):
        return "", (1 << int(match[1])) - (1 if match[2] else 0)
    if (match := re.fullmatch(r"(\d+)(?: (\w+))?", text)) and (match[2] or "") in UNITS:
        return "", int(match[1]) * UNITS[match[2] or ""]
    raise Fault(f"docs/limits.md or tools/doc_numbers.py: '{text}' is no value; legal are 4096, 64 MiB, 2^63 - 1, 5 s, 250 ms")


def cpp_value(text: str) -> str:
    """Formats a value as a C++ expression."""
    unit, value = value_of(text)
    return f"std::chrono::milliseconds({value})" if unit else f"{value}ull"


def limits_source(page: str) -> str:
    """Returns a translation unit that compiles only if every row is true."""
    rows = ROW.findall(page)
    lines = ["#include <chrono>", *(f'#include "{header}"' for header in sorted({row[2] for row in rows})),
             "using namespace tendon;", "namespace tendon::inline v0::detail {}",
             "using namespace tendon::detail;"]
    lines += [f'static_assert({name} == {cpp_value(value)}, "{name} is not {value}");'
              for name, value, _ in rows]
    return "\n".join(lines) + "\n"


def compile_only(compiler: str, root: Path, source: str) -> None:
    done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", f"-I{root / 'include'}",
                           f"-I{root / 'src'}", f"-I{root}", "-"],
                          input=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Fault("docs/limits.md:\n" + "\n".join(line for line in done.stderr.splitlines()
                                                     if "error:" in line))


def check_limits(options: argparse.Namespace) -> None:
    root = options.root
    page = (root / "docs/limits.md").read_text()
    constants = found("constant of the headers of limits", set(CONSTANT.findall(text_of(root, *LIMIT_HEADERS))))
    listed = {name for name, _, _ in ROW.findall(page)}
    raise_if([f"docs/limits.md does not list {name}" for name in sorted(constants - listed)])
    compile_only(options.compiler, root, limits_source(page))
    print(f"docs/limits.md gives {len(listed)} limits their values")


def code_value(kind: str, expression: str) -> tuple[str, int] | None:
    """Converts `std::uint64_t{16} << 20`, `1ull << 20`, seconds{5} to numbers; None for anything but arithmetic."""
    unit = re.search(r"std::chrono::(\w*seconds)\b", f"{kind} {expression}")
    plain = re.sub(r"\bstd::uint\d+_t\{(\d+)\}|std::chrono::\w+", r"\1", expression)
    plain = re.sub(r"(?<=\d)u?l?l?\b", "", plain.replace("'", ""), flags=re.IGNORECASE)
    factor = {"seconds": 1000, "milliseconds": 1}.get(unit[1], 0) if unit else 1
    if not factor or not re.fullmatch(r"(?!.*\b0\d)[\d\s()<+*-]+", plain):
        return None
    return "ms" if unit else "", factor * eval(plain)


def code_constants(text: str) -> dict[str, set[tuple[str, int]]]:
    """Returns the values of a name in the code: several if it is defined in several places."""
    constants: dict[str, set[tuple[str, int]]] = {}
    for kind, name, assigned, braced in CODE_CONSTANT.findall(text):
        if value := code_value(kind, assigned or braced):
            constants.setdefault(name, set()).add(value)
    return constants


def known_value(name: str, limits: dict[str, tuple[str, int]],
                constants: dict[str, set[tuple[str, int]]]) -> tuple[str, int]:
    if name in limits:
        return limits[name]
    values = constants.get(name, set())
    if len(values) != 1:
        raise Fault(f"tools/doc_numbers.py: neither docs/limits.md nor the code has one {name}: "
                    + (" and ".join(str(value) for _, value in sorted(values)) or "there is none"))
    return next(iter(values))


def computed(expression: str, limits: dict[str, tuple[str, int]],
             constants: dict[str, set[tuple[str, int]]]) -> tuple[str, int]:
    """Computes `2 * kA + 16` of known constants, or a value. The expressions are those of doc_numbers.py."""
    values = {name: known_value(name, limits, constants) for name in NAME.findall(expression)}
    if not values:
        return value_of(expression)
    plain = NAME.sub(lambda match: str(values[match[0]][1]), expression)
    return next(iter(values.values()))[0], eval(plain)


def prose(name: str, text: str) -> str:
    """Returns the text that a reader sees: a page's prose, or the string literals of code, one per line."""
    if name.endswith(".md"):
        return re.sub(r"\s+", " ", FENCED.sub("", text))
    lines = (line for line in text.splitlines()
             if not line.lstrip().startswith(("#", "//")) and "static_assert" not in line)
    literals = STRINGS.findall("\n".join(lines))
    return "\n".join(re.sub(r'"\s*"', "", literal)[1:-1] for literal in literals)


def number_faults(name: str, text: str, rows: list[tuple[str, str]],
                  limits: dict[str, tuple[str, int]], constants: dict[str, set[tuple[str, int]]],
                  is_complete: bool) -> list[str]:
    """Returns the rows that are missing or differ; with `is_complete` also values of limits without a row."""
    faults = []
    covered = set()
    for phrase, expression in rows:
        pattern = re.escape(phrase).replace(r"\{\}", NUMBER)
        found = list(re.finditer(pattern, text))
        if not found:
            faults.append(f"{name} does not say '{phrase}': mend its row of tools/doc_numbers.py")
        for match in found:
            covered.add(match.start(1))
            if value_of(match[1]) != computed(expression, limits, constants):
                faults.append(f"{name} says '{match[0]}', and {expression} is another number")
    telling = {value: constant for constant, value in limits.items()
               if value[0] or value[1] >= SMALLEST_TELLING}
    for match in WHOLE_NUMBER.finditer(text) if is_complete else ():
        constant = telling.get(value_of(match[1]))
        # A cell with only a number is the offset or the size of a field.
        is_cell = text[:match.start()].endswith("| ") and text[match.end():].startswith(" |")
        if constant and not is_cell and match.start(1) not in covered:
            around = text[max(0, match.start() - 30):match.end() + 20].strip()
            faults.append(f"{name}: '{around}' has the value of {constant}: name it, or another "
                          "constant, in tools/doc_numbers.py")
    return faults


def complete_files(root: Path) -> set[str]:
    """Returns the files in which every value of a limit needs a row: the texts about errors and bytes for users."""
    patterns = [f"{folder}/**/*.[ch]pp" for folder in ("include", "src", "cli", "python/bindings")]
    return {file.relative_to(root).as_posix() for pattern in (*patterns, "docs/errors/*.md", "docs/protocol.md")
            for file in root.glob(pattern)}


def check_numbers(options: argparse.Namespace) -> None:
    root = options.root
    page = (root / "docs/limits.md").read_text()
    limits = {name: value_of(value) for name, value, _ in ROW.findall(page)}
    constants = code_constants(text_of(root, "include/**/*.hpp", "src/**/*.[ch]pp"))
    complete = complete_files(root)
    faults = [f"tools/doc_numbers.py names {name}, which is no file"
              for name in NUMBERS if not (root / name).is_file()]
    for name in sorted({*NUMBERS, *complete}):
        if (root / name).is_file():
            text = prose(name, (root / name).read_text())
            faults += number_faults(name, text, NUMBERS.get(name, []), limits, constants, name in complete)
    raise_if(faults)
    print(f"{sum(map(len, NUMBERS.values()))} phrases of {len(complete)} files have the numbers of the code")


def status_rows(page: str) -> dict[str, list[str]]:
    """Returns the parts in each state, in the order of docs/status.md."""
    states: dict[str, list[str]] = {}
    for what, state in STATUS_ROW.findall(page):
        if not re.fullmatch(r"what|-+", what):
            states.setdefault(state, []).append(what)
    return states


def status_faults(readme: str, page: str) -> list[str]:
    rows = status_rows(page)
    faults = [f"docs/status.md: '{state}' is no state; there are {', '.join(STATES)}" for state in rows
              if state not in STATES]
    lines = STATUS_LINE.findall(readme)
    if len(lines) != 1:
        return [*faults, f"README.md has {len(lines)} paragraphs that begin with **Status**"]
    said = {state: re.split(r", | and (?=the )", " ".join(names.split())) for state, names in
            STATE_OF_LINE.findall(lines[0])}
    for state in STATES:
        ours, theirs = said.get(state, []), rows.get(state, [])
        faults += [f"README.md: '{name}' stands under '{state}', and not in docs/status.md"
                   for name in ours if name not in theirs]
        faults += [f"README.md: its status line has no '{name}' under '{state}', as docs/status.md has"
                   for name in theirs if name not in ours]
    return faults


def apt_faults(readme: str, wanted: set[str]) -> list[str]:
    """Checks the line that installs the required packages, in any order."""
    lines = APT_LINE.findall(readme)
    if len(lines) != 1:
        return [f"README.md has {len(lines)} lines with sudo apt-get install"]
    given = {word for word in lines[0].replace("\\\n", " ").split() if not word.startswith("-")}
    faults = [f"README.md does not install {name}, a package of tools/packages.txt" for name in sorted(wanted - given)]
    return faults + [f"README.md installs {name}, which is not in {', '.join(INSTALL_GROUPS)} of tools/packages.txt"
                     for name in sorted(given - wanted)]


def figure_faults(readme: str, benchmarks: str) -> list[str]:
    figures = FIGURE.findall(CODE.sub("", readme))
    if not figures:
        return ["README.md gives no figure in us: the search is broken, or its plot has none"]
    return [f"README.md: {figure} us is no figure of docs/benchmarks.md" for figure in figures
            if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d.,]*\d)", benchmarks)]


def check_readme(options: argparse.Namespace) -> None:
    root = options.root
    readme = (root / "README.md").read_text()
    faults = [] if readme.count("\n") <= README_LINES_MAX else [
        f"README.md has {readme.count(chr(10))} lines, at most {README_LINES_MAX}: move what is not for everybody"]
    faults += status_faults(readme, (root / "docs/status.md").read_text())
    faults += apt_faults(readme, set(packages_of(root, *INSTALL_GROUPS)))
    faults += figure_faults(readme, (root / "docs/benchmarks.md").read_text())
    raise_if(faults)
    print("README.md has the states, packages and figures of the pages that it sums up")


def self_test() -> None:
    def reports(what: str, faults: list[str]) -> None:
        if not faults:
            sys.exit(f"self-test: {what} was not reported")

    here = Path(__file__).with_name("page.md")
    name = Path(__file__).name
    reports("a dead link", link_faults(here, "[x](no_such_page.md)"))
    reports("a dead anchor", link_faults(here, f"# A\n[x](#b) [y]({name})"))
    assert not link_faults(here, f"# A `b`, c\n[x](#a-b-c) [y]({name}) `[z](nowhere)` [w](http://x)")
    page = "| `A` | x |\n| rank | `C` |\n## Tests and builds\n| `B` | x |\n"
    reports("an undocumented variable", environment_faults(page, {"A", "D"}, "", "B"))
    reports("a variable that nobody reads", environment_faults(page, set(), "", "B"))
    reports("a variable of no test", environment_faults(page, {"A"}, "", ""))
    assert not environment_faults(page, {"A", "C"}, "", "B")
    reports("a variable that `tendon info` hides",
            environment_faults(page.replace("`A`", "`TENDON_A`"), {"TENDON_A"}, 'x("TENDON_AB")', "B"))
    assert not environment_faults(page.replace("`A`", "`TENDON_A`"), {"TENDON_A"}, 'x("TENDON_A")', "B")
    assert variables_of('f(std::getenv("A"), variable(\n"B"), other("C"));\nconstexpr std::initializer_list<const char*>'
                        ' kRankNames = {"D",\n "E"};\nconstexpr Launcher kAll[] = {\n{"F", "G"},\n};\nif (environment("H"))\nstd::filesystem::temp_directory_path()') == {
                            "A", "B", "D", "E", "F", "G", "H", "TMPDIR"}
    header = ("namespace tendon {\nnamespace detail {\nclass A;\n}\nnamespace detail {\nstruct B {\n};\n/// Threads: a value.\nstruct Hidden {\n}  // namespace detail\n"
              "/// Owns:    x.\n/// Threads: safe everywhere; more.\n/// Cost:    x.\n///\n/// And.\n"
              "class TENDON_API Wide {\n};\n/// Threads: one thread at a time.\ntemplate <class T>\n"
              "class [[nodiscard]] Narrow {\n")
    rules = thread_rules(header)
    assert rules == {"Wide": "safe everywhere", "Narrow": "one thread at a time"}, rules
    table = "| object | threads |\n|---|---|\n| `Wide`, `Flat` | safe everywhere |\n| `Narrow` | One thread at a time |\n"
    assert not threads_faults(table, rules)
    reports("a class without a row", threads_faults(table.replace("`Narrow`", "`Other`"), rules))
    reports("a class in the row of others", threads_faults(table.replace("`Flat`", "`Narrow`").replace(
        "| `Narrow` | O", "| `Flat` | O"), rules))
    points = "| layer | failpoints |\n|---|---|\n| shm | `a.b`, `c.d` (what) |\n\n`e.f`\n"
    assert not failpoint_faults(points, {"a.b", "c.d"})
    reports("a failpoint that is not listed", failpoint_faults(points, {"a.b", "c.d", "e.f"}))
    reports("a failpoint that is gone", failpoint_faults(points, {"a.b"}))
    reports("a page without failpoints", failpoint_faults("", {"a.b"}))
    def named(text: str) -> list[str]:
        return name_faults(here, text, ["/src/a.cpp", "/tests/b_test.cpp", "/tests/c_test.cpp"], {("Suite", "Test")},
                           {"Class", "member"})

    reports("a file that is gone", named("`src/gone.cpp`"))
    reports("one of two files that is gone", named("`tests/{b,d}_test.cpp`"))
    reports("a test that is gone", named("`Suite.Gone`"))
    reports("a suite that is gone", named("`Gone.*`"))
    reports("a member that is gone", named("`Class::gone()`"))
    assert not named("`a.cpp` `tests/{b,c}_test.cpp` `*_test.cpp` `Suite.Test` `Suite.*` `Class::member()` src/gone.cpp"
                     "\n```\n`gone.cpp`\n```\n")
    errors = "TENDON_ERROR(3,   timeout, retry_later,  4,  T)\nTENDON_ERROR(101, ended, x, 0, E)\n"
    assert not exit_code_faults("| 4 | timeout (TD-E0003) |\n", errors)
    reports("another exit code", exit_code_faults("| 5 | timeout (TD-E0003) |\n", errors))
    reports("an error without an exit code", exit_code_faults("", errors))
    reports("an exit code of no error", exit_code_faults("| 4 | timeout (TD-E0003), gone (TD-E0004) |\n", errors))
    reports("a word in two rows", glossary_faults("| word | meaning |\n|---|---|\n| A, B | x |\n| B | y |\n"))
    assert not glossary_faults("| word | meaning |\n|---|---|\n| A, B | x |\n|---|---|\n| C | B, A |\n")
    helped = ("Usage: tendon [OPTIONS] SUBCOMMAND\n\nOptions:\n  -h,--help  Print\n\nSubcommands:\n"
              "  send                        Sends\n  make-it\n                              Wraps\n\nstdout is data.\n")
    assert verbs_of_help(helped) == ["send", "make-it"] and not verbs_of_help("Usage: tendon send FILE\n")
    assert not verb_faults("| `send FILE` | x |\n`tendon topic list` `reduce`", ["send", "topic list", "bench reduce"])
    assert not flag_faults("`tendon send --json` `-o DIR`, `--all` `launch --json -- python --other`", "  --json  x\n  -a,--all\n")
    reports("a flag that is gone", flag_faults("`send --gone`", "--json"))
    reports("a verb without a word", verb_faults("`sender` `topic`", ["send"]))
    reports("a verb below another without a word", verb_faults("`topic` `topic lists`", ["topic", "topic list"]))
    row = "| `kMaxX` | 1 MiB (1048576) | what | `tendon/x.hpp` |\n"
    assert "kMaxX == 1048576ull" in limits_source(row)
    assert cpp_value("2^63 - 1") == f"{(1 << 63) - 1}ull" and cpp_value("5 s") == "std::chrono::milliseconds(5000)"
    limits = {"kMaxX": ("", 4096), "Ring::kPlaces": ("", 1024), "kPause": ("ms", 5000)}
    constants = code_constants("constexpr std::size_t kMostEarly = 65'536;\n  static constexpr std::uint64_t kPiece"
                               " = std::uint64_t{1} << 20;\nconstexpr std::uint64_t kPiece = 1ull << 20;\n"
                               "inline constexpr std::chrono::seconds kAge{15};\nconstexpr int kTwice = 1;\n"
                               "constexpr int kTwice = 2;\nconstexpr std::string_view kWhere = \"a\";\n")
    assert constants == {"kMostEarly": {("", 65536)}, "kPiece": {("", 1 << 20)}, "kAge": {("ms", 15000)},
                         "kTwice": {("", 1), ("", 2)}}

    def numbers(text: str, *rows: tuple[str, str]) -> list[str]:
        return number_faults("page.md", prose("page.md", text), list(rows), limits, constants, True)

    def reports_row(what: str, expression: str) -> None:
        try:
            reports(what, numbers("at most 1", ("most {}", expression)))
        except Fault:
            return
        sys.exit(f"self-test: {what} was compared")

    reports("another number than the constant", numbers("at most 4095 bytes", ("most {} bytes", "kMaxX")))
    reports("another unit", numbers("after 5000 s", ("after {}", "kPause")))
    reports("an expression that changed", numbers("at most 4080", ("most {}", "kMaxX - 15")))
    reports("a phrase that is gone", numbers("no number", ("most {} bytes", "kMaxX")))
    reports("a limit without a row", numbers("up to 4 KiB of text"))
    reports("a time without a row", numbers("within 5 s"))
    assert not numbers("at most 4 096\nbytes, 1-1024 | 4096 | SHA-4096 10.4096 `kMaxX` 7 s\n```\n4096\n```\n",
                       ("most {} bytes", "kMaxX"), ("1-{}", "Ring::kPlaces"))
    reports("another number than a constant of the code", numbers("up to 65535", ("up to {}", "kMostEarly")))
    reports("another time than a constant of the code", numbers("for 14 s", ("for {}", "kAge")))
    reports("an ordinal", numbers("the 4098th", ("the {}th", "kMaxX + 1")))
    reports_row("a constant that is nowhere", "kNowhere")
    reports_row("a constant that has two values", "kTwice")
    assert not numbers("up to 65 536 of 1 MiB, the 4097th", ("up to {}", "kMostEarly"), ("of {}", "kPiece"),
                       ("the {}th", "kMaxX + 1"))
    code = prose("a.cpp", '// "1024"\nf("its 10"\n  "24 pipes", 4096);\n')
    reports("a limit in an error text", number_faults("a.cpp", code, [], limits, constants, True))
    assert not number_faults("a.cpp", code, [("its {} pipes", "Ring::kPlaces")], limits, constants, True)
    status = "| what | state | |\n|---|---|---|\n| pipes | works | x |\n| the command | works | |\n| GPUs | not begun | |\n"
    line = "**Status** (x.md): *works*: pipes and\nthe command; *not begun*: GPUs.\n\nwords; *works*: no;\n"
    assert not status_faults(line, status)
    reports("a row that the README leaves out", status_faults(line.replace("pipes and\n", ""), status))
    reports("a state that changed", status_faults(line, status.replace("not begun", "never run")))
    reports("a name without a row", status_faults(line.replace("GPUs", "GPUs, TPUs"), status))
    reports("a state that is none", status_faults(line, status + "| x | almost | |\n"))
    reports("a README without status", status_faults("", status))
    packages = {"a", "b", "c++", "e"}
    apt = "```sh\nsudo apt-get install -y a b \\\n  c++ e\npip install .\n```\n"
    assert not apt_faults(apt, packages)
    reports("a package that is not installed", apt_faults(apt.replace(" b", ""), packages))
    reports("a package too many", apt_faults(apt.replace(" e", " e f"), packages))
    reports("a README that installs nothing", apt_faults("", packages))
    assert not figure_faults("takes 4,131 us, 1.5 us. `7 us`", "| 4,131 (4,060..4,508) us | 1.5 |")
    reports("a figure that was not measured", figure_faults("takes 4,131 us", "| 14,131 us | 4,131.5 |"))
    reports("a README without figures", figure_faults("fast", "fast"))
    root = Path(__file__).parent.parent
    for name in ("docs/errors/TD-E0108.md", "python/bindings/listener.cpp", "cli/main.cpp", "src/core/error.cpp"):
        if name not in complete_files(root):
            sys.exit(f"self-test: {name} is not read for numbers")
    try:
        cpp_value("many")
    except Fault:
        print("self-test: every planted fault was reported")
    else:
        sys.exit("self-test: a value that is none was not reported")


def main() -> None:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    for name, check in (("links", check_links), ("environment", check_environment), ("threads", check_threads),
                        ("failpoints", check_failpoints), ("glossary", check_glossary),
                        ("names", check_names), ("exit_codes", check_exit_codes), ("verbs", check_verbs), ("limits", check_limits), ("numbers", check_numbers), ("readme", check_readme)):
        verb = verbs.add_parser(name)
        verb.add_argument("root", type=Path)
        verb.set_defaults(check=check)
        if name == "limits":
            verb.add_argument("--compiler", default="c++")
        if name == "verbs":
            verb.add_argument("--command", type=Path, required=True)
    run_verb(parser)


if __name__ == "__main__":
    main()
