# SPDX-License-Identifier: Apache-2.0
"""The common command line of the checkers, and the means to plant faults for them."""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

DEBTS = "tools/house_debts.txt"
Check = Callable[[Path], list[str]]


class Fault(Exception):
    """A fault, described in the text."""


def run_verb(parser: argparse.ArgumentParser) -> None:
    """Runs `check` of the verb with the parsed options."""
    options = parser.parse_args()
    try:
        options.check(options)
    except Fault as fault:
        sys.exit(str(fault))


def run(check: Check, self_test: Callable[[], None], when_clean: str) -> int:
    """Handles [ROOT] or --self-test; returns the exit code."""
    if "--self-test" in sys.argv:
        self_test()
        return 0
    faults = check(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(faults) or when_clean)
    return 1 if faults else 0


def debts_of(root: Path) -> list[list[str]]:
    """Returns the words of each line of DEBTS."""
    file = root / DEBTS
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.split() for line in lines if line and not line.startswith("#")]


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@contextlib.contextmanager
def tree(files: dict[str, str]) -> Iterator[Path]:
    """Makes a temporary folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            write(Path(folder), name, text)
        yield Path(folder)


def expect(check: Check, root: Path, rule: str, places: tuple[str, ...] = ("",)) -> None:
    faults = check(root)
    assert len(faults) == 1 and rule in faults[0] and faults[0].startswith(places), \
        f"planted in {places}, expected {rule!r}, reported {faults}"


def expect_each(check: Check, root: Path, planted: list[tuple[str, str, str]]) -> None:
    """Plants each (file, text, rule) and checks that it is the only reported fault, at that file or in DEBTS."""
    assert check(root) == [], check(root)
    for name, text, rule in planted:
        file = root / name
        before = file.read_text() if file.exists() else None
        write(root, name, text)
        expect(check, root, rule, (name, DEBTS))
        file.unlink() if before is None else file.write_text(before)
