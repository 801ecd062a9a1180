#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the files in FOLDERs as they are compiled in BUILD.

tidy.py BUILD JOBS FOLDER...

It takes some seconds a file, so a file that was found clean is looked at again only when it, a file
of ours that it includes, or a .clang-tidy above it changed. What is included is asked of ninja, who
knows it of files that it compiled: those of FOLDERs are compiled first.
"""

import json
import subprocess
import sys
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
            if Path(line.strip()).is_relative_to(ROOT):
                deps[output].append(Path(line.strip()))
        elif line:
            output = line.split(":")[0]
            deps[output] = []
    return deps


def main(build: Path, jobs: int, folders: list[Path]) -> int:
    objects = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        if any(source.is_relative_to(folder) for folder in folders):
            objects[source] = entry["command"].split(" -o ")[1].split(" ")[0]
    if subprocess.run(["ninja", "-C", str(build), "-j", str(jobs), "--quiet",
                       *objects.values()]).returncode != 0:
        return 1

    deps = included_files(build)
    stamps = build / "tidy"
    waiting = []
    for source, made in objects.items():
        name = source.relative_to(ROOT)
        stamp = stamps / name
        rules = [path for folder in source.parents if folder.is_relative_to(ROOT)
                 if (path := folder / ".clang-tidy").exists()]
        if stamp.exists() and all(
                path.exists() and path.stat().st_mtime < stamp.stat().st_mtime
                for path in [*deps[made], *rules]):
            continue
        waiting.append((name, stamp))

    def tidy(item: tuple[Path, Path]) -> bool:
        name, stamp = item
        done = subprocess.run([*CLANG_TIDY, "-p", str(build), str(name)], cwd=ROOT,
                              capture_output=True, text=True)
        clean = done.returncode == 0
        print(f"tidy {'ok  ' if clean else 'FAIL'} {name}", flush=True)
        if clean:
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.touch()
        else:
            print(done.stdout, done.stderr, flush=True)
        return clean

    with ThreadPoolExecutor(jobs) as pool:
        failed = list(pool.map(tidy, waiting)).count(False)
    print(f"tidy: {len(waiting)} files looked at, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), int(sys.argv[2]),
                  [ROOT / folder for folder in sys.argv[3:]]))
