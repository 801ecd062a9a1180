#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the files in FOLDERs as they are compiled in BUILD.

tidy.py BUILD JOBS FOLDER...
tidy.py --self-test   plants a fault and expects it to be reported

It takes some seconds a file, most of them for its headers. Files that BUILD/units.txt puts into one
unit (cmake/quick_build.cmake) are therefore looked at together first. A unit is only believed when it
is clean: otherwise each of its files is looked at by itself.

A file that was found clean is looked at again only when it, a file of ours that it includes, or a
.clang-tidy above it changed. What is included is asked of ninja, which knows it of files that it
compiled: those of FOLDERs are compiled first.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# g++ knows warnings by names that clang does not.
CLANG_TIDY = ["clang-tidy-16", "--quiet", "--extra-arg=-Wno-unknown-warning-option"]


def included_files(build: Path) -> dict[str, list[Path]]:
    """Files of ours that each object was made of, by ninja's record."""
    listed = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], check=True,
                            capture_output=True, text=True).stdout
    deps: dict[str, list[Path]] = {}
    for line in listed.splitlines():
        if line.startswith("    "):
            # ccache has the compiler name them from the build folder.
            included = Path(os.path.normpath(build.resolve() / line.strip()))
            if included.is_relative_to(ROOT):
                deps[output].append(included)
        elif line:
            output = line.split(":")[0]
            deps[output] = []
    return deps


def findings(folder: Path, file: Path) -> str | None:
    """What is wrong with a file that FOLDER/compile_commands.json names."""
    done = subprocess.run([*CLANG_TIDY, "-p", str(folder), str(file)], cwd=ROOT, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


def unit_is_clean(folder: Path, entries: list[dict]) -> bool:
    """Joins files that are compiled alike, in FOLDER; they count as headers of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    unit = folder / "unit.cpp"
    unit.write_text("".join(f'#include "{entry["file"]}"  // NOLINT(bugprone-suspicious-include)\n'
                            for entry in entries))
    command = entries[0]["command"].replace(entries[0]["file"], str(unit))
    (folder / "compile_commands.json").write_text(json.dumps(
        [{"directory": entries[0]["directory"], "command": command, "file": str(unit)}]))
    return findings(folder, unit) is None


def units_of(build: Path, entries: dict[Path, dict]) -> dict[str, list[dict]]:
    """Those of the files that may be joined, by the name of the unit."""
    units: dict[str, list[dict]] = {}
    for line in (build / "units.txt").read_text().splitlines():
        name, source = line.split()
        if Path(source) in entries:
            units.setdefault(name, []).append(entries[Path(source)])
    return {name: unit for name, unit in units.items() if len(unit) > 1}


def main(build: Path, jobs: int, folders: list[Path]) -> int:
    entries = {}
    objects = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        if any(source.is_relative_to(folder) for folder in folders):
            entries[source] = entry
            objects[source] = entry["command"].split(" -o ")[1].split(" ")[0]
    if subprocess.run(["ninja", "-C", str(build), "-j", str(jobs), "--quiet",
                       *objects.values()]).returncode != 0:
        return 1

    deps = included_files(build)
    stamps = build / "tidy"

    def stamp_of(source: Path) -> Path:
        return stamps / source.relative_to(ROOT)

    def is_unchanged(source: Path) -> bool:
        stamp = stamp_of(source)
        rules = [path for folder in source.parents if folder.is_relative_to(ROOT)
                 if (path := folder / ".clang-tidy").exists()]
        return stamp.exists() and all(path.exists() and path.stat().st_mtime < stamp.stat().st_mtime
                                      for path in [*deps[objects[source]], *rules])

    def note_clean(source: Path) -> None:
        print(f"tidy ok   {source.relative_to(ROOT)}", flush=True)
        stamp_of(source).parent.mkdir(parents=True, exist_ok=True)
        stamp_of(source).touch()

    def tidy_unit(item: tuple[str, list[dict]]) -> None:
        name, unit = item
        if unit_is_clean(stamps / "units" / name, unit):
            for entry in unit:
                note_clean(Path(entry["file"]))

    def tidy_file(source: Path) -> bool:
        found = findings(build, source)
        if found is None:
            note_clean(source)
        else:
            print(f"tidy FAIL {source.relative_to(ROOT)}\n{found}", flush=True)
        return found is None

    waiting = [source for source in entries if not is_unchanged(source)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(tidy_unit, units_of(build, {source: entries[source] for source in waiting}).items()))
        left = [source for source in waiting if not is_unchanged(source)]
        failed = list(pool.map(tidy_file, left)).count(False)
    print(f"tidy: {len(waiting)} files looked at, {failed} with findings")
    return 1 if failed else 0


# A member that is read without the lock that guards it.
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
        entries = []
        for file, text in {"clean": "void well_named() {}\n", "planted": "void BadlyNamed() {}\n",
                           "unlocked": UNLOCKED}.items():
            path = folder / "src" / f"{file}.cpp"
            path.write_text(text)
            entries.append({"directory": name, "file": str(path),
                            "command": f"c++ -std=c++20 -I{ROOT}/include -c {path}"})
        (folder / "compile_commands.json").write_text(json.dumps(entries))
        clean, planted, unlocked = entries
        for seen in (findings(folder, Path(planted["file"])) is not None,
                     "requires holding" in (findings(folder, Path(unlocked["file"])) or ""),
                     findings(folder, Path(clean["file"])) is None,
                     not unit_is_clean(folder / "planted", [clean, planted]),
                     unit_is_clean(folder / "clean", [clean])):
            if not seen:
                sys.exit("self-test: clang-tidy does not tell a planted fault from none")
    print("a planted fault was reported, in a file and in a unit")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    sys.exit(main(Path(sys.argv[1]).resolve(), int(sys.argv[2]),
                  [ROOT / folder for folder in sys.argv[3:]]))
