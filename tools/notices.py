#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the licences of the foreign software in our binaries, as found on the machine that builds them.

notices.py OUTPUT NAME=FILE... [--append FILE]...    a file of each part: a header, a library
notices.py --self-test                               plants a part without a licence and expects it to be reported

The licence of a part is that of the Debian package of its file, or of the Python distribution, or the text at the
head of the file itself. A part without one, as on other systems, is named on stderr and in OUTPUT: such binaries may be
used but not passed on, and tools/check_wheel.py reports them. --append adds the output of another step, such as the
licences of the crates (tools/zenoh_crate.py).
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """\
Tendon is under the Apache License 2.0, in the file LICENSE. Its binaries hold parts that others wrote, or were compiled
with their headers. These are their licences, as found on the machine that made the binaries.
"""
COMMON = re.compile(r"/usr/share/common-licenses/[A-Za-z]+(?:-[0-9.]*[0-9])?")
GRANTS = re.compile(r"permission is hereby granted|redistribution and use in source|licensed under the", re.IGNORECASE)
COMMENT = re.compile(r"\s*(/\*.*?\*/|(?://[^\n]*\n)+)", re.DOTALL)
LINE = "-" * 100
MISSING = "No text of its licence was found on the machine that made the binaries. Do not give them away without it."


def of_debian(file: Path) -> tuple[str, str] | None:
    """Returns the name of the package of `file`, and its copyright file."""
    if shutil.which("dpkg-query") is None:
        return None
    # If /lib is a link to /usr/lib, a package may list its file under either name.
    names = [str(file), str(file.resolve())]
    names += [name.removeprefix("/usr") for name in names if name.startswith("/usr/lib")]
    found = subprocess.run(["dpkg-query", "-S", *names], check=False, capture_output=True, text=True).stdout
    for line in found.splitlines():
        package = line.split(":")[0]
        text = Path("/usr/share/doc", package, "copyright")
        if text.exists():
            return f"Debian's {package}", text.read_text(errors="replace")
    return None


def of_distribution(file: Path) -> tuple[str, str] | None:
    """Returns the same for a Python distribution: the one with the folder's name."""
    for folder in file.parents:
        for found in sorted(folder.parent.glob(f"{folder.name}-*.dist-info")):
            texts = [text for text in sorted(found.rglob("LICEN[CS]E*")) if text.is_file() and "/licenses/" in f"{text}"]
            if texts:
                return found.name.removesuffix(".dist-info"), "\n".join(text.read_text(errors="replace") for text in texts)
    return None


def of_head(file: Path) -> tuple[str, str] | None:
    """Returns the comment at the head of a source, if it grants rights."""
    comment = COMMENT.match(file.read_text(errors="replace")) if file.is_file() else None
    if not comment or not GRANTS.search(comment[1]):
        return None
    lines = [line.strip().removeprefix("/**").removeprefix("/*").removesuffix("*/").lstrip("*/") for line in
             comment[1].splitlines()]
    return file.name, "\n".join(line.removeprefix(" ") for line in lines).strip() + "\n"


def licence_of(name: str, file: Path) -> tuple[str, str]:
    for look in (of_debian, of_head, of_distribution):
        found = look(file)
        if found is not None:
            return found
    print(f"notices: no licence was found for {name}: {file} is neither of a Debian package nor of a distribution of "
          "Python, and its first comment is none", file=sys.stderr)
    return f"{file}", MISSING


def notices(parts: list[tuple[str, Path]]) -> str:
    """Formats a chapter for each part, then the licences that their texts refer to."""
    chapters = []
    common: set[str] = set()
    for name, file in parts:
        where, text = licence_of(name, file)
        common |= set(COMMON.findall(text))
        chapters.append(f"{LINE}\n{name} ({where})\n{LINE}\n\n{text.strip()}\n")
    for place in sorted(common):
        if Path(place).exists():
            chapters.append(f"{LINE}\n{Path(place).name}, as in {place}\n{LINE}\n\n"
                            f"{Path(place).read_text(errors='replace').strip()}\n")
    return "\n".join(chapters)


def self_test() -> None:
    with tempfile.TemporaryDirectory() as work:
        granted = Path(work) / "granted.h"
        granted.write_text("/*\n * MIT License\n * Permission is hereby granted to all\n */\n#pragma once\n")
        text = notices([("A part", granted)])
        assert "A part (granted.h)" in text and "\nPermission is hereby granted to all" in text, text
        silent = Path(work) / "silent.h"
        silent.write_text("// What it does.\n#pragma once\n")
        text = notices([("Another", silent)])
        assert f"Another ({silent})" in text and MISSING in text, text
    print("the planted fault was reported")


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("parts", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--append", action="append", default=[], type=Path)
    arguments = parser.parse_args()
    pairs = [part.partition("=") for part in arguments.parts]
    text = HEAD + "\n" + notices([(name, Path(file)) for name, _, file in pairs])
    for more in arguments.append:
        text += "\n" + more.read_text()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
