# SPDX-License-Identifier: Apache-2.0
"""Reads tools/packages.txt, for the checks in Python; tools/setup.sh and python/backend read it by themselves."""

from pathlib import Path


def packages_of(root: Path, *groups: str) -> set[str]:
    """The packages of these groups; @other stands for those of another one."""
    lines = (line.partition(":") for line in (root / "tools/packages.txt").read_text().splitlines())
    words = {word for group, _, names in lines if group in groups for word in names.split()}
    others = {word.removeprefix("@") for word in words if word.startswith("@")}
    return {word for word in words if not word.startswith("@")} | (packages_of(root, *others) if others else set())
