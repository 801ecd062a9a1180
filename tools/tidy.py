#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the files of each PLACE as they are compiled in BUILD.

tidy.py BUILD JOBS PLACE...   PLACE: a folder, or a file
tidy.py --self-test   plants a fault and expects it to be reported

It takes some seconds a file, most of them for its headers. Files with the same compiler options are therefore joined
into units and checked together first, unless they define the same name: BUILD/names.txt (cmake/quick_build.cmake)
lists the names of each. If a unit has findings, each of its files is checked by itself.

A clean file leaves a stamp, the list of our files that it includes. It is checked again
only when one of these changed, or a .clang-tidy above it.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# g++ has warnings whose names clang does not know.
CLANG_TIDY = ["clang-tidy-16", "--quiet", "--extra-arg=-Wno-unknown-warning-option"]


# Larger units save little, and a finding in one costs more.
UNIT_FILES = 16


def compiler_flags(entry: dict) -> list[str]:
    """Returns the compiler options of a file, without its own name and its object's."""
    arguments = shlex.split(entry["command"])
    # The compiler may have a prefix: ccache, an environment.
    compiler = next(i for i, argument in enumerate(arguments) if re.search(r"(^|/)(clang|g|c)\+\+[-0-9.]*$", argument))
    flags = []
    previous = ""
    for argument in arguments[compiler:]:
        if argument not in ("-c", "-o", entry["file"]) and previous != "-o":
            flags.append(argument)
        previous = argument
    return flags


def included_files(entry: dict) -> list[Path]:
    """Returns our files that a source includes."""
    listed = subprocess.run([*compiler_flags(entry), "-MM", "-MT", "object", entry["file"]], cwd=entry["directory"],
                            check=True, capture_output=True, text=True).stdout
    names = listed.replace("\\\n", " ").split()[1:]
    paths = [Path(os.path.normpath(Path(entry["directory"]) / name)) for name in names]
    return [path for path in paths if path.is_relative_to(ROOT)]


def findings(folder: Path, file: Path) -> str | None:
    """Returns clang-tidy's findings for a file that FOLDER/compile_commands.json names."""
    done = subprocess.run([*CLANG_TIDY, "-p", str(folder), str(file)], cwd=ROOT, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


def unit_is_clean(folder: Path, entries: list[dict]) -> bool:
    """Checks joined files with the same options, in FOLDER; they count as our headers, by the rules of their own
    folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rules = next(path for above in Path(entries[0]["file"]).parents if (path := above / ".clang-tidy").exists())
    (folder / ".clang-tidy").write_text(rules.read_text())
    unit = folder / "unit.cpp"
    unit.write_text("".join(f'#include "{entry["file"]}"  // NOLINT(bugprone-suspicious-include)\n'
                            for entry in entries))
    command = entries[0]["command"].replace(entries[0]["file"], str(unit))
    (folder / "compile_commands.json").write_text(json.dumps(
        [{"directory": entries[0]["directory"], "command": command, "file": str(unit)}]))
    return findings(folder, unit) is None


def units_of(build: Path, entries: dict[Path, dict]) -> list[list[dict]]:
    """Returns groups of files that may be joined, the largest units first."""
    alike: dict[str, list[tuple[list[dict], set[str]]]] = {}
    for line in (build / "names.txt").read_text().splitlines():
        file, *names = line.split()
        entry = entries.get(Path(file))
        if entry is None:
            continue
        units = alike.setdefault(" ".join(compiler_flags(entry)), [])
        for unit, taken in units:
            if len(unit) < UNIT_FILES and taken.isdisjoint(names):
                unit.append(entry)
                taken.update(names)
                break
        else:
            units.append(([entry], set(names)))
    return sorted((unit for units in alike.values() for unit, _ in units if len(unit) > 1), key=len, reverse=True)


def main(build: Path, jobs: int, places: list[Path]) -> int:
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        if any(source.is_relative_to(place) for place in places):
            entries[source] = entry
    stamps = build / "tidy"

    def stamp_of(source: Path) -> Path:
        return stamps / source.relative_to(ROOT)

    def is_unchanged(source: Path) -> bool:
        stamp = stamp_of(source)
        if not stamp.is_file():
            return False
        made_of = [ROOT / line for line in stamp.read_text().splitlines()]
        rules = [path for folder in source.parents if (path := folder / ".clang-tidy").exists()]
        return len(made_of) > 0 and all(path.exists() and path.stat().st_mtime < stamp.stat().st_mtime for path in made_of + rules)

    def note_clean(entry: dict) -> None:
        source = Path(entry["file"])
        print(f"tidy ok   {source.relative_to(ROOT)}", flush=True)
        stamp_of(source).parent.mkdir(parents=True, exist_ok=True)
        stamp_of(source).write_text("".join(f"{path.relative_to(ROOT)}\n" for path in included_files(entry)))

    def tidy_unit(item: tuple[int, list[dict]]) -> None:
        number, unit = item
        if unit_is_clean(stamps / "units" / str(number), unit):
            for entry in unit:
                note_clean(entry)

    def tidy_file(source: Path) -> bool:
        found = findings(build, source)
        if found is None:
            note_clean(entries[source])
        else:
            print(f"tidy FAIL {source.relative_to(ROOT)}\n{found}", flush=True)
        return found is None

    waiting = [source for source in entries if not is_unchanged(source)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(tidy_unit, enumerate(units_of(build, {source: entries[source] for source in waiting}))))
        left = [source for source in waiting if not is_unchanged(source)]
        failed = list(pool.map(tidy_file, left)).count(False)
    print(f"tidy: {len(waiting)} files looked at, {failed} with findings")
    return 1 if failed else 0


# A function that reads a member without the lock that guards it.
UNLOCKED = """#include <tendon/core/mutex.hpp>
struct Counter {
  int count() const { return count_; }
  mutable tendon::detail::Mutex mutex;
  int count_ TENDON_GUARDED_BY(mutex) = 0;
};
"""


def self_test() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".clang-tidy").write_text((ROOT / ".clang-tidy").read_text())
        (folder / "src").mkdir()
        (folder / "python/bindings").mkdir(parents=True)
        (folder / "python/bindings/.clang-tidy").write_text((ROOT / "python/bindings/.clang-tidy").read_text())
        entries = []
        for file, text in {"src/clean": "void well_named() {}\n", "src/planted": "void BadlyNamed() {}\n",
                           "src/unlocked": UNLOCKED, "python/bindings/planted": "void BadlyNamed() {}\n"}.items():
            path = folder / f"{file}.cpp"
            path.write_text(text)
            entries.append({"directory": name, "file": str(path),
                            "command": f"c++ -std=c++20 -I{ROOT}/include -c {path}"})
        (folder / "compile_commands.json").write_text(json.dumps(entries))
        clean, planted, unlocked, binding = entries
        for seen in (findings(folder, Path(planted["file"])) is not None,
                     "requires holding" in (findings(folder, Path(unlocked["file"])) or ""),
                     findings(folder, Path(clean["file"])) is None,
                     not unit_is_clean(folder / "planted", [clean, planted]),
                     not unit_is_clean(folder / "binding", [binding]),
                     unit_is_clean(folder / "clean", [clean])):
            if not seen:
                sys.exit("self-test: clang-tidy does not tell a planted fault from none")
    print("a planted fault was reported, in a file and in a unit")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    sys.exit(main(Path(sys.argv[1]).resolve(), int(sys.argv[2]),
                  [ROOT / place for place in sys.argv[3:]]))
