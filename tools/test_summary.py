#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the JUnit files of ctest and pytest: lists the skipped tests with their reasons, then what each failed test
printed, then the totals of all files. The failures stand last: who reads only the end of a log sees them."""

import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

# What GoogleTest prints after the place of a GTEST_SKIP().
REASON = re.compile(r"^.*: Skipped\n(?P<reason>.*)$", re.MULTILINE)
# ctest writes the value of a test's parameter behind its name.
PARAMETER = re.compile(r"\s+# GetParam\(\) = .*")
LINES_SHOWN = 80


def skip_reason(case: ElementTree.Element) -> str:
    found = REASON.search(case.findtext("system-out") or "")
    if found:
        return found["reason"].strip()
    return case.find("skipped").get("message", "")


def printed(case: ElementTree.Element) -> list[str]:
    """What a failed test printed; of a long text its beginning, where the first error is."""
    texts = [case.findtext("system-out"), *(element.text for element in case.findall("failure") + case.findall("error"))]
    lines = "\n".join(text.strip() for text in texts if text).splitlines()
    left_out = len(lines) - LINES_SHOWN
    return lines[:LINES_SHOWN] + ([f"... {left_out} more lines"] if left_out > 0 else [])


def main(paths: list[str]) -> None:
    passed = 0
    skipped: collections.Counter[str] = collections.Counter()
    failed: list[tuple[str, str, list[str]]] = []
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name = PARAMETER.sub("", case.get("name"))
            if case.find("skipped") is not None:
                skipped[f"{name}: {skip_reason(case)}"] += 1
            elif case.get("status", "run") == "run" and not case.findall("failure") + case.findall("error"):
                passed += 1
            else:
                failed.append((path, name, printed(case)))
    if skipped:
        print("skipped:")
        for line, times in sorted(skipped.items()):
            print(f"  {line}" + (f" ({times} times)" if times > 1 else ""))
    for path, name, lines in failed:
        print(f"failed: {name} ({path})")
        for line in lines:
            print(f"  {line}")
    print(f"{passed} passed, {len(failed)} failed, {skipped.total()} skipped")


if __name__ == "__main__":
    main(sys.argv[1:])
