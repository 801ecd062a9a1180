# SPDX-License-Identifier: Apache-2.0
"""Reads tools/packages.txt for Python programs; tools/setup.sh reads it on machines that may have no Python yet."""

from pathlib import Path


def packages_of(root: Path, *groups: str) -> list[str]:
    """Returns the packages of these groups, in order; @other is replaced by those of another group."""
    lines = [line.partition(":") for line in (root / "tools/packages.txt").read_text().splitlines()]
    found = []
    for group in groups:
        for word in (word for name, _, words in lines if name == group for word in words.split()):
            found += packages_of(root, word[1:]) if word.startswith("@") else [word]
    return found
