# SPDX-License-Identifier: Apache-2.0
"""Reads tools/packages.txt, for what is written in Python; tools/setup.sh reads it where there may be no Python yet."""

from pathlib import Path


def packages_of(root: Path, *groups: str) -> list[str]:
    """The packages of these groups, as they stand there; @other stands for those of another group."""
    lines = [line.partition(":") for line in (root / "tools/packages.txt").read_text().splitlines()]
    found = []
    for group in groups:
        for word in (word for name, _, words in lines if name == group for word in words.split()):
            found += packages_of(root, word[1:]) if word.startswith("@") else [word]
    return found
